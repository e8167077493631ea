"""`python -m bench.elastic`: run the measurements named, or all, and print what is known by then."""

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
    evictions,
    headless,
    larger,
    lines,
    overhead,
    page,
    peers,
    rebuild,
    recovery,
    results,
    silence,
)
from bench.elastic.jobs.job import REPOSITORY, NotReached
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.plan import Plan
from bench.elastic.report import Report

_MEASUREMENTS: dict[str, Callable[[Plan], Report]] = {
    "kill2": recovery.kill_two,
    "kill4": recovery.kill_four,
    "backward": recovery.kill_in_backward,
    "machine": recovery.lose_machine,
    "headless": headless.headless,
    "stop": silence.stop,
    "silence": silence.silence,
    "evictions": evictions.evictions,
    "grow": larger.grow,
    "standby": larger.standby,
    "grow256": larger.grow_wider,
    "overhead": overhead.overhead,
    "allreduce": allreduce.allreduce,
    "accounting": accounting.accounting,
    "checkpoint": lambda plan: checkpoint.report(plan.rounds, plan.folder),
    "rebuild": rebuild.rebuild,
    "lines": lines.lines,
    "codecs": lambda plan: codecs.codecs(plan.rounds),
}
_RESULTS = REPOSITORY / "build" / "bench-elastic"
_QUICK = {"kills": 2, "rounds": 4, "minutes": 0.5}


def main() -> None:
    """See the package."""
    told = _arguments()
    # jobs are ended on the way out
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    failed = [] if told.show else _measure(told)
    known = results.load(told.results)
    newest = [known[name] for name in _MEASUREMENTS if name in known]
    shown = page.text(newest)
    print(shown)
    if told.write:
        page.write(shown)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _measure(told: argparse.Namespace) -> list[str]:
    """Make the measurements, keep what each gives, and name those that failed."""
    peers_python = peers.prepare(told.peers) if told.peers else None
    told.folder.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        kills=told.kills,
        rounds=told.rounds,
        minutes=told.minutes,
        seed=told.seed,
        peers=peers_python,
        folder=told.folder,
        only=frozenset(told.only),
    )
    failed: list[str] = []
    command, versions = (
        " ".join(["python -m bench.elastic", *sys.argv[1:]]),
        peers.versions(peers_python),
    )
    for name in told.names or _MEASUREMENTS:
        print(f"measuring {name}, seed {plan.seed} ...", file=sys.stderr, flush=True)
        try:
            result = results.measure(name, lambda: _MEASUREMENTS[name](plan), command, versions)  # noqa: B023
        except (NotReached, subprocess.SubprocessError) as error:
            # the others can be measured all the same; the exit status tells
            print(f"{name} failed: {error}", file=sys.stderr, flush=True)
            failed.append(name)
            continue
        results.save(told.results, result)
        print(f"{name} took {result.seconds:.0f} s", file=sys.stderr, flush=True)
    return failed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic")
    parser.add_argument("names", nargs="*", metavar="MEASUREMENT", help=", ".join(_MEASUREMENTS))
    parser.add_argument("--kills", type=int, default=40, help="harms per situation; peers get fewer")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of interleaved measurements")
    parser.add_argument("--minutes", type=float, default=10, help="of `evictions`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke run of Shoal alone")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SYSTEM", help="as often as wanted"
    )
    parser.add_argument(
        "--peers", type=Path, metavar="FOLDER", help="environment of peers; made if absent"
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the jobs")
    parser.add_argument(
        "--results", type=Path, default=_RESULTS, metavar="FOLDER", help="where results are kept"
    )
    parser.add_argument("--show", action="store_true", help="measure nothing; show what is kept")
    parser.add_argument("--write", action="store_true", help="write to docs/benchmarks.md")
    told = parser.parse_args()
    if unknown := [name for name in told.names if name not in _MEASUREMENTS]:
        parser.error(f"no measurement {', '.join(unknown)}: there are {', '.join(_MEASUREMENTS)}")
    if told.quick:
        if told.write or told.results == _RESULTS:
            parser.error("--quick wants --results FOLDER of its own, and is never written to the page")
        for name, value in _QUICK.items():
            setattr(told, name, value)
        told.only = told.only or [Shoal.system]
    return told


if __name__ == "__main__":
    main()
