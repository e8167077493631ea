"""The groups that come into use after a loss and at a planned switch: how long a worker stands (G19).

After a loss: from the moment a worker hears of the view to its group in hand. At a switch: what is left
to wait for, the group having been built meanwhile. Beside it, stock gloo: from a failed collective to
the new group, with the operating system's word on who has died.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from bench.elastic.harm import harm_anywhere
from bench.elastic.jobs.floor import Floor
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.marks import Trace
from bench.elastic.plan import Plan
from bench.elastic.report import Report
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95
from bench.elastic.timeline import recovery
from bench.row import Row

__all__ = ["rebuild"]

_WORLD = 4
_DEADLINE_SECONDS = 30.0
_MS = 1e6


def rebuild(plan: Plan) -> Report:
    """Kill and replace one of four workers, a quarter as often as the plan says."""
    chance, times = plan.chance("rebuild"), max(1, plan.kills // 4)
    load = os.getloadavg()[0]
    with _Timed(plan.fresh(Settings(""), "rebuild"), _WORLD, plan.python) as job:
        for _ in range(times):
            job.wait_steady(_WORLD)
            harm = harm_anywhere(job, chance)
            job.wait(lambda: recovery(job.traces(), harm) is not None, _DEADLINE_SECONDS, "next step")  # noqa: B023
            job.add()
        job.wait_steady(_WORLD)
        lost = _stood(job.traces(), "group:loss:")
        switched = _stood(job.traces(), "group:switch:")
    with Floor(plan.fresh(Settings(""), "rebuild"), _WORLD, plan.python) as floor:
        floor.wait_steady(_WORLD)
        harm = harm_anywhere(floor, chance)
        floor.wait(lambda: recovery(floor.traces(), harm) is not None, _DEADLINE_SECONDS, "next step")
        stock = _stood(floor.traces(), "rebuilt:")
    beside = f"stock gloo: {max(stock) / (_WORLD - 1):.1f} ms a rank"
    ranks = _WORLD - 1
    return Report([
        _row("group after a loss, a rank", 15.0, [each / ranks for each in lost], beside, load),
        # a take from a dictionary under a lock: what can be seen of nothing
        _row("group at a planned switch", 1.0, switched, "", load),
    ])  # fmt: skip


class _Timed(Shoal):
    """Its workers tell when groups come into use."""

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One worker more."""
        super().add({"BENCH_GROUPS": "1", **(environment or {})})


def _row(what: str, goal: float, values: list[float], beside: str, load: float) -> Row:
    return Row(
        what, goal, p95(values), "ms", f"p95 of {len(values)}; p50 {p50(values):.2f}", beside, load=load,
        number="G19",
    )  # fmt: skip


def _stood(traces: Iterable[Trace], prefix: str) -> list[float]:
    """Milliseconds: the last field of the events with this prefix."""
    names = [name for trace in traces for name in trace.events if name.startswith(prefix)]
    return [int(name.rpartition(":")[2]) / _MS for name in names]
