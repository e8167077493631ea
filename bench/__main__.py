"""Run all measurements, or those named on the command line, and print the table."""

from __future__ import annotations

import platform
import sys
import time

from bench import arrays, commands, memory, pending
from bench.row import Row, table

_SUITES = {
    "commands": commands.rows,
    "arrays": arrays.rows,
    "pending": pending.rows,
    "memory": memory.rows,
}


def main() -> None:
    """`python -m bench [SUITE...]`."""
    wanted = sys.argv[1:] or list(_SUITES)
    if unknown := [name for name in wanted if name not in _SUITES]:
        sys.exit(f"no suite {', '.join(unknown)}: there are {', '.join(_SUITES)}")
    print(f"{time.strftime('%Y-%m-%d')}, {platform.platform()}, Python {platform.python_version()}\n")
    rows: list[Row] = []
    try:
        for name in wanted:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            rows += _SUITES[name]()
    finally:
        print(table(rows))  # what was measured is shown even if a later suite fails


if __name__ == "__main__":
    main()
