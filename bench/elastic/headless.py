"""The coordinator is killed and comes back after ten seconds (G5): Shoal alone, no peer has one.

Steps: the share of them, while it is away and just after, that take longer than the 99.9th percentile
of the undisturbed ones between. Then the same with a worker killed, or started, meanwhile: how soon
after the coordinator listens again the job has gone on without the one, or with the other.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from itertools import pairwise

from bench.elastic.harm import harm_anywhere
from bench.elastic.jobs.job import NotReached
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.marks import Trace
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95, percentile
from bench.elastic.timeline import recovery
from bench.row import Row

__all__ = ["headless"]

_WORLD = 4
_QUIET_SECONDS, _AWAY_SECONDS, _AFTER_SECONDS = 12.0, 10.0, 2.0
_MOMENT_SECONDS = 1.0
_DEADLINE_SECONDS = 30.0


def headless(plan: Plan) -> Report:
    """A quarter as many absences as there are kills of workers, of each of the three kinds."""
    runs = max(1, plan.kills // 4)
    load = os.getloadavg()[0]
    quiet, during = _alone(plan, runs)
    lost, joined = _with_changes(plan, runs)
    load = max(load, os.getloadavg()[0])
    bound = percentile(quiet, 0.999)
    above = sum(each > bound for each in during)
    usual = f"{above} of {len(during)} steps in {runs} runs"
    beside = f"undisturbed p99.9 {bound * 1e3:.0f} ms, p50 {p50(quiet) * 1e3:.0f} ms"
    what, share = "coordinator away 10 s: slow steps", 100 * above / len(during)
    return Report([
        Row(what, 0.2, share, "%", usual, beside, load=load, number="G5"),
        _row("a worker killed meanwhile: after it is back", lost, load),
        _row("a worker started meanwhile: after it is back", joined, load),
    ])  # fmt: skip


def _row(what: str, values: Sequence[float], load: float) -> Row:
    spread = f"p95 of {len(values)}; p50 {p50(values):.3f}"
    return Row(what, 1.0, p95(values), "s", spread, load=load, number="G5")


def _alone(plan: Plan, runs: int) -> tuple[list[float], list[float]]:
    """Step times in seconds: undisturbed, and from the coordinator's death to two seconds after."""
    quiet: list[float] = []
    during: list[float] = []
    with Shoal(plan.fresh(Settings(""), "headless"), _WORLD, plan.python) as job:
        job.wait_steady(_WORLD)
        for _ in range(runs):
            began_ns = time.monotonic_ns()
            time.sleep(_QUIET_SECONDS)
            killed_ns = _kill_coordinator(job)
            time.sleep(_AWAY_SECONDS)
            _bring_back(job)
            time.sleep(_AFTER_SECONDS)
            traces = job.alive()
            if len(traces) != _WORLD:
                job.keep = True
                ended = _WORLD - len(traces)
                raise NotReached(f"{ended} workers ended with the coordinator ({job.folder})")
            quiet += _gaps(traces, began_ns, killed_ns)
            during += _gaps(traces, killed_ns, time.monotonic_ns())
    return quiet, during


def _with_changes(plan: Plan, runs: int) -> tuple[list[float], list[float]]:
    """Seconds from the coordinator's return to the first step without a worker that was killed while it
    was away; and with one that was started then, in its place, the next time."""
    chance = plan.chance("headless")
    lost: list[float] = []
    joined: list[float] = []
    with Shoal(plan.fresh(Settings(""), "headless"), _WORLD, plan.python) as job:
        for _ in range(runs):
            job.wait_steady(_WORLD)
            lost.append(_with_a_loss(job, chance))
            job.wait_steady(_WORLD - 1)
            joined.append(_with_a_joiner(job))
    return lost, joined


def _with_a_loss(job: Shoal, chance: random.Random) -> float:
    _kill_coordinator(job)
    time.sleep(_MOMENT_SECONDS)
    harm = harm_anywhere(job, chance)
    time.sleep(_AWAY_SECONDS - _MOMENT_SECONDS)
    back_ns = _bring_back(job)
    job.wait(
        lambda: recovery(job.traces(), harm) is not None, _DEADLINE_SECONDS, "step after both losses"
    )
    found = recovery(job.traces(), harm)
    assert found is not None
    if found.redone or found.skipped:
        job.keep = True
        raise NotReached(f"{found.redone} steps redone, {found.skipped} lost ({job.folder})")
    return (harm.at_ns - back_ns) / 1e9 + found.lost_seconds


def _with_a_joiner(job: Shoal) -> float:
    old = {trace.pid for trace in job.alive()}
    _kill_coordinator(job)
    job.add()
    time.sleep(_AWAY_SECONDS)
    back_ns = _bring_back(job)
    job.wait_steady(_WORLD, steps=3, deadline_seconds=_DEADLINE_SECONDS)
    (new,) = (trace for trace in job.alive() if trace.pid not in old)
    return (new.applied[0].at_ns - back_ns) / 1e9


def _kill_coordinator(job: Shoal) -> int:
    at_ns = time.monotonic_ns()
    os.kill(job.coordinator.pid, signal.SIGKILL)
    job.coordinator.wait(10)
    return at_ns


def _bring_back(job: Shoal) -> int:
    """When it listened again, in monotonic nanoseconds."""
    address = job.folder / "coordinator.json"
    before = address.stat().st_mtime_ns
    job.start_coordinator()
    job.wait(lambda: address.stat().st_mtime_ns != before, _DEADLINE_SECONDS, "address of a coordinator")
    return time.monotonic_ns()


def _gaps(traces: Sequence[Trace], begin_ns: int, end_ns: int) -> list[float]:
    return [
        (later.at_ns - earlier.at_ns) / 1e9
        for trace in traces
        for earlier, later in pairwise(trace.applied)
        if begin_ns <= earlier.at_ns and later.at_ns < end_ns
    ]
