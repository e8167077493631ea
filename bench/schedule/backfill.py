"""The plan in time: so many waiting jobs beside 5,000 that run, on 100,000 GPUs.

`python -m bench.schedule.backfill`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from bench.row import Row, table
from bench.schedule.timing import cpu_seconds, row
from shoal.schedule.backfill.asks import Capacity, Settings, Waiting, Work
from shoal.schedule.backfill.plan import Plan, Verdict, plan

__all__ = ["rows"]

_RUNNING = 5000
_NOW = 1_800_000_017.0
_GRID = Settings()
_EXACT = Settings(resolution_seconds=0)


def rows() -> list[Row]:
    """New jobs at three depths, exact instants, dates promised before, and three resources."""
    one, three = (20,), (20, 160, 1280)
    found = [
        _row("plan, depth 100", 1, *_world(100, one), _GRID, 40),
        _row("plan, depth 1,000", 20, *_world(1000, one), _GRID, 20),
        _row("plan, depth 5,000", 100, *_world(5000, one), _GRID, 9),
        _row("plan, depth 5,000, no rounding", 100, *_world(5000, one), _EXACT, 9),
        _row("plan, depth 5,000, three resources", 100, *_world(5000, three), _GRID, 9),
    ]
    capacity, work, waiting = _world(5000, one)
    made = plan(capacity, work, waiting, _GRID, _NOW)
    found.append(
        _row("again, 5,000 dates promised", 100, capacity, work, _promised(waiting, made), _GRID, 9)
    )
    early = work.end.copy()
    early[:50] = _NOW + 1
    sooner = replace(work, end=early)
    found.append(
        _row(
            "again, 50 of what runs end early", 100, capacity, sooner, _promised(waiting, made), _GRID, 5
        )
    )
    return found


def _row(
    what: str,
    goal: float,
    capacity: Capacity,
    work: Work,
    waiting: Waiting,
    settings: Settings,
    times: int,
) -> Row:
    made: list[Plan] = []
    taken = cpu_seconds(
        lambda: made.append(plan(capacity, work, waiting, settings, _NOW)), repeats=times
    )
    starts = len(made[-1].having(Verdict.START))
    beside = f"{made[-1].evaluations} searches, {len(made[-1].pools[0].times)} instants, {starts} start"
    beside += "; Slurm's guide: depth 100 each 30 s"
    return row(what, goal, "ms", taken, beside)


def _world(depth: int, each: tuple[int, ...]) -> tuple[Capacity, Work, Waiting]:
    """Everything is in use; amounts are powers of two of GPUs, with so much of the others as suits."""
    random = np.random.default_rng(0)
    shares = np.array(each) // each[0]
    amounts = _sizes(random, _RUNNING)[:, np.newaxis] * shares
    end = _NOW + random.uniform(60, 86_400, _RUNNING)
    end[::100] = math.inf
    capacity = Capacity(
        amounts.sum(axis=0)[np.newaxis], np.zeros(0, np.int64), np.zeros((1, len(each)), int)
    )
    none = np.zeros((_RUNNING, 0), np.int64)
    work = Work(np.zeros(_RUNNING, np.int64), amounts, none, end)
    asked = _sizes(random, depth)[:, np.newaxis] * np.maximum(
        shares // random.integers(1, 3, len(each)), 1
    )
    waiting = Waiting(
        key=np.arange(depth),
        rank=np.zeros(depth, np.int64),
        amounts=asked,
        pools=np.ones((depth, 1), np.bool_),
        shared=np.zeros((depth, 0), np.int64),
        seconds=random.integers(5, 1440, depth) * 60.0,
        promised=np.full(depth, math.inf),
        promised_pool=np.full(depth, -1),
        fixed=np.zeros(depth, np.bool_),
        starved=np.zeros(depth, np.bool_),
    )
    return capacity, work, waiting


def _sizes(random: np.random.Generator, count: int) -> np.ndarray:
    return (2 ** random.choice(8, count, p=[0.3, 0.15, 0.15, 0.2, 0.1, 0.05, 0.03, 0.02])).astype(
        np.int64
    )


def _promised(waiting: Waiting, made: Plan) -> Waiting:
    return replace(waiting, promised=made.start, promised_pool=made.pool)


def main() -> None:
    """Print the table."""
    print(table(rows()))


if __name__ == "__main__":
    main()
