"""Allreduce beside raw gloo, and backward passes of 157 parameters beside buckets by hand (G10, G11).

A pair is one call of each, in the same processes, after a barrier, in changing order; it counts with the
time of its slowest worker.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from bench.elastic.jobs.floor import start_store
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.plan import Plan
from bench.elastic.report import Report, System
from bench.elastic.settings import Settings
from bench.elastic.spread import p50, p95, ratio
from bench.row import Row

__all__ = ["allreduce"]

_WORLDS = (2, 4)
_WAYS = ("Shoal", "25 MiB buckets by hand", "DDP, views")
_DEADLINE_SECONDS = 300.0


class _Pairs(Shoal):
    """A job whose workers measure, and end by themselves."""

    rounds = 20

    def start(self) -> None:
        """A store for the raw groups, the coordinator, the workers."""
        self.start_coordinator()
        told = {"BENCH_STORE": start_store(self), "BENCH_WORLD": str(self.world)}
        told |= {"BENCH_ROUNDS": str(self.rounds), "SHOAL_ELASTIC": str(self.folder)}
        for rank in range(self.world):
            name = f"worker-{rank}"
            own = {"BENCH_RANK": str(rank), "SHOAL_ELASTIC_NAME": name}
            self.worker("collectives", name, {**told, **own})

    def results(self) -> list[_Result]:
        """What each worker has measured, once all have.

        Raises:
            NotReached: they have not in time.
        """
        paths = [self.folder / f"times.{rank}.json" for rank in range(self.world)]

        self.wait(lambda: all(path.exists() for path in paths), _DEADLINE_SECONDS, "times")
        return [_Result(**json.loads(path.read_text())) for path in paths]


@dataclass(frozen=True)
class _Result:
    """One worker's: seconds of each turn by MiB [group, raw, job.allreduce, raw and a copy], and of each
    pass by way."""

    sizes: dict[str, list[list[float]]]
    passes: list[list[float]]


def allreduce(plan: Plan) -> Report:
    """With two workers and with four."""
    rows: list[Row] = []
    systems: list[System] = []
    for world in _WORLDS:
        job = _Pairs(plan.fresh(Settings(""), "allreduce"), world, plan.python)
        job.rounds = plan.rounds
        with job:
            found = job.results()
        load = os.getloadavg()[0]
        for size in found[0].sizes:
            times = _slowest([each.sizes[size] for each in found])
            rows += _speeds(world, int(size), times, load)
        passes = _slowest([each.passes for each in found])
        rows.append(_backward(world, passes, load))
        systems += [_line(world, way, times, load) for way, times in zip(_WAYS, passes, strict=True)]
    return Report(rows, systems)


def _slowest(workers: list[list[list[float]]]) -> list[list[float]]:
    """Of [worker][turn][way]: [way][turn], each the slowest worker's."""
    turns = [[max(each) for each in zip(*turn, strict=True)] for turn in zip(*workers, strict=True)]
    return [list(way) for way in zip(*turns, strict=True)]


def _speeds(world: int, size: int, times: list[list[float]], load: float) -> list[Row]:
    ours, raw, script, copied = times
    rows: list[Row] = []
    for what, unit, mine, other, name in (
        ("allreduce", "% of raw", ours, raw, "raw gloo"),
        ("job.allreduce", "% of both", script, copied, "raw gloo and a copy"),
    ):
        found = ratio(other, mine)
        interval = f"95 % interval {found.low * 100:.1f} to {found.high * 100:.1f}"
        beside = f"{name}: {size / 1024 / p50(other):.2f} GiB/s"
        rows.append(
            Row(
                f"{what} of {size} MiB, {world} workers", 97.0, found.mean * 100, unit, interval, beside,
                higher=True, load=load, number="G10",
            )
        )  # fmt: skip
    return rows


def _backward(world: int, passes: list[list[float]], load: float) -> Row:
    found = ratio(passes[0], passes[1])
    interval = f"95 % interval {(found.low - 1) * 100:.1f} to {(found.high - 1) * 100:.1f}"
    beside = "; ".join(
        f"{way}: {p50(times) * 1e3:.0f} ms" for way, times in zip(_WAYS[1:], passes[1:], strict=True)
    )
    what = f"157 tensors, 90 MiB, {world} workers, over buckets"
    return Row(what, 5.0, (found.mean - 1) * 100, "%", interval, beside, load=load, number="G11")


def _line(world: int, way: str, times: list[float], load: float) -> System:
    what, count, middle = f"backward of 157 tensors, {world} workers", len(times), p50(times)
    return System(what, way, count, count, middle, p95(times), max(times), middle, "", load)
