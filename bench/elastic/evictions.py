"""Nobody is counted lost who is only slow (G7): ten minutes on a machine that is too busy.

Four processes compute for ever on the workers' cores. Meanwhile a random worker stands for two seconds
in C code that keeps the interpreter's lock, rank 0 evaluates for twenty seconds, and a random worker
compiles a model anew, in turns, with a few seconds between. Every view without somebody who lived is a
false eviction; each ended or smaller world is one, for peers too.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bench.elastic.jobs.job import Job
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.jobs.torchft import Torchft
from bench.elastic.marks import Trace
from bench.elastic.mischief import ask
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.subjects import subjects
from bench.elastic.timeline import longest_gap
from bench.row import Row

__all__ = ["evictions", "shrunk"]

_WORLD, _HOGS = 4, 4
_TURNS = ("stall 2", "stall 2", "recompile", "stall 2", "evaluate 20")
_CALM_SECONDS = (1.0, 5.0)
_PEERS_SHARE = 0.2
_DEADLINE_SECONDS = 120.0


@dataclass(frozen=True)
class _Quiet:
    """What one system made of it."""

    seconds: float
    evicted: int
    steps: int
    longest: float
    """The longest time between two steps of a worker, in seconds: the mischief itself is in it."""
    done: Counter[str]
    load: float
    reasons: tuple[str, ...]
    """What the system says about those views."""


def evictions(plan: Plan) -> Report:
    """Shoal for `plan.minutes`, a fifth of that for torchft."""
    found: dict[str, _Quiet] = {}
    for subject in subjects(plan, [Torchft]):
        share = 1.0 if subject.name == Shoal.system else _PEERS_SHARE
        with subject.make(plan.fresh(Settings("", mischief=True), subject.name), _WORLD) as job:
            found[subject.name] = _endure(job, 60 * plan.minutes * share, plan.chance("evictions"))
    beside = "; ".join(
        f"{name}: {each.evicted} in {each.seconds / 60:.1f} min, {each.steps} steps"
        for name, each in found.items()
        if name != Shoal.system
    )
    ours = [each for name, each in found.items() if name == Shoal.system]
    reasons = [f"- false eviction: {reason}" for each in ours for reason in each.reasons]
    return Report([_row(each, beside) for each in ours], remarks=reasons)


def shrunk(traces: list[Trace], world: int, since_ns: int) -> int:
    """How many world sizes below `world` workers have marked since then, each step counted once, and
    each run of such steps as one."""
    sizes: dict[int, int] = {}
    for trace in traces:
        for mark in trace.applied:
            if mark.at_ns >= since_ns:
                sizes[mark.step] = min(mark.world, sizes.get(mark.step, world))
    ordered = [sizes[step] < world for step in sorted(sizes)]
    return sum(now and not before for before, now in zip([False, *ordered], ordered, strict=False))


def _row(ours: _Quiet, beside: str) -> Row:
    did = ", ".join(f"{count} x {what}" for what, count in sorted(ours.done.items()))
    spread = f"{ours.steps} steps, longest {ours.longest:.1f} s; {did}"
    what = f"false evictions in {ours.seconds / 60:.3g} min, {_HOGS} hogs"
    return Row(what, 0, ours.evicted, "views", spread, beside, load=ours.load, number="G7")


def _endure(job: Job, seconds: float, chance: random.Random) -> _Quiet:
    job.wait_steady(_WORLD)
    before = {trace.pid for trace in job.alive()}
    began_ns, asked = time.monotonic_ns(), Counter[str]()
    with _hogs():
        until, turn = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            what = _TURNS[turn % len(_TURNS)]
            turn += 1
            workers = job.alive()
            first = next((trace for trace in workers if "rank:0" in trace.events), workers[0])
            chosen = first if what.startswith("evaluate") else chance.choice(workers)
            ask(job.folder, chosen.name, what)
            asked[what.split()[0]] += 1
            job.wait(lambda: _did(job) >= asked.total(), _DEADLINE_SECONDS, what)
            time.sleep(chance.uniform(*_CALM_SECONDS))
        load = os.getloadavg()[0]
    # whoever was thought lost would have come back by then, or stands still
    job.wait_steady(_WORLD, deadline_seconds=_DEADLINE_SECONDS)
    end_ns = time.monotonic_ns()
    traces = job.traces()
    ended = len(before - {trace.pid for trace in job.alive()})
    losses = {n for trace in traces for n in trace.events if n.startswith("view:loss:")}
    evicted = max(ended + shrunk(traces, _WORLD, began_ns), len(losses))
    job.keep = evicted > 0
    return _Quiet(
        (end_ns - began_ns) / 1e9,
        evicted,
        max(trace.applied[-1].step for trace in traces),
        max(longest_gap(trace.applied, began_ns, end_ns) for trace in traces),
        asked,
        load,
        job.changes(),
    )


def _did(job: Job) -> int:
    return sum(name.startswith("did:") for trace in job.traces() for name in trace.events)


@contextlib.contextmanager
def _hogs() -> Iterator[None]:
    words = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    running = [subprocess.Popen(words, stdin=subprocess.DEVNULL) for _ in range(_HOGS)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait(10)
