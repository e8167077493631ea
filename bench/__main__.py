"""Run all measurements, or those named on the command line, and print the table."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable

from bench import arrays, commands, load, memory, pending, reads, search
from bench.row import Row, table
from bench.schedule import goals

_SUITES: dict[str, Callable[[bool], list[Row]]] = {
    "commands": lambda quick: commands.rows(),
    "arrays": lambda quick: arrays.rows(),
    "reads": lambda quick: reads.rows(),
    "load": lambda quick: load.rows(),
    "pending": lambda quick: pending.rows(),
    "memory": lambda quick: memory.rows(),
    "search": lambda quick: search.rows(),
    "schedule": goals.rows,
}


def main() -> None:
    """`python -m bench [SUITE...] [--quick]`."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"of {', '.join(_SUITES)}; all unless given"
    )
    parser.add_argument("--quick", action="store_true", help="schedule: without what takes minutes")
    told = parser.parse_args()
    wanted: list[str] = told.suites or list(_SUITES)
    if unknown := [name for name in wanted if name not in _SUITES]:
        sys.exit(f"no suite {', '.join(unknown)}: there are {', '.join(_SUITES)}")
    print(f"{time.strftime('%Y-%m-%d')}, {platform.platform()}, Python {platform.python_version()}\n")
    rows: list[Row] = []
    try:
        for name in wanted:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            rows += _SUITES[name](told.quick)
    finally:
        print(table(rows))  # what was measured is shown even if a later suite fails


if __name__ == "__main__":
    main()
