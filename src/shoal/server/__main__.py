"""`python -m shoal.server --home PATH`."""

import sys

from shoal.server.process import main

if __name__ == "__main__":
    sys.exit(main())
