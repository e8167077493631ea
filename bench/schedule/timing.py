"""What a piece of a decision costs: processor time of this thread, so that other work matters little."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.row import Row, p50, p95

__all__ = ["cpu_seconds", "row"]

_SCALES = {"ms": 1e3, "us": 1e6}


def cpu_seconds(
    work: Callable[[], object], undo: Callable[[], object] = lambda: None, repeats: int = 30
) -> list[float]:
    """Of each repetition, the first left out; `undo` after each is not counted."""
    took: list[float] = []
    for _ in range(repeats + 1):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
        undo()
    return took[1:]


def row(what: str, goal: float, unit: str, took: list[float], beside: str = "") -> Row:
    """Median and p95 of `took` (seconds) in ms or us."""
    scale = _SCALES[unit]
    return Row(what, goal, p50(took) * scale, unit, f"p95 {p95(took) * scale:.3g} {unit}", beside)
