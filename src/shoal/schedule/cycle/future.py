"""What is free on nodes from now on, as those who hold something come to their ends.

Who holds something gives it back at its wall time at the latest; what it has beyond its minimum, to a
job of its queue and of no lower priority, as soon as it can be asked back. Nobody comes: what is planned
is laid on top of this (`ahead`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.holds import Holds, Piece, core, pieces_of
from shoal.schedule.placing.asks import Ints, Tasks

__all__ = ["Free", "Future", "taken"]

Floats = NDArray[np.float64]


class Free(NamedTuple):
    """On some nodes."""

    amounts: Ints
    """(m, r)."""
    parts: Ints
    """(m, g): thousandths of each GPU; below 0 where there is none."""


class Future:
    """On some nodes, from what is free there now, and who holds what there until when."""

    def __init__(self, now: Free, holds: Holds, asked_back: Stamp) -> None:
        """`holds`: on nodes by their positions among these. `asked_back`: when a loan is, at the
        latest."""
        self._now, self._holds = now, holds
        self._asked_back = asked_back
        self._ends: dict[tuple[int, int], Floats] = {}
        self._on: dict[bytes, Future] = {}

    @classmethod
    def of(cls, desk: Desk) -> Future:
        """On all nodes, as things stand on the desk."""
        room, soon = desk.later.room, desk.now + desk.rules.notice_seconds
        now = Free(room.free.copy(), room.slots.astype(np.int64))
        # in `later` those are gone already whose time is over soon
        for name in desk.ending:
            for tasks in desk.asked[name].placement(desk.present.get(name, ())):
                np.subtract.at(now.amounts, tasks.node, tasks.shape.vector)
                if tasks.shape.slots:
                    np.subtract.at(
                        now.parts, (tasks.node[:, None], tasks.slots), tasks.shape.thousandths
                    )
        return cls(now, _holds(desk), soon)

    def on(self, nodes: Ints | None) -> Future:
        """On these of them alone, (m,) ascending; None: on all of them."""
        if nodes is None:
            return self
        key = nodes.tobytes()
        found = self._on.get(key)
        if found is None:
            at = self._holds.node
            first: Ints = np.searchsorted(at, nodes)
            last: Ints = np.searchsorted(at, nodes, side="right")
            counts = last - first
            rows: Ints = np.repeat(last - np.cumsum(counts), counts) + np.arange(int(counts.sum()))
            holds = self._holds.only(rows)._replace(node=np.repeat(np.arange(len(nodes)), counts))
            now = Free(self._now.amounts[nodes], self._now.parts[nodes])
            found = self._on[key] = Future(now, holds, self._asked_back)
        return found

    def instants(self, asked: Asked, since: Stamp, until: Stamp) -> list[Stamp]:
        """When something comes free for this job after `since` and before `until`, ascending."""
        ends = self._ends_for(asked)
        found: list[Stamp] = np.unique(ends[(ends > since) & (ends < until)]).tolist()
        return found

    def at(self, asked: Asked, instant: Stamp) -> Free:
        """What is free for this job then."""
        now, back = self._now, self.back([(asked, instant)])
        return Free(now.amounts + back.amounts[0], now.parts + back.parts[0])

    def back(self, whom: Sequence[tuple[Asked, Stamp]]) -> Free:
        """What of it has come free for each of these jobs by its instant: (k, m, r) and (k, m, g)."""
        holds, now, nodes = self._holds, self._now, len(self._now.amounts)
        amounts = np.zeros((len(whom) * nodes, now.amounts.shape[1]), dtype=np.int64)
        parts = np.zeros((len(whom) * nodes, now.parts.shape[1]), dtype=np.int64)
        back = [self._ends_for(asked) <= instant for asked, instant in whom]
        which, row = np.nonzero(np.stack(back))
        if len(row):
            at = which * nodes + holds.node[row]
            first = np.flatnonzero(np.diff(at, prepend=-1))
            amounts[at[first]] = np.add.reduceat(holds.amounts[row], first, axis=0)
            parts[at[first]] = np.add.reduceat(holds.parts[row], first, axis=0)
        return Free(
            amounts.reshape(len(whom), *now.amounts.shape), parts.reshape(len(whom), *now.parts.shape)
        )

    def _ends_for(self, asked: Asked) -> Floats:
        """(tasks,): when each is back, if this job asks for it."""
        key = (asked.queue, asked.job.priority)
        found = self._ends.get(key)
        if found is None:
            holds = self._holds
            loan = (holds.lender == key[0]) & (holds.priority <= key[1])
            found = np.where(loan, np.minimum(holds.end, self._asked_back), holds.end)
            self._ends[key] = found
        return found


def _holds(desk: Desk) -> Holds:
    """Until when: who takes turns, until its turn is over."""
    as_rows_say: dict[str, Asked] = {}
    others: list[Piece] = []
    for name, there in desk.present.items():
        asked = desk.asked[name]
        if name in desk.ending:
            others += core(asked, asked.placement(there), desk.began(asked.job))
        elif there is asked.present:
            as_rows_say[name] = asked
        else:
            others += pieces_of(asked, there, desk.began(asked.job))
    for asked, there, begins in (*desk.kept_places(), *desk.moving()):
        others += core(asked, asked.placement(there), begins, turns=False)
    holds = desk.held.by(as_rows_say)
    if others:
        holds = holds.joined(desk.held.gathered(others))
    turn, soon = desk.rules.minimum_run_seconds, desk.now + desk.rules.notice_seconds
    end = np.maximum(holds.end, desk.now)
    if turn:
        end = np.minimum(end, np.maximum(holds.turn + turn, soon))
    return holds._replace(end=end)


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
