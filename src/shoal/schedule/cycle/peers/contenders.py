"""Jobs as other people's policies see them: so many GPUs, on these nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from shoal.schedule.allot import Contender, Nodes
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.sizes.outlook import check, elastic_role, remaining, run_seconds, speed
from shoal.schedule.cycle.sizes.slots import Unit, smallest
from shoal.schedule.placing.asks import Shape

__all__ = ["Field", "field"]


@dataclass(frozen=True)
class Field:
    """Everybody who takes part, in the order of submission, and what there is."""

    unit: Unit
    asked: list[Asked]
    contenders: list[Contender]
    capacity: list[int]
    """Units of each node: those free and those held."""

    def counts(self, at: int, units: int) -> tuple[int, ...]:
        """So many units of that job as tasks of each role: its minimum at least, nothing for none."""
        asked, contender = self.asked[at], self.contenders[at]
        if not units:
            return (0,) * len(asked.shapes)
        if units >= contender.size:
            return asked.maximum
        left = units - contender.least
        counts: list[int] = []
        for shape, low, high in zip(asked.shapes, asked.minimum, asked.maximum, strict=True):
            width = self.unit.width(shape)
            more = max(0, min(high - low, left // width))
            left -= more * width
            counts.append(low + more)
        return tuple(counts)


def field(desk: Desk, waiting: Sequence[Asked]) -> Field | None:
    """Of those who hold something or are kept a place, and of those who wait. None: there is nobody.

    Raises ValueError for curves and amounts of work that cannot be.
    """
    kept = {asked.job.name: asked.job.reserved for asked, _ in desk.kept_for()}
    waits = {asked.job.name for asked in waiting}
    asked = [
        each
        for name, each in desk.asked.items()
        if name in desk.present or name in kept or name in waits
    ]
    if not asked:
        return None
    asked.sort(key=lambda each: (each.job.created, each.job.name))
    unit = smallest(_main(each) for each in asked)
    capacity = [int(free) for free in unit.free(desk.later.room)]
    contenders: list[Contender] = []
    for each in asked:
        name = each.job.name
        nodes = _nodes(desk, unit, each, (*desk.present.get(name, ()), *kept.get(name, ())))
        for node in nodes:
            capacity[node] += 1
        contenders.append(_contender(desk, unit, each, nodes))
    return Field(unit, asked, contenders, capacity)


def _main(asked: Asked) -> Shape:
    """What its size is counted in: the role that may be more or fewer, else its largest tasks."""
    role = elastic_role(asked.job)
    if role is not None:
        return asked.shapes[asked.job.roles.index(role)]
    return max(asked.shapes, key=lambda shape: (shape.gpus, shape.share, shape.ask))


def _nodes(desk: Desk, unit: Unit, asked: Asked, tasks: Sequence[Task]) -> Nodes:
    """Where it holds units; who holds anything holds one."""
    found: list[int] = []
    for role in asked.placement(tasks):
        each = math.floor(unit.parts(role.shape) + 0.5)
        where: list[int] = role.node.tolist()
        found += [node for node in where for _ in range(each)]
    if tasks and not found:
        found = [desk.columns.node_at[task.node] for task in tasks if task.node in desk.columns.node_at][
            :1
        ]
    return tuple(sorted(found))


def _contender(desk: Desk, unit: Unit, asked: Asked, nodes: Nodes) -> Contender:
    job = asked.job
    check(job)
    size = max(1, unit.units(asked, asked.maximum))
    role = elastic_role(job)
    width = 1 if role is None else unit.width(asked.shapes[job.roles.index(role)])
    tasks = sum(asked.maximum) if role is None else role.maximum

    def step_seconds(units: int) -> float:
        fast = speed(job, max(1, units // width))
        return 1.0 / fast if fast > 0 else 1.0

    return Contender(
        name=job.name,
        submitted=job.created,
        size=size,
        least=max(1, unit.units(asked, asked.minimum)),
        most=size,
        nodes=nodes,
        service=job.service(desk.now),
        run_seconds=partial(run_seconds, job, tasks, desk.now),
        step_seconds=step_seconds,
        steps_left=lambda: remaining(job) or 0.0,
        restart=job.restart_seconds,
    )
