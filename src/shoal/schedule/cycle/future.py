"""What is free on nodes from now on, as those who hold something come to their ends.

Who holds something gives it back at its wall time at the latest; what it has beyond its minimum, to a
job of its queue and of no lower priority, as soon as it can be asked back. Nobody comes: what is planned
is laid on top of this (`ahead`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import units_of
from shoal.schedule.placing.asks import Ints, Placement, Tasks

__all__ = ["Free", "Future", "taken"]

Floats = NDArray[np.float64]


class Free(NamedTuple):
    """On some nodes."""

    amounts: Ints
    """(m, r)."""
    parts: Ints
    """(m, g): thousandths of each GPU; below 0 where there is none."""


class _Holds(NamedTuple):
    """Tasks in a row, with the GPUs of each."""

    node: Ints
    amounts: Ints
    end: Floats
    lender: Ints
    """Who lends it, as a position in the list of lenders; -1: it is no loan."""
    slot_node: Ints
    slot: Ints
    part: Ints
    holder: Ints
    """Of each GPU, whose it is: the position of a task."""


class Future:
    """As things stand on the desk when it is made."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        room = desk.later.room
        self._lenders: list[tuple[int, int]] = []
        self._holds = self._gathered()
        self._amounts, self._parts = room.free.copy(), room.slots.astype(np.int64)
        # in `later` those are gone already whose time is over soon
        for name in sorted(desk.ending):
            there = desk.present.get(name, ())
            for tasks in desk.asked[name].placement(there):
                nodes = np.arange(len(room.free))
                used = taken([tasks], nodes, room.slots.shape[1])
                self._amounts -= used.amounts
                self._parts -= used.parts
        self._ends: dict[tuple[int, int], Floats] = {}

    def instants(
        self, asked: Asked, since: Stamp, until: Stamp, nodes: Ints | None = None
    ) -> list[Stamp]:
        """When something comes free for this job, on these nodes or anywhere, after `since` and before
        `until`, ascending."""
        ends = self._ends_for(asked)
        if nodes is not None:
            here = np.zeros(len(self._amounts), dtype=np.bool_)
            here[nodes] = True
            ends = ends[here[self._holds.node]]
        found: list[Stamp] = np.unique(ends[(ends > since) & (ends < until)]).tolist()
        return found

    def at(self, asked: Asked, instant: Stamp, nodes: Ints | None = None) -> Free:
        """What is free for this job then, on these nodes, or on all."""
        holds = self._holds
        back = self._ends_for(asked) <= instant
        if nodes is None:
            amounts, parts = self._amounts.copy(), self._parts.copy()
            node, slot_node = holds.node, holds.slot_node
        else:
            place = np.full(len(self._amounts), -1, dtype=np.int64)
            place[nodes] = np.arange(len(nodes))
            amounts, parts = self._amounts[nodes], self._parts[nodes]
            node, slot_node = place[holds.node], place[holds.slot_node]
        here = back & (node >= 0)
        np.add.at(amounts, node[here], holds.amounts[here])
        slots = back[holds.holder] & (slot_node >= 0)
        np.add.at(parts, (slot_node[slots], holds.slot[slots]), holds.part[slots])
        return Free(amounts, parts)

    def _ends_for(self, asked: Asked) -> Floats:
        """(tasks,): when each is back, if this job asks for it."""
        key = (asked.queue, asked.job.priority)
        found = self._ends.get(key)
        if found is None:
            holds, desk = self._holds, self._desk
            lends = [queue == key[0] and priority <= key[1] for queue, priority in self._lenders]
            loan = np.array([*lends, False], dtype=np.bool_)[holds.lender]
            back = np.minimum(holds.end, desk.now + desk.rules.notice_seconds)
            found = self._ends[key] = np.where(loan, back, holds.end)
        return found

    def _gathered(self) -> _Holds:
        desk = self._desk
        rows: list[tuple[Tasks, Stamp, int]] = []
        for name, there in desk.present.items():
            asked = desk.asked[name]
            ends = self._end(asked)
            for core, placement in self._parted(asked, there):
                lender = -1
                if not core:
                    lender = len(self._lenders)
                    self._lenders.append((asked.queue, asked.job.priority))
                rows += [(tasks, ends, lender) for tasks in placement if len(tasks)]
        for asked, there, begins in (*desk.kept_places(), *desk.moving()):
            ends = begins + asked.job.longest_seconds
            rows += [(tasks, ends, -1) for tasks in asked.placement(there) if len(tasks)]
        return _in_a_row(rows, len(desk.columns.resources))

    def _end(self, asked: Asked) -> Stamp:
        """When it is gone at the latest; who takes turns, when its turn is over."""
        desk, job = self._desk, asked.job
        turn, ends = desk.rules.minimum_run_seconds, desk.ends(job)
        if turn and math.isinf(ends) and job.preemptible:
            return max(desk.began(job) + turn, desk.now + desk.rules.notice_seconds)
        return max(ends, desk.now)

    def _parted(self, asked: Asked, there: Sequence[Task]) -> list[tuple[bool, Placement]]:
        """What it keeps, and what it has beyond that."""
        if there is not asked.present or asked.job.name in self._desk.ending:
            return self._parts_of(asked, there)
        known = self._desk.parted.get(asked.job.name)
        if known is None or known[0] is not asked:
            known = self._desk.parted[asked.job.name] = asked, self._parts_of(asked, there)
        return known[1]

    def _parts_of(self, asked: Asked, there: Sequence[Task]) -> list[tuple[bool, Placement]]:
        desk, job = self._desk, asked.job
        known = asked.placed if there is asked.present else None
        if not (asked.needs.elastic and job.preemptible) or job.name in desk.ending:
            return [(True, known or asked.placement(there))]
        units = units_of(asked, there, asked.queue, asked.number, desk.now)
        beyond = {(task.role, task.index) for unit in units if not unit.core for task in unit.tasks}
        if not beyond:
            return [(True, known or asked.placement(there))]
        lent = [task for task in there if (task.role, task.index) in beyond]
        staying = [task for task in there if (task.role, task.index) not in beyond]
        return [(True, asked.placement(staying)), (False, asked.placement(lent))]


def taken(placement: Sequence[Tasks], nodes: Ints, slots: int) -> Free:
    """What these tasks take on `nodes` (m,), ascending, of as many GPUs each; those on others are left
    out."""
    width = len(placement[0].shape.ask) if placement else 0
    amounts = np.zeros((len(nodes), width), dtype=np.int64)
    parts = np.zeros((len(nodes), slots), dtype=np.int64)
    for tasks in placement:
        at = np.searchsorted(nodes, tasks.node)
        here = at < len(nodes)
        here[here] = nodes[at[here]] == tasks.node[here]
        np.add.at(amounts, at[here], tasks.shape.vector)
        if tasks.shape.slots:
            np.add.at(parts, (at[here][:, None], tasks.slots[here]), tasks.shape.thousandths)
    return Free(amounts, parts)


def _in_a_row(rows: Sequence[tuple[Tasks, Stamp, int]], resources: int) -> _Holds:
    counts = np.array([len(tasks) for tasks, _, _ in rows], dtype=np.int64)
    slots = np.array([tasks.shape.slots for tasks, _, _ in rows], dtype=np.int64)
    parts = np.array([tasks.shape.thousandths for tasks, _, _ in rows], dtype=np.int64)
    vectors = np.array([tasks.shape.ask for tasks, _, _ in rows], dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    node: Ints = np.concatenate([none, *(tasks.node for tasks, _, _ in rows)])
    holder = np.repeat(np.arange(len(node)), np.repeat(slots, counts))
    return _Holds(
        node=node,
        amounts=np.repeat(vectors.reshape(len(rows), resources), counts, axis=0),
        end=np.repeat(np.array([end for _, end, _ in rows], dtype=np.float64), counts),
        lender=np.repeat(np.array([lender for _, _, lender in rows], dtype=np.int64), counts),
        slot_node=node[holder],
        slot=np.concatenate([none, *(tasks.slots.ravel() for tasks, _, _ in rows)]),
        part=np.repeat(parts, counts * slots),
        holder=holder,
    )
