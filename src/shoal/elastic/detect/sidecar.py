"""The sidecar as a program: `python -I -S sidecar.py WORKER CHANNEL MEMORY`.

Only finds the package, from where this file lies, and hands over: a script is compiled anew at every
start, the modules it imports are not. The package's root goes last on the path, so that nothing beside
it can take the place of the standard library.
"""

import os
import sys

if __name__ == "__main__":
    # what the worker's C libraries left open for their children would stay open when the worker dies:
    # its peers would wait at sockets that do not close
    os.closerange(5, os.sysconf("SC_OPEN_MAX"))
    sys.path.append(__file__.removesuffix("/shoal/elastic/detect/sidecar.py"))
    from shoal.elastic.detect import sidecar_main

    os._exit(sidecar_main.main(sys.argv[1:]))
