"""What a step costs while nothing fails, beside plain DDP (G9).

Jobs of all systems live at the same time and take turns of some steps each, so that the machine's moods
hit all alike. A turn's figure is the median of its steps, the first few left out. Nothing sleeps in the
steps, so nothing hides in a sleep.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from bench.elastic.gate import allow
from bench.elastic.jobs.ddp import Ddp
from bench.elastic.jobs.job import Job, NotReached
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.jobs.torchft import Torchft
from bench.elastic.plan import Plan
from bench.elastic.report import Report, System
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95, ratio
from bench.elastic.timeline import step_seconds
from bench.row import Row

__all__ = ["overhead"]

_WORLD, _WARM_UP, _SKIPPED = 2, 30, 2
# turns are short and many: moods of the machine last seconds, and a pair should see the same one
_TURNS_A_ROUND = 3
_SITUATIONS = {
    "small": (Settings("", pace_seconds=0.0), 42),
    "41 MB": (Settings("", model="wide", pace_seconds=0.0, batch=16, samples=8192), 10),
}


def overhead(plan: Plan) -> Report:
    """Two workers, both models."""
    rows: list[Row] = []
    systems: list[System] = []
    remarks: list[str] = []
    for situation, (settings, steps) in _SITUATIONS.items():
        load = os.getloadavg()[0]
        turns = _turns(plan, settings, steps, remarks)
        load = max(load, os.getloadavg()[0])
        systems += [_line(situation, name, turns, load) for name in turns]
        if (ours := turns.get(Shoal.system)) is not None:
            rows += _rows(situation, ours, turns, load)
    return Report(rows, systems, remarks)


def _line(situation: str, name: str, turns: dict[str, list[float]], load: float) -> System:
    medians, plain = turns[name], turns[Ddp.system]
    remark = "" if name == Ddp.system else _beside(medians, plain)
    what, count = f"a step of 2 workers, {situation}", len(medians)
    middle = p50(medians)
    return System(what, name, count, count, middle, p95(medians), max(medians), middle, remark, load)


def _rows(situation: str, ours: list[float], turns: dict[str, list[float]], load: float) -> list[Row]:
    plain = turns[Ddp.system]
    found = ratio(ours, plain)
    others = [name for name in turns if name not in (Ddp.system, Shoal.system)]
    beside = "; ".join(
        [f"{Ddp.system}: {p50(plain) * 1e3:.2f} ms"]
        + [f"{name} {_beside(turns[name], plain)}" for name in others]
    )
    interval = f"95 % interval {(found.low - 1) * 100:.1f} to {(found.high - 1) * 100:.1f}"
    percent = (found.mean - 1) * 100
    what = f"overhead, {situation}"
    rows = [Row(what, 3.0, percent, "%", interval, beside, load=load, number="G9")]
    if situation == "small":
        extra = [(a - b) * 1e3 for a, b in zip(ours, plain, strict=True)]
        spread = f"p50 of {len(extra)}; p95 {p95(extra):.2f}"
        rows.append(Row(f"{what}, a step", 0.3, p50(extra), "ms", spread, load=load, number="G9"))
    return rows


def _beside(medians: Sequence[float], plain: Sequence[float]) -> str:
    found = ratio(medians, plain)
    return f"{(found.mean - 1) * 100:+.1f} % ({(p50(medians) - p50(plain)) * 1e3:+.2f} ms)"


def _turns(plan: Plan, settings: Settings, steps: int, remarks: list[str]) -> dict[str, list[float]]:
    """The median step of each turn, by system; `remarks` gets peers that do not get going."""
    # who may not get going goes first: a worker that waits for minutes is taken for one that hangs
    kinds: list[tuple[type[Job], str | None]] = [
        (Torchft, plan.peers), (Ddp, plan.python), (Shoal, plan.python),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        jobs: list[Job] = []
        for kind, python in kinds:
            if python is None or not (kind is Ddp or plan.wants(kind.system)):
                continue
            fresh = plan.fresh(settings, kind.system)
            allow(fresh.path, _WARM_UP)
            job = stack.enter_context(kind(fresh, _WORLD, python))
            try:
                _until(job, _WARM_UP)
            except NotReached as error:
                if kind is not Torchft:
                    raise
                job.close()
                remarks.append(f"- overhead: {error}")
                continue
            jobs.append(job)
        found: dict[str, list[float]] = {job.system: [] for job in jobs}
        for turn in range(plan.rounds * _TURNS_A_ROUND):
            end = _WARM_UP + (turn + 1) * steps
            # there and back, so that a drift within a round favours nobody
            for job in jobs if turn % 2 == 0 else reversed(jobs):
                allow(job.folder, end)
                _until(job, end)
                found[job.system].append(_median(job, end - steps + _SKIPPED, end))
    return found


def _until(job: Job, step: int) -> None:
    def reached() -> bool:
        last = [trace.applied[-1].step for trace in job.alive() if trace.applied]
        return len(last) == _WORLD and min(last) >= step

    job.wait(reached, 120, f"step {step}")


def _median(job: Job, first: int, last: int) -> float:
    """Seconds; of the worker that is slower."""
    return max(
        step_seconds([mark for mark in trace.applied if first <= mark.step <= last])
        for trace in job.alive()
    )
