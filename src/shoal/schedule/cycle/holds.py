"""Who holds what, task by task, and until when: arrays that are kept with the rows they follow from.

What a job holds as its row says is worked out once for the row. Only what rows do not say, who was
started, told to go or kept a place in this plan, and whose time is over soon, is gathered each time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import units_of
from shoal.schedule.placing.asks import Ints, Placement, Tasks

__all__ = ["Held", "Holds", "Piece", "core", "pieces_of"]

Floats = NDArray[np.float64]

_NO_LOAN = -1
_NOBODY = -1
_RECENT = 8
"""What came lately is kept apart, until it is more than this part of all."""


class Holds(NamedTuple):
    """Tasks, sorted by node."""

    node: Ints
    """(t,)"""
    amounts: Ints
    """(t, r + g): of each resource, then thousandths of each GPU of its node."""
    end: Floats
    """(t,): when it is back at the latest."""
    lender: Ints
    """(t,): the queue that it may be asked back for; -1: for none."""
    priority: Ints
    """(t,): and of no lower priority than that."""
    turn: Floats
    """(t,): since when it has had its turn; infinity: it takes none."""
    job: Ints
    """(t,): `Asked.number`; -1: it is not there any more, and never back."""

    def only(self, which: NDArray[np.bool_] | Ints) -> Holds:
        """These, by a mask or by ascending positions."""
        return Holds._make(column[which] for column in self)

    def joined(self, other: Holds) -> Holds:
        """Both."""
        both = Holds._make(np.concatenate(pair) for pair in zip(self, other, strict=True))
        return both.only(np.argsort(both.node, kind="stable"))

    def without(self, jobs: Collection[int]) -> Holds:
        """What these hold is never back, so that it does not count."""
        if not jobs:
            return self
        gone = np.isin(self.job, list(jobs))
        return self._replace(
            end=np.where(gone, math.inf, self.end),
            lender=np.where(gone, _NO_LOAN, self.lender),
            turn=np.where(gone, math.inf, self.turn),
            job=np.where(gone, _NOBODY, self.job),
        )


class Piece(NamedTuple):
    """Tasks that are back together."""

    asked: Asked
    tasks: Tasks
    end: Stamp
    turn: Stamp
    lent: bool


class Held:
    """What those hold who hold what their rows say. Mutable; `slots` GPUs a node, at most."""

    def __init__(self, resources: int, slots: int) -> None:
        self.open: set[str] = set()
        """What they keep of it is found anew for each decision (`compositions`)."""
        self._wide = resources, slots
        self._long = self._recent = self.gathered(())
        self._known: set[int] = set()
        """Of whom there are rows; some of these have gone, and others have come, since:"""
        self._gone: set[int] = set()
        self._come: dict[int, Asked] = {}

    def put(self, asked: Asked) -> None:
        """A job, or another row of one that is known."""
        self.drop(asked)
        if asked.present:
            self._come[asked.number] = asked
        if asked.open:
            self.open.add(asked.job.name)

    def drop(self, asked: Asked) -> None:
        """It is no more."""
        self.open.discard(asked.job.name)
        self._come.pop(asked.number, None)
        if asked.number in self._known:
            self._gone.add(asked.number)

    def without(self, jobs: Collection[int]) -> tuple[Holds, Holds]:
        """All but what these hold; who came lately apart."""
        self._write()
        return self._long.without(jobs), self._recent.without(jobs)

    def gathered(self, pieces: Sequence[Piece]) -> Holds:
        """Pieces as arrays."""
        resources, slots = self._wide
        lengths = np.array([len(piece.tasks) for piece in pieces], dtype=np.int64)
        vectors = np.array([piece.tasks.shape.ask for piece in pieces], dtype=np.int64)
        node = _joined(piece.tasks.node for piece in pieces)
        amounts = np.zeros((len(node), resources + slots), dtype=np.int64)
        amounts[:, :resources] = np.repeat(vectors.reshape(len(pieces), resources), lengths, axis=0)
        wide = np.array([piece.tasks.shape.slots for piece in pieces], dtype=np.int64)
        part = np.array([piece.tasks.shape.thousandths for piece in pieces], dtype=np.int64)
        holder = np.repeat(np.arange(len(node)), np.repeat(wide, lengths))
        slot = _joined(piece.tasks.slots.ravel() for piece in pieces)
        amounts[holder, resources + slot] = np.repeat(part, wide * lengths)
        lenders = [piece.asked.queue if piece.lent else _NO_LOAN for piece in pieces]
        priorities = [piece.asked.job.priority for piece in pieces]
        found = Holds(
            node=node,
            amounts=amounts,
            end=np.repeat(np.array([piece.end for piece in pieces], np.float64), lengths),
            lender=np.repeat(np.array(lenders, np.int64), lengths),
            priority=np.repeat(np.array(priorities, np.int64), lengths),
            turn=np.repeat(np.array([piece.turn for piece in pieces], np.float64), lengths),
            job=np.repeat(np.array([piece.asked.number for piece in pieces], np.int64), lengths),
        )
        return found.only(np.argsort(node, kind="stable"))

    def _write(self) -> None:
        if not self._gone and not self._come:
            return
        pieces = [
            piece
            for asked in self._come.values()
            for piece in pieces_of(asked, asked.present, asked.job.since)
        ]
        self._long, recent = self._long.without(self._gone), self._recent.without(self._gone)
        self._recent = recent.only(recent.job != _NOBODY).joined(self.gathered(pieces))
        self._known = (self._known - self._gone) | self._come.keys()
        self._gone, self._come = set(), {}
        if len(self._recent.node) * _RECENT > len(self._long.node):
            self._long = self._long.only(self._long.job != _NOBODY).joined(self._recent)
            self._recent = self.gathered(())


def pieces_of(asked: Asked, there: Sequence[Task], began: Stamp) -> list[Piece]:
    """What it keeps of these tasks, which it began to hold then, and what it lends beyond that."""
    beyond: set[tuple[str, int]] = set()
    if asked.needs.elastic and asked.job.preemptible:
        units = units_of(asked, there, asked.queue, asked.number, began)
        beyond = {(task.role, task.index) for unit in units if not unit.core for task in unit.tasks}
    if not beyond:
        return core(asked, asked.placed if there is asked.present else asked.placement(there), began)
    lent = [task for task in there if (task.role, task.index) in beyond]
    staying = [task for task in there if (task.role, task.index) not in beyond]
    loans = core(asked, asked.placement(lent), began)
    return [*core(asked, asked.placement(staying), began), *(each._replace(lent=True) for each in loans)]


def core(asked: Asked, placement: Placement, began: Stamp, *, turns: bool = True) -> list[Piece]:
    """All of it, none lent. `turns`: it gives way once its turn is over, if nobody knows how long it
    takes."""
    end = began + asked.job.longest_seconds
    turn = began if turns and asked.job.preemptible and math.isinf(end) else math.inf
    return [Piece(asked, tasks, end, turn, False) for tasks in placement if len(tasks)]


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
