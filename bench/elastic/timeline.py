"""From the workers' lines and the time of a signal to figures. Pure.

A pause is the time from the signal to the last survivor's return from the first `optimizer.step()`
that applied a step without the victim. It includes that step; the median step time is given apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.elastic.marks import Mark, Trace

__all__ = ["Harm", "Recovery", "longest_gap", "recovery", "step_seconds"]

_WINDOW = 40


@dataclass(frozen=True)
class Harm:
    """A signal to one worker: to whom, when, and how many workers the job had."""

    pid: int
    at_ns: int
    world: int
    replaced: bool = False
    """The system itself starts a new worker for the lost one: as many as before go on."""


@dataclass(frozen=True)
class Recovery:
    """What a harm cost."""

    pause_seconds: float
    """From the signal to the last survivor's next applied step, that step included."""
    step_seconds: float
    """The median step before."""
    redone: int
    """Steps that had been applied before and were computed and applied again."""
    discarded: int
    """Passes of the loop after the signal that applied nothing."""
    skipped: int
    """Step numbers that nobody applied."""
    restarted: int
    """Workers that are other processes than before, the victim's replacement not counted."""

    @property
    def lost_seconds(self) -> float:
        """The pause without the step that would have been made anyway."""
        return max(0.0, self.pause_seconds - self.step_seconds)


def step_seconds(marks: Sequence[Mark]) -> float:
    """The median time between neighbouring marks; 0 with fewer than two."""
    gaps = [(later.at_ns - earlier.at_ns) / 1e9 for earlier, later in pairwise(marks)]
    return statistics.median(gaps) if gaps else 0.0


def longest_gap(marks: Sequence[Mark], begin_ns: int, end_ns: int) -> float:
    """The longest time in seconds between neighbouring marks of which either lies in [begin, end)."""
    gaps = [
        (later.at_ns - earlier.at_ns) / 1e9
        for earlier, later in pairwise(marks)
        if earlier.at_ns < end_ns and later.at_ns >= begin_ns
    ]
    return max(gaps, default=0.0)


def recovery(traces: Iterable[Trace], harm: Harm) -> Recovery | None:
    """What followed a harm; None while the survivors, or whoever replaces them, have not all gone on.

    If a process that was there before and is not the victim applies a step in a smaller world, all of
    them must (an elastic job). Otherwise as many new processes must have applied a step as the job
    should have workers then (a job that restarts). `traces` may hold processes that ended before.
    """
    traces = list(traces)
    before = [trace for trace in traces if _at_work(trace, harm)]
    survivors = [trace for trace in before if trace.pid != harm.pid]
    firsts = [_first_without(trace, harm) for trace in survivors]
    found = [mark for mark in firsts if mark is not None]
    restarted = 0
    if len(found) < len(survivors) or not survivors:
        newcomers = [trace for trace in traces if trace.applied and trace.applied[0].at_ns > harm.at_ns]
        found = [trace.applied[0] for trace in newcomers]
        if len(found) < harm.world - (not harm.replaced):
            return None
        restarted = harm.world - 1
    reached = max(
        (mark.step for trace in before for mark in trace.applied if mark.at_ns <= harm.at_ns), default=0
    )
    last_pause = max(mark.at_ns for mark in found)
    return Recovery(
        pause_seconds=(last_pause - harm.at_ns) / 1e9,
        step_seconds=statistics.median(_pace(trace, harm) for trace in before),
        redone=_redone(survivors, found, reached, harm, restarted=bool(restarted)),
        discarded=max((_discarded(trace, harm, last_pause) for trace in survivors), default=0),
        skipped=_skipped(traces, reached, max(mark.step for mark in found)),
        restarted=restarted,
    )


def _at_work(trace: Trace, harm: Harm) -> bool:
    """It applied a step before the harm, with the whole job, and not long ago."""
    earlier = [mark for mark in trace.applied if mark.at_ns <= harm.at_ns]
    if not earlier or earlier[-1].world != harm.world:
        return False
    quiet = (harm.at_ns - earlier[-1].at_ns) / 1e9
    return quiet < 1 + 20 * step_seconds(earlier[-_WINDOW:])


def _first_without(trace: Trace, harm: Harm) -> Mark | None:
    for mark in trace.applied:
        if mark.at_ns > harm.at_ns and mark.world < harm.world:
            return mark
    return None


def _pace(trace: Trace, harm: Harm) -> float:
    earlier = [mark for mark in trace.applied if mark.at_ns <= harm.at_ns]
    return step_seconds(earlier[-_WINDOW:])


def _redone(
    survivors: Sequence[Trace], found: Sequence[Mark], reached: int, harm: Harm, *, restarted: bool
) -> int:
    if restarted:
        return max(0, reached - min(mark.step for mark in found) + 1)
    again = 0
    for trace in survivors:
        had = {mark.step for mark in trace.applied if mark.at_ns <= harm.at_ns}
        again = max(again, sum(m.step in had for m in trace.applied if m.at_ns > harm.at_ns))
    return again


def _discarded(trace: Trace, harm: Harm, until_ns: int) -> int:
    return sum(not mark.applied and harm.at_ns < mark.at_ns <= until_ns for mark in trace.marks)


def _skipped(traces: Sequence[Trace], reached: int, until: int) -> int:
    made = {mark.step for trace in traces for mark in trace.applied}
    return sum(step not in made for step in range(reached + 1, until))
