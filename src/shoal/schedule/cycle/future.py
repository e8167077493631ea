"""What is free on nodes from now on, as those who hold something come to their ends.

Who holds something gives it back at its wall time at the latest; what it has beyond its minimum, to a
job of its queue and of no lower priority, as soon as it can be asked back. Nobody comes: what is planned
is laid on top of this (`ahead`).

What is free on a node is one row: of each resource, then thousandths of each GPU, below 0 where there is
none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.holds import Holds, Piece, core, pieces_of
from shoal.schedule.placing.asks import Ints, Tasks

__all__ = ["Future", "taken"]

Floats = NDArray[np.float64]


class Future:
    """On some nodes, from what is free there now, and who holds what there until when."""

    def __init__(self, now: Ints, holds: Sequence[Holds], asked_back: Stamp) -> None:
        """`now` (m, w). `holds`: on nodes by their positions among these. `asked_back`: when a loan is,
        at the latest."""
        self._now, self._holds = now, holds
        self._asked_back = asked_back
        self._ends: dict[tuple[int, int], list[Floats]] = {}
        self._on: dict[bytes, Future] = {}

    @classmethod
    def of(cls, desk: Desk) -> Future:
        """On all nodes, as things stand on the desk."""
        room = desk.later.room
        now = np.concatenate((room.free, room.slots.astype(np.int64)), axis=1)
        for name in desk.ending:  # in `later` those are gone already whose time is over soon
            for tasks in desk.asked[name].placement(desk.present.get(name, ())):
                _add(now, tasks.node, tasks, -1)
        return cls(now, _holds(desk), desk.now + desk.rules.notice_seconds)

    def on(self, nodes: Ints | None) -> Future:
        """On these of them alone, (m,) ascending; None: on all of them."""
        if nodes is None:
            return self
        key = nodes.tobytes()
        found = self._on.get(key)
        if found is None:
            holds = [_on(nodes, each) for each in self._holds]
            found = self._on[key] = Future(self._now[nodes], holds, self._asked_back)
        return found

    def instants(self, asked: Asked, since: Stamp, until: Stamp) -> list[Stamp]:
        """When something comes free for this job after `since` and before `until`, ascending."""
        ends = np.concatenate([end[(end > since) & (end < until)] for end in self._ends_for(asked)])
        found: list[Stamp] = np.unique(ends).tolist()
        return found

    def at(self, asked: Asked, instant: Stamp) -> Ints:
        """(m, w): what is free for this job then."""
        return self._now + self.back([(asked, instant)])[0]

    def back(self, whom: Sequence[tuple[Asked, Stamp]]) -> Ints:
        """(k, m, w): what of it has come free for each of these jobs by its instant."""
        nodes, wide = self._now.shape
        found = np.zeros((len(whom) * nodes, wide), dtype=np.int64)
        for part, holds in enumerate(self._holds):
            if not len(holds.node):
                continue
            back = [self._ends_for(asked)[part] <= instant for asked, instant in whom]
            which, row = np.nonzero(np.stack(back))
            at = which * nodes + holds.node[row]
            first = np.flatnonzero(np.diff(at, prepend=-1))
            if len(first):
                found[at[first]] += np.add.reduceat(holds.amounts[row], first, axis=0)
        return found.reshape(len(whom), nodes, wide)

    def _ends_for(self, asked: Asked) -> list[Floats]:
        """(t,) of each part: when each task is back, if this job asks for it."""
        key = (asked.queue, asked.job.priority)
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = []
            for holds in self._holds:
                loan = (holds.lender == key[0]) & (holds.priority <= key[1])
                found.append(np.where(loan, np.minimum(holds.end, self._asked_back), holds.end))
        return found


def taken(placement: Sequence[Tasks], nodes: Ints, wide: int) -> Ints:
    """(m, w): what these tasks take on `nodes` (m,), ascending; those on others are left out."""
    found = np.zeros((len(nodes), wide), dtype=np.int64)
    for tasks in placement:
        at = np.searchsorted(nodes, tasks.node)
        here = at < len(nodes)
        here[here] = nodes[at[here]] == tasks.node[here]
        _add(found, at[here], tasks if here.all() else tasks.only(here), 1)
    return found


def _add(to: Ints, at: Ints, tasks: Tasks, sign: int) -> None:
    resources, shape = len(tasks.shape.ask), tasks.shape
    np.add.at(to[:, :resources], at, sign * shape.vector)
    if shape.slots:
        np.add.at(to, (at[:, None], resources + tasks.slots), sign * shape.thousandths)


def _on(nodes: Ints, holds: Holds) -> Holds:
    first: Ints = np.searchsorted(holds.node, nodes)
    last: Ints = np.searchsorted(holds.node, nodes, side="right")
    counts = last - first
    rows: Ints = np.repeat(last - np.cumsum(counts), counts) + np.arange(int(counts.sum()))
    return holds.only(rows)._replace(node=np.repeat(np.arange(len(nodes)), counts))


def _holds(desk: Desk) -> list[Holds]:
    """Until when: who takes turns, until its turn is over."""
    unlike_rows = sorted({*desk.touched(), *desk.ending, *desk.held.open})
    pieces: list[Piece] = []
    for name in unlike_rows:
        asked, there = desk.asked[name], desk.present.get(name, ())
        began = desk.began(asked.job)
        if not there:
            continue
        if name in desk.ending:
            pieces += core(asked, asked.placement(there), began)
        else:
            pieces += pieces_of(asked, there, began)
    for asked, there, begins in (*desk.kept_places(), *desk.moving()):
        pieces += core(asked, asked.placement(there), begins, turns=False)
    long, recent = desk.held.without([desk.asked[name].number for name in unlike_rows])
    if pieces:
        recent = recent.joined(desk.held.gathered(pieces))
    return [_ended(desk, each) for each in (long, recent)]


def _ended(desk: Desk, holds: Holds) -> Holds:
    turn, soon = desk.rules.minimum_run_seconds, desk.now + desk.rules.notice_seconds
    end = np.maximum(holds.end, desk.now)
    if turn:
        end = np.minimum(end, np.maximum(holds.turn + turn, soon))
    return holds._replace(end=end)
