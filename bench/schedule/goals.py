"""The goals of scheduling in one table: what each came to, and why it was missed or not measured.

`python -m bench.schedule.goals [--quick]`; `make bench` prints it too. Rows come from the modules beside
this one, which measure more than the goals; `--quick` leaves out what takes minutes.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.published import DATA
from bench.row import Row, shown, table
from bench.schedule import backfill, live, packing, placing, referee, scale, sizing, targets
from bench.schedule.within import within

__all__ = ["Suite", "collect", "rows"]


@dataclass(frozen=True)
class Suite:
    """A module that measures, and those of its rows that are goals."""

    name: str
    rows: Callable[[bool], Iterable[Row]]
    """Told whether it is to be quick."""
    named: Mapping[str, str]
    """What the module calls a row, to what the goal is called."""
    published: str = ""
    """The folder of published data that it needs."""
    minutes: bool = False
    """It takes one or more."""
    seconds: float = math.inf
    """It is ended after so many; what it measured by then counts."""


_REFEREE = (
    *(f"{name}, off its published means" for name in ("tiresias", "optimus")),
    *(
        f"{what}, knows: {information}"
        for information in ("none", "declared", "profiles")
        for what in ("mean completion", "p99", "makespan")
    ),
    *(
        f"{what} against {rigid}"
        for rigid in ("fifo-skip", "fifo-skip-spread")
        for what in ("makespan", "mean completion", "wait")
    ),
)
_PACKING = (
    "GPUs allocated at 130 % demand, openb default, mean of 10 orders",
    "GPUs allocated at 130 % demand, openb multigpu50, mean of 10 orders",
    "all 8,152 pods of openb default, rehearsal included",
)
_SCALE = {
    "full decision, p50": "full decision, p50",
    "full decision, p99": "full decision, p99",
    "decision after one event, p99": "decision after one event, p99",
    "burst of 50,000 one-GPU jobs on 5,000 nodes, whole decision": "the same burst, a whole decision",
    "memory of a decision over 100,000 GPUs": "memory of a decision over 100,000 GPUs",
    "Kueue's generator, 15,000 workloads, simulated": "Kueue's generator, 15,000 workloads, simulated",
    "the same, processor time": "Kueue's generator, 15,000 workloads, processor time",
    "Kueue's generator, 50,000 workloads, processor time": (
        "Kueue's generator, 50,000 workloads, processor time"
    ),
}
_SUITES = (
    Suite(
        "referee",
        lambda quick: referee.rows(),
        {what: what for what in _REFEREE},
        "pollux",
        minutes=True,
    ),
    Suite(
        "packing", lambda quick: packing.rows(), {what: what for what in _PACKING}, "openb", minutes=True
    ),
    Suite(
        "placing",
        lambda quick: placing.rows(),
        {
            "burst of 50,000 equal tasks of one GPU, 5,000 nodes": (
                "burst of 50,000 one-GPU tasks on 5,000 nodes, decisions only"
            ),
            "the same of 200 shapes, shape by shape": "the same burst, tasks of 200 shapes",
        },
    ),
    Suite(
        "sizing",
        lambda quick: sizing.rows(),
        {
            "re-size, jobs of up to 64 GPUs; 5,000 jobs, 100,000 GPUs": (
                "elastic re-size, 5,000 jobs over 100,000 GPUs, each up to 64"
            ),
            "re-size, jobs of up to 256 GPUs; 5,000 jobs, 100,000 GPUs": "the same, each up to 256",
        },
    ),
    Suite(
        "targets",
        lambda quick: targets.rows(),
        {
            "targets, seen for the first time; 5,000 jobs, 100,000 GPUs, 50 queues": (
                "their targets in a decision, rows seen for the first time"
            ),
            "targets, one job has gone on; 5,000 jobs, 100,000 GPUs, 50 queues": (
                "the same, one job has gone on"
            ),
        },
    ),
    Suite("backfill", lambda quick: backfill.rows(), {"plan, depth 5,000": "backfill, depth 5,000"}),
    Suite("scale", scale.rows, _SCALE, minutes=True, seconds=600),
    Suite(
        "live",
        lambda quick: live.rows(),
        {
            "policies in another order than simulated": (
                "live: policies in another order than simulated, 3 seeds"
            )
        },
        minutes=True,
    ),
)

_LAST = (
    "all GPUs are in use from the fourth hour on, so a run takes as long as its GPU hours; what ends "
    "the mean sooner, large sizes for small jobs and one long job before the other, costs more of them. "
    "No weights of those tried have Pollux' makespan and these means"
)
_RIGID = f"{_LAST}; the best that is known for these lists is -29.5 %"
_ASKED = (
    "all who wait are ordered, dated and told why again, and who would give way is sought for those who "
    "could have it; only what rows come to is remembered between decisions"
)
_WHY = {
    "full decision, p50": _ASKED,
    "full decision, p99": _ASKED,
    "decision after one event, p99": _ASKED,
    "Kueue's generator, 15,000 workloads, simulated": (
        "large jobs come to the end of the line last, and the last of them end with little beside them"
    ),
    "Kueue's generator, 15,000 workloads, processor time": _ASKED,
    "Kueue's generator, 50,000 workloads, processor time": _ASKED,
    "their targets in a decision, rows seen for the first time": (
        "each queue is weighed and chosen for by itself, its jobs one after the other: about three "
        "milliseconds for a hundred; what has not changed is kept"
    ),
    "the same burst, a whole decision": "each row is made into objects; equal ones start together",
    "makespan, knows: none": _LAST,
    "makespan, knows: declared": _LAST,
    "makespan, knows: profiles": _LAST,
    "makespan against fifo-skip": _RIGID,
    "makespan against fifo-skip-spread": _RIGID,
}
"""Why a goal was missed, when it is."""

_STATED = {
    "full decision, p50": (100.0, "ms", False),
    "full decision, p99": (300.0, "ms", False),
    "decision after one event, p99": (10.0, "ms", False),
    "the same burst, a whole decision": (50_000.0, "jobs/s", True),
    "memory of a decision over 100,000 GPUs": (1000.0, "MB", False),
    "Kueue's generator, 15,000 workloads, simulated": (73.0, "s", False),
    "Kueue's generator, 15,000 workloads, processor time": (5.0, "CPU s", False),
    "Kueue's generator, 50,000 workloads, processor time": (30.0, "CPU s", False),
    "live: policies in another order than simulated, 3 seeds": (0.0, "pairs", False),
}
"""Goals that are shown although nothing was measured."""


def rows(quick: bool = False) -> list[Row]:
    """Every goal, measured or not."""
    return collect(_SUITES, quick)


def collect(suites: Sequence[Suite], quick: bool) -> list[Row]:
    """The goals of these modules; those that were left out or not come to say so. Raises KeyError for a
    row that its module does not have."""
    found: list[Row] = []
    for suite in suites:
        reason = _left_out(suite, quick)
        made: dict[str, Row] = {}
        if not reason:
            print(f"  {suite.name} ...", file=sys.stderr, flush=True)
            given, reason = _measured(suite, quick)
            made = {row.what: row for row in given}
        for what, goal in suite.named.items():
            if what not in made and reason:
                found.append(_absent(goal, reason))
            else:
                row = made[what]
                found.append(replace(row, what=goal, why=row.why or _WHY.get(goal, "not known yet")))
    return found


def _left_out(suite: Suite, quick: bool) -> str:
    """Why a module is; empty if it is not."""
    if suite.published and not (DATA / suite.published).is_dir():
        return f"there are no published data in {DATA / suite.published}"
    return "left out, for it takes a minute or more" if quick and suite.minutes else ""


def _measured(suite: Suite, quick: bool) -> tuple[Iterable[Row], str]:
    """Rows, and why they are not all."""
    if suite.seconds == math.inf:
        return list(shown(suite.rows(quick))), ""
    return within(suite.seconds, lambda: shown(suite.rows(quick)))


def _absent(name: str, reason: str) -> Row:
    goal, unit, higher = _STATED.get(name, (math.nan, "", False))
    return Row(name, goal, math.nan, unit, higher=higher, why=reason)


def main() -> None:
    """`python -m bench.schedule.goals [--quick]`."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedule.goals")
    parser.add_argument("--quick", action="store_true", help="without what takes minutes")
    print(table(rows(parser.parse_args().quick)))


if __name__ == "__main__":
    main()
