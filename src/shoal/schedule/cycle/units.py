"""What a running job may give up at once: each surplus task by itself, and then all that it needs.

Surplus of a job gives way to a job of the same priority in its own queue, which has nothing yet; what a
job needs gives way to higher priorities, and to equals once its turn is over. So in the laws of `shares`
priorities count fourfold: surplus stands one below, a job whose turn is over two. Numbers of jobs are
left out: nobody's job goes so that another may be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Job, Task
from shoal.schedule.placing.asks import Placement
from shoal.schedule.shares.laws import Claim, Holding
from shoal.schedule.shares.offers import Kind

__all__ = ["Unit", "claim_of", "is_surplus", "own_priority", "units_of"]


class Unit(msgspec.Struct, frozen=True, dict=True, eq=False):
    """Goes at once."""

    asked: Asked
    tasks: tuple[Task, ...]
    holding: Holding
    core: bool
    """Without it the job is below its minimum: all the rest goes too."""

    @cached_property
    def placement(self) -> Placement:
        """Of the tasks; roles of which none goes are left out."""
        return tuple(tasks for tasks in self.asked.placement(self.tasks) if len(tasks))

    @cached_property
    def nodes(self) -> frozenset[int]:
        """Where they are."""
        return frozenset(node for tasks in self.placement for node in tasks.node.tolist())


def claim_of(asked: Asked, queue: int, amounts: tuple[float, ...], number: int) -> Claim:
    """What a job asks for."""
    return Claim(queue, (*amounts[:-1], 0.0), priority=own_priority(asked.job), job=number)


def own_priority(job: Job, *, surplus: bool = False, turn_over: bool = False) -> int:
    """In the laws."""
    return 4 * job.priority - int(surplus) - 2 * int(turn_over)


def is_surplus(kind: Kind) -> bool:
    """Whether holdings of this kind are surplus."""
    return bool(kind[0] % 2)


def units_of(
    asked: Asked,
    present: Sequence[Task],
    queue: int,
    number: int,
    began: Stamp,
    *,
    turn_over: bool = False,
) -> list[Unit]:
    """Of a job with these tasks, which it `began` to hold then, in the order in which it gives them up:
    of the role listed last the highest index first. A task that may not be taken keeps its job's
    minimum from being taken too. Once its turn is over, all of the job gives way to equals. One that
    has lost some of its minimum has nothing beyond it, of whatever role."""
    job = asked.job
    if not job.preemptible:
        return []
    if len(present) == 1 and any(asked.minimum) and present[0].preemptible:
        # most jobs are of one task, and it is all of its job's minimum that there is
        return [_unit(asked, (*present,), queue, number, began, core=True, turn_over=turn_over)]
    spare = dict(zip((role.name for role in job.roles), asked.counts(present), strict=True))
    for role, least in zip(job.roles, asked.minimum, strict=True):
        spare[role.name] -= least
    if min(spare.values(), default=0) < 0:
        spare = dict.fromkeys(spare, 0)
    rank = {role.name: at for at, role in enumerate(job.roles)}
    staying: list[Task] = []
    units: list[Unit] = []
    for task in sorted(present, key=lambda each: (-rank[each.role], -each.index)):
        if task.preemptible and spare[task.role] > 0:
            spare[task.role] -= 1
            units.append(_unit(asked, (task,), queue, number, began, core=False))
        else:
            staying.append(task)
    if staying and all(task.preemptible for task in staying):
        units.append(_unit(asked, tuple(staying), queue, number, began, core=True, turn_over=turn_over))
    return units


def _unit(
    asked: Asked,
    tasks: tuple[Task, ...],
    queue: int,
    number: int,
    began: Stamp,
    *,
    core: bool,
    turn_over: bool = False,
) -> Unit:
    job = asked.job
    amounts = asked.ask(asked.counts(tasks), new=False)
    priority = own_priority(job, surplus=not core, turn_over=turn_over)
    return Unit(asked, tasks, Holding(queue, amounts, priority, began, number), core)
