"""The supervisor of one task, as a program: `python -I -S supervisor.py FOLDER [READY]`.

Only finds the package, from where this file lies, and hands over: a script is compiled anew at every
start, the modules it imports are not. The package's root goes last on the path, so that nothing beside
it can take the place of the standard library.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.append(__file__.removesuffix("/shoal/cluster/local/supervisor.py"))
    from shoal.cluster.local import supervisor_main

    # all is on the disk by now, and taking the interpreter apart takes longer than some tasks
    os._exit(supervisor_main.main(sys.argv[1:]))
