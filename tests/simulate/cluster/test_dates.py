"""A date that was told never moves later where nothing happens that it does not hold for: one class,
nobody lost, everybody ends by its wall time."""

from __future__ import annotations

from random import Random

import pytest

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules
from shoal.schedule.cycle.steps import Reserve, Start
from shoal.simulate.cluster.world import World

_SLACK = 1e-6


class Dates:
    """Jobs that come, run for as long as they said or a part of it, and grow where they may."""

    def __init__(self, seed: int, gpus: int, *, elastic: bool) -> None:
        self._draw = draw = Random(seed)
        self._gpus, self._elastic = gpus, elastic
        count = draw.randint(2, 5)
        self._total = count * gpus
        nodes = tuple(Node(name=f"n{at}", gpus=gpus) for at in range(count))
        queue = Queue(name="default", nominal={"gpu": float(self._total)})
        rules = Rules(consolidate=False, starving_seconds=1e9)
        self.world = World(Cluster(nodes=nodes, queues=(queue,)), rules)
        self.now = 0.0
        self._ends: dict[str, float] = {}
        self._promised: dict[str, float] = {}
        self._again: float | None = None
        self._arrives = 5.0
        self._count = 0

    def moved(self) -> str:
        """The first date that moved later, in a sentence; empty: none."""
        for _ in range(160):
            if found := self._step():
                return found
        return ""

    def _step(self) -> str:
        world = self.world
        moments = [self._arrives, *self._ends.values()]
        if self._again is not None:
            moments.append(self._again)
        self.now = max(self.now, min(moments))
        for name in [name for name, end in self._ends.items() if end <= self.now]:
            world.finish(name, self.now)
            del self._ends[name]
        for name in list(world.jobs):
            world.gone(name)
        if self._arrives <= self.now:
            self._arrives = self.now + self._draw.choice([5.0, 20.0, 60.0])
            if self._count < 25:
                self._count += 1
                world.submit(self._job())
        plan = world.decide(self.now)
        later = plan.again_at is not None and plan.again_at > self.now
        self._again = plan.again_at if later else None
        for step in plan.steps:
            if isinstance(step, Reserve) and step.at is not None:
                told = self._promised.setdefault(step.job, step.at)
                if step.at > max(told, self.now) + _SLACK:
                    return f"{step.job} was told {told:g}, and at {self.now:g} {step.at:g}"
                self._promised[step.job] = min(told, step.at)
            elif isinstance(step, Start):
                wall = world.jobs[step.job].wall_seconds or 0.0
                self._ends[step.job] = self.now + wall * self._draw.choice([1.0, 1.0, 0.5, 0.3])
        for name, job in world.jobs.items():
            if not job.tasks and self._promised.get(name, self.now) < self.now - _SLACK:
                return f"{name} was told {self._promised[name]:g}, and waits at {self.now:g}"
        return ""

    def _job(self) -> Job:
        draw = self._draw
        gpus = draw.randint(1, self._gpus)
        least = draw.randint(1, max(1, self._total // gpus))
        most = least + (draw.randint(0, 4) if self._elastic else 0)
        return Job(
            name=f"j{self._count:02}",
            created=self.now,
            wall_seconds=draw.choice([60.0, 100.0, 200.0]),
            roles=(Role(minimum=least, maximum=most, gpus=gpus),),
        )


@pytest.mark.slow
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("gpus", [1, 4])
def test_a_date_does_not_move(gpus: int, elastic: bool) -> None:
    """scheduling 1.1."""
    assert Dates(0, gpus, elastic=elastic).moved() == ""


@pytest.mark.soak
@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize("elastic", [False, True])
def test_no_date_moves_in_60_clusters(gpus: int, elastic: bool) -> None:
    """Also where room is in pieces: nodes of four GPUs, and tasks that ask for one to four."""
    found = [
        f"seed {seed}: {each}"
        for seed in range(60)
        if (each := Dates(seed, gpus, elastic=elastic).moved())
    ]
    assert not found, "\n".join(found)
