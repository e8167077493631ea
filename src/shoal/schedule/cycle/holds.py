"""Who holds what, task by task, and until when: arrays that are kept with the rows they follow from.

What a job holds as its row says is worked out once for the row. Only what rows do not say, who was
started, told to go or kept a place in this plan, and whose time is over soon, is gathered each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import units_of
from shoal.schedule.placing.asks import Ints, Placement, Tasks

__all__ = ["NO_LOAN", "Held", "Holds", "Piece", "core", "pieces_of"]

Floats = NDArray[np.float64]

NO_LOAN = -1


class Holds(NamedTuple):
    """Tasks, sorted by node."""

    node: Ints
    """(t,)"""
    amounts: Ints
    """(t, r)"""
    parts: Ints
    """(t, g): thousandths of each GPU of its node."""
    job: Ints
    """(t,): `Asked.number`."""
    end: Floats
    """(t,): when it is back at the latest."""
    turn: Floats
    """(t,): since when it has had its turn; infinity: it takes none."""
    lender: Ints
    """(t,): the queue that it may be asked back for; `NO_LOAN`: for none."""
    priority: Ints
    """(t,): and of no lower priority than that."""

    def only(self, which: NDArray[np.bool_] | Ints) -> Holds:
        """These, by a mask or by ascending positions."""
        return Holds._make(column[which] for column in self)

    def joined(self, other: Holds) -> Holds:
        """Both."""
        both = Holds._make(np.concatenate(pair) for pair in zip(self, other, strict=True))
        return both.only(np.argsort(both.node, kind="stable"))


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
        self._of: dict[str, Asked] = {}
        self._wide = resources, slots
        self._holds = self.gathered(())

    def by(self, those: Mapping[str, Asked]) -> Holds:
        """Of these, by name: counted anew are those only that are other rows than last time."""
        gone = [asked.number for name, asked in self._of.items() if those.get(name) is not asked]
        come = [asked for name, asked in those.items() if self._of.get(name) is not asked]
        if gone:
            self._holds = self._holds.only(~np.isin(self._holds.job, gone))
        if come:
            pieces = [
                piece for asked in come for piece in pieces_of(asked, asked.present, asked.job.since)
            ]
            self._holds = self._holds.joined(self.gathered(pieces))
        self._of = dict(those)
        return self._holds

    def gathered(self, pieces: Sequence[Piece]) -> Holds:
        """Pieces as arrays."""
        resources, slots = self._wide
        lengths = np.array([len(piece.tasks) for piece in pieces], dtype=np.int64)
        vectors = [piece.tasks.shape.ask for piece in pieces]
        node = _joined(piece.tasks.node for piece in pieces)
        parts = np.zeros((len(node), slots), dtype=np.int64)
        wide = np.array([piece.tasks.shape.slots for piece in pieces], dtype=np.int64)
        part = np.array([piece.tasks.shape.thousandths for piece in pieces], dtype=np.int64)
        holder = np.repeat(np.arange(len(node)), np.repeat(wide, lengths))
        slot = _joined(piece.tasks.slots.ravel() for piece in pieces)
        parts[holder, slot] = np.repeat(part, wide * lengths)
        lenders = [piece.asked.queue if piece.lent else NO_LOAN for piece in pieces]
        found = Holds(
            node=node,
            amounts=np.repeat(
                np.array(vectors, np.int64).reshape(len(pieces), resources), lengths, axis=0
            ),
            parts=parts,
            job=np.repeat(np.array([piece.asked.number for piece in pieces], np.int64), lengths),
            end=np.repeat(np.array([piece.end for piece in pieces], np.float64), lengths),
            turn=np.repeat(np.array([piece.turn for piece in pieces], np.float64), lengths),
            lender=np.repeat(np.array(lenders, np.int64), lengths),
            priority=np.repeat(
                np.array([piece.asked.job.priority for piece in pieces], np.int64), lengths
            ),
        )
        return found.only(np.argsort(node, kind="stable"))


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
