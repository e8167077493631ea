"""Two workers become four: how long the two stand still, and how soon the new ones contribute (G8).

A cold newcomer is a process that is started; a warm standby has imported everything and waits for leave.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bench.elastic.growth import Growth, growth
from bench.elastic.jobs.adaptdl import Adaptdl
from bench.elastic.jobs.job import REPOSITORY, Job, NotReached
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.jobs.torchft import Torchft
from bench.elastic.jobs.torchrun import Nodes
from bench.elastic.marks import Trace
from bench.elastic.plan import Plan
from bench.elastic.report import Report, System
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95
from bench.elastic.subjects import Subject, subjects
from bench.row import Row

__all__ = ["grow", "grow_wider", "standby"]

_WIDE = Settings("", model="wide", batch=16, samples=8192, adam=True)
_BEFORE, _ADDED, _STEPS_BEFORE, _STEPS_AFTER = 2, 2, 10, 10
_STALL_GOAL, _COLD_GOAL, _WARM_GOAL = 0.05, 1.0, 0.5
_PEERS: list[type[Job]] = [Torchft, Nodes, Adaptdl]


def grow(plan: Plan) -> Report:
    """With 41 MB of parameters and Adam."""
    what = "2 to 4 workers, 41 MB, Adam"
    found = [_series(plan, each, what, _WIDE) for each in subjects(plan, _PEERS)]
    beside = "; ".join(each.short() for each in found if not each.ours)
    beside += f"; floor: one copy of the state {_copy_ms(plan, _WIDE):.0f} ms"
    rows: list[Row] = []
    for each in found:
        if each.ours:
            rows.append(each.row("2 to 4: members' stall", _STALL_GOAL, lambda g: g.stall, beside))
            rows.append(each.row("2 to 4: contributing", _COLD_GOAL, lambda g: g.contributing))
    return _report(rows, found)


def standby(plan: Plan) -> Report:
    """Warm standbys, with 41 MB of parameters and Adam."""
    ours = [each for each in subjects(plan, []) if each.name == Shoal.system]
    found = [_series(plan, each, "2 to 4 workers, warm standbys", _WIDE, warm=True) for each in ours]
    rows = [each.row("warm standby", _WARM_GOAL, lambda g: g.contributing) for each in found]
    return _report(rows, found)


def grow_wider(plan: Plan) -> Report:
    """With 256 MiB of parameters and Adam: told, without a goal."""
    what, settings = "2 to 4 workers, 256 MiB, Adam", replace(_WIDE, model="wider")
    found = [_series(plan, each, what, settings, one_in=20) for each in subjects(plan, [Torchft])]
    return _report([], found)


def _report(rows: list[Row], found: list[_Series]) -> Report:
    failures = [failure for each in found for failure in each.failures]
    return Report(rows, [each.line() for each in found], failures)


class _Series:
    """All growths of one system."""

    def __init__(self, situation: str, subject: Subject) -> None:
        self.situation, self.subject = situation, subject
        self.found: list[Growth] = []
        self.failures: list[str] = []
        self.load = os.getloadavg()[0]
        self.ours = subject.name == Shoal.system

    def row(self, what: str, goal: float, figure: Callable[[Growth], float], beside: str = "") -> Row:
        """The p95 against the goal; infinite if one did not grow."""
        values = [figure(each) for each in self.found]
        bound = p95(values) if values and not self.failures else float("inf")
        spread = f"p95 of {len(values)}" + (f"; p50 {p50(values):.3f}" if values else "")
        return Row(what, goal, bound, "s", spread, beside, load=self.load, number="G8")

    def line(self) -> System:
        """Stalls for the table of systems."""
        stalls = [each.stall for each in self.found]
        remark = "did not grow"
        if self.found:
            steps = [p50([getattr(g, n) for g in self.found]) for n in ("step_loading", "step_after")]
            remark = f"stall; contributing after {p50([g.contributing for g in self.found]):.2f} s"
            remark += f"; step {steps[0] * 1e3:.0f} ms while they load, {steps[1] * 1e3:.0f} ms with 4"
            if most := max(g.redone for g in self.found):
                remark += f"; <= {most} steps redone"
        return System(
            self.situation, self.subject.name, len(self.found) + len(self.failures), len(self.found),
            p50(stalls) if stalls else None, p95(stalls) if stalls else None, max(stalls, default=None),
            p50([g.step_before for g in self.found]) if self.found else 0.0, remark, self.load,
        )  # fmt: skip

    def short(self) -> str:
        """For a row."""
        if not self.found:
            return f"{self.subject.name}: did not grow"
        return f"{self.subject.name} {p50([each.stall for each in self.found]):.3g} s"


def _series(
    plan: Plan,
    subject: Subject,
    situation: str,
    settings: Settings,
    *,
    warm: bool = False,
    one_in: int = 5,
) -> _Series:
    series = _Series(situation, subject)
    for _ in range(max(1, subject.tries(plan) // one_in)):
        with subject.make(plan.fresh(settings, subject.name), _BEFORE) as job:
            try:
                series.found.append(_once(job, subject.deadline_seconds * 2, warm=warm))
            except NotReached as error:
                series.failures.append(f"- {situation}: {error}")
                job.keep = True
    series.load = max(series.load, os.getloadavg()[0])
    return series


def _once(job: Job, deadline_seconds: float, *, warm: bool) -> Growth:
    leave = job.folder / "leave"
    job.wait_steady(_BEFORE, _STEPS_BEFORE, deadline_seconds)
    before = job.alive()
    environment = {"BENCH_HOLD": str(leave)} if warm else {}
    if not warm:
        began_ns = time.monotonic_ns()
        _add(job, environment)
    else:
        _add(job, environment)
        job.wait(lambda: _imported(job, before), 60, "import in the standbys")
        job.wait_steady(_BEFORE, _STEPS_BEFORE, deadline_seconds)
        began_ns = time.monotonic_ns()
        _give(leave)
    job.wait_steady(_BEFORE + _ADDED, _STEPS_AFTER, deadline_seconds)
    old = {trace.pid for trace in before}
    new = [trace for trace in job.alive() if trace.pid not in old]
    return growth(before, new, began_ns, warm=warm)


def _add(job: Job, environment: Mapping[str, str]) -> None:
    for _ in range(_ADDED):
        job.add(environment)


def _imported(job: Job, before: list[Trace]) -> bool:
    old = {trace.pid for trace in before}
    return sum("imported" in trace.events for trace in job.alive() if trace.pid not in old) == _ADDED


def _copy_ms(plan: Plan, settings: Settings) -> float:
    """What stock torch takes to copy parameters and Adam's two slots once, into memory used before."""
    words = [plan.python, "-m", "bench.elastic.workers.copying", str(3 * settings.gradient_bytes)]
    done = subprocess.run(
        words, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True,
        timeout=120,
    )  # fmt: skip
    return float(done.stdout)


def _give(leave: Path) -> None:
    leave.write_text("")
