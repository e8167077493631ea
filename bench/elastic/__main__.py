"""`python -m bench.elastic`: run the measurements named, or all, and print what they gave."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.elastic import (
    accounting,
    allreduce,
    checkpoint,
    codecs,
    headless,
    larger,
    lines,
    overhead,
    peers,
    rebuild,
    recovery,
)
from bench.elastic.jobs.job import NotReached
from bench.elastic.plan import Plan
from bench.elastic.report import Report, merge, text, write

_MEASUREMENTS: dict[str, Callable[[Plan], Report]] = {
    "kill2": recovery.kill_two,
    "kill4": recovery.kill_four,
    "backward": recovery.kill_in_backward,
    "machine": recovery.lose_machine,
    "stop": recovery.stop,
    "overhead": overhead.overhead,
    "allreduce": allreduce.allreduce,
    "checkpoint": lambda plan: checkpoint.report(plan.rounds, plan.folder),
    "codecs": lambda plan: codecs.codecs(plan.rounds),
    "accounting": accounting.accounting,
    "lines": lines.lines,
    "headless": headless.headless,
    "rebuild": rebuild.rebuild,
    "grow": larger.grow,
    "standby": larger.standby,
    "grow256": larger.grow_wider,
}


def main() -> None:
    """See the package."""
    told = _arguments()
    # jobs are ended on the way out
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    peers_python = peers.prepare(told.peers) if told.peers else None
    plan = Plan(
        kills=told.kills,
        rounds=told.rounds,
        seed=told.seed,
        peers=peers_python,
        folder=told.folder,
        only=frozenset(told.only),
    )
    reports: list[Report] = []
    failed: list[str] = []
    command = " ".join(["python -m bench.elastic", *sys.argv[1:]])
    try:
        for name in told.names or _MEASUREMENTS:
            print(f"measuring {name}, seed {plan.seed} ...", file=sys.stderr, flush=True)
            try:
                reports.append(_MEASUREMENTS[name](plan))
            except (NotReached, subprocess.SubprocessError) as error:
                # the others can be measured all the same; the exit status tells
                reports.append(Report(remarks=[f"- **{name} failed**: {error}"]))
                failed.append(name)
    finally:
        shown = text(merge(reports), command, peers.versions(peers_python))
        print(shown)  # what was measured is shown even if a later measurement fails
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    if told.write:
        write(shown)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic")
    parser.add_argument("names", nargs="*", metavar="MEASUREMENT", help=", ".join(_MEASUREMENTS))
    parser.add_argument("--kills", type=int, default=40, help="harms per situation; peers get fewer")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of interleaved measurements")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", action="append", default=[], metavar="SYSTEM", help="as often as wanted"
    )
    parser.add_argument(
        "--peers", type=Path, metavar="FOLDER", help="environment of peers; made if absent"
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the jobs")
    parser.add_argument("--write", action="store_true", help="write to docs/benchmarks.md")
    told = parser.parse_args()
    if unknown := [name for name in told.names if name not in _MEASUREMENTS]:
        parser.error(f"no measurement {', '.join(unknown)}: there are {', '.join(_MEASUREMENTS)}")
    return told


if __name__ == "__main__":
    main()
