"""From the lines of a job that became larger to figures. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.elastic.marks import Trace
from bench.elastic.timeline import longest_gap, step_seconds

__all__ = ["Growth", "growth"]


@dataclass(frozen=True)
class Growth:
    """What it took to become more. Seconds, but for `redone`."""

    stall: float
    """The longest step of a member from the newcomers' first word to the first step of all, less its
    median step while they loaded. If all were restarted: from the last old step to the first new one."""
    contributing: float
    """From the newcomers' start (or leave to join) to the last one's first step, without its imports."""
    step_before: float
    step_loading: float
    step_after: float
    redone: int
    """Steps made before that were made again."""


def growth(before: Sequence[Trace], new: Sequence[Trace], began_ns: int, *, warm: bool) -> Growth:
    """Of the members of before, and newcomers that have applied a few steps each. Newcomers were
    started, or warm standbys given leave, at `began_ns`."""
    loaded_ns = began_ns if warm else min(trace.events["imported"] for trace in new)
    last_ns, imported_ns = max((trace.applied[0].at_ns, trace.events["imported"]) for trace in new)
    stayed = [trace for trace in before if trace.applied[-1].at_ns >= last_ns]
    world = max(mark.world for trace in new for mark in trace.applied)
    reached = max(m.step for trace in before for m in trace.applied if m.at_ns <= last_ns)
    if stayed:
        stall, redone = max(_stall(trace, began_ns, loaded_ns, world) for trace in stayed), 0
    else:
        stall = (last_ns - max(trace.applied[-1].at_ns for trace in before)) / 1e9
        redone = max(0, reached - min(trace.applied[0].step for trace in new) + 1)
    return Growth(
        stall=stall,
        contributing=(last_ns - (began_ns if warm else imported_ns)) / 1e9,
        step_before=statistics.median(_pace(trace, 0, began_ns) for trace in before),
        step_loading=statistics.median(_normal(trace, began_ns, loaded_ns) for trace in before),
        step_after=statistics.median(_pace(trace, last_ns, 1 << 62) for trace in new),
        redone=redone,
    )


def _stall(trace: Trace, began_ns: int, loaded_ns: int, world: int) -> float:
    """Up to the first step of all: later ones are longer only because more workers share the cores."""
    full_ns = next(mark.at_ns for mark in trace.applied if mark.world == world)
    return longest_gap(trace.applied, loaded_ns, full_ns) - _normal(trace, began_ns, loaded_ns)


def _normal(trace: Trace, began_ns: int, loaded_ns: int) -> float:
    """While newcomers load; a warm standby has loaded before, in nobody's way."""
    return _pace(trace, began_ns, loaded_ns) or _pace(trace, 0, began_ns)


def _pace(trace: Trace, begin_ns: int, end_ns: int) -> float:
    return step_seconds([mark for mark in trace.applied if begin_ns <= mark.at_ns < end_ns][-60:])
