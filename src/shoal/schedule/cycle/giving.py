"""What jobs give back for no one: those that are suspended or out of time, tasks beyond what a job may
have, and tasks on nodes that they may not be on any more."""

from __future__ import annotations

from shoal.objects.node import Taint
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Node, Task
from shoal.schedule.taints import tolerates

__all__ = ["give_back"]


def give_back(desk: Desk) -> None:
    """Before anything is given out."""
    drained = {node.name: node for node in desk.cluster.nodes if any(map(_drains, node.taints))}
    for name in list(desk.present):
        asked = desk.asked[name]
        present, job = desk.present[name], asked.job
        if job.suspended:
            desk.depart(asked, present, "", "Suspended")
        elif job.wall_seconds is not None and desk.now >= job.since + job.wall_seconds:
            desk.depart(asked, present, "", "WallTime", wallSeconds=job.wall_seconds)
        else:
            if asked.too_many:
                _too_many(desk, asked)
            if drained:
                _drained(desk, asked, drained)


def _too_many(desk: Desk, asked: Asked) -> None:
    """The highest indices go."""
    over: list[Task] = []
    for role in asked.job.roles:
        mine = sorted(
            (task for task in desk.present[asked.job.name] if task.role == role.name),
            key=lambda task: task.index,
        )
        over += mine[role.maximum :]
    if over:
        desk.depart(asked, over, "", "Shrunk")


def _drained(desk: Desk, asked: Asked, drained: dict[str, Node]) -> None:
    roles = {role.name: role for role in asked.job.roles}
    going = [
        task
        for task in desk.present.get(asked.job.name, ())
        if task.node in drained
        and not all(
            tolerates(roles[task.role].tolerations, taint)
            for taint in drained[task.node].taints
            if _drains(taint)
        )
    ]
    if going:
        nodes = sorted({task.node for task in going})
        desk.depart(asked, going, "", "NodeDrained", nodes=nodes)


def _drains(taint: Taint) -> bool:
    return taint.effect == "NoExecute"
