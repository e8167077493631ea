"""The coordinator is killed and comes back after ten seconds (G5): Shoal alone, no peer has one.

Steps: the share of them, while it is away and just after, that take longer than the 99.9th percentile
of the undisturbed ones before. Then the same with a worker killed, or started, meanwhile: how soon after
the coordinator listens again the job has gone on without the one, or with the other.
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
_QUIET_SECONDS, _AWAY_SECONDS, _AFTER_SECONDS = 20.0, 10.0, 2.0
_MOMENT_SECONDS = 1.0
_DEADLINE_SECONDS = 30.0


def headless(plan: Plan) -> Report:
    """A quarter as many runs as there are kills of workers, of each kind."""
    runs = max(1, plan.kills // 4)
    load = os.getloadavg()[0]
    quiet: list[float] = []
    above = steps = 0
    for _ in range(runs):
        before, during = _alone(plan)
        bound = percentile(before, 0.999)
        quiet += before
        above += sum(each > bound for each in during)
        steps += len(during)
    chance = plan.chance("headless")
    lost = [_with_a_loss(plan, chance) for _ in range(runs)]
    joined = [_with_a_joiner(plan) for _ in range(runs)]
    load = max(load, os.getloadavg()[0])
    usual = f"{above} of {steps} steps in {runs} runs"
    beside = f"undisturbed p99.9 {percentile(quiet, 0.999) * 1e3:.0f} ms, p50 {p50(quiet) * 1e3:.0f} ms"
    share = 100 * above / steps
    return Report([
        Row("coordinator away 10 s: slow steps", 0.2, share, "%", usual, beside, load=load),
        _row("a worker killed meanwhile: after it is back", lost, load),
        _row("a worker started meanwhile: after it is back", joined, load),
    ])  # fmt: skip


def _row(what: str, values: Sequence[float], load: float) -> Row:
    return Row(what, 1.0, p95(values), "s", f"p95 of {len(values)}; p50 {p50(values):.3f}", load=load)


def _alone(plan: Plan) -> tuple[list[float], list[float]]:
    """Step times in seconds: undisturbed, and from the coordinator's death to two seconds after."""
    with Shoal(plan.fresh(Settings(""), "headless"), _WORLD, plan.python) as job:
        job.wait_steady(_WORLD)
        began_ns = time.monotonic_ns()
        time.sleep(_QUIET_SECONDS)
        killed_ns = _kill_coordinator(job)
        time.sleep(_AWAY_SECONDS)
        _bring_back(job)
        time.sleep(_AFTER_SECONDS)
        traces = job.alive()
        if len(traces) != _WORLD:
            job.keep = True
            raise NotReached(f"{_WORLD - len(traces)} workers ended with the coordinator ({job.folder})")
        return _gaps(traces, began_ns, killed_ns), _gaps(traces, killed_ns, time.monotonic_ns())


def _with_a_loss(plan: Plan, chance: random.Random) -> float:
    with Shoal(plan.fresh(Settings(""), "headless"), _WORLD, plan.python) as job:
        job.wait_steady(_WORLD)
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


def _with_a_joiner(plan: Plan) -> float:
    with Shoal(plan.fresh(Settings(""), "headless"), _WORLD, plan.python) as job:
        job.wait_steady(_WORLD)
        old = {trace.pid for trace in job.alive()}
        _kill_coordinator(job)
        job.add()
        time.sleep(_AWAY_SECONDS)
        back_ns = _bring_back(job)
        job.wait_steady(_WORLD + 1, steps=3, deadline_seconds=_DEADLINE_SECONDS)
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
