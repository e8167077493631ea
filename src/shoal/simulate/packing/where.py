"""The place with the highest score, worked out once for each shape and each state of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.fleet import Fleet, Place
from shoal.simulate.packing.states import Request, States, join, outcomes

__all__ = ["Value", "Where"]

Floats = NDArray[np.float64]


class Value(Protocol):
    """What states are worth, and changes of them. Pure: what came before makes no difference."""

    def value(self, states: States) -> Floats:
        """(m,): of each state."""
        ...

    def score(self, after: Floats, before: Floats) -> Floats:
        """(c,): of places, by the value of their nodes after and before; a pod goes to the highest."""
        ...


class Where:
    """The place with the highest score; of equal ones the first node, and its GPU with the least free.

    A score is worked out once for each shape and state. For one fleet."""

    def __init__(self, requests: Sequence[Request], value: Value) -> None:
        self._requests = requests
        self._value = value
        self._score = np.full((len(requests), 64), np.nan)
        self._free = np.zeros((len(requests), 64), dtype=np.int64)

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        self._make_room(fleet.seen)
        known = self._score[shape]
        score = known[fleet.state]
        unknown = np.isnan(score)
        if unknown.any():
            numbers = np.unique(fleet.state[unknown])
            self._work_out(fleet.states(numbers), numbers, shape)
            score = known[fleet.state]
        node = int(score.argmax())
        if score[node] == -np.inf:
            return None
        return Place(node, int(self._free[shape, fleet.state[node]]))

    def _work_out(self, states: States, numbers: NDArray[np.int64], shape: int) -> None:
        self._score[shape, numbers] = -np.inf
        origin, free, after = outcomes(states, self._requests[shape])
        if not len(origin):
            return
        starts = np.ones(len(origin), dtype=np.bool_)
        np.not_equal(origin[1:], origin[:-1], out=starts[1:])
        first = np.flatnonzero(starts)
        places = origin[first]
        values = self._value.value(join(states[places], after))
        before = values[: len(first)][starts.cumsum() - 1]
        score = self._value.score(values[len(first) :], before)
        best = first if len(first) == len(origin) else _highest(score, first)
        self._score[shape, numbers[places]] = score[best]
        self._free[shape, numbers[places]] = free[best]

    def _make_room(self, seen: int) -> None:
        if seen > self._score.shape[1]:
            self._score = np.concatenate((self._score, np.full_like(self._score, np.nan)), axis=1)
            self._free = np.concatenate((self._free, np.zeros_like(self._free)), axis=1)


def _highest(score: Floats, first: NDArray[np.int64]) -> NDArray[np.int64]:
    """(f,): where the highest score of each stretch is, the first of equal ones; stretches begin at
    `first` (f,)."""
    highest = np.maximum.reduceat(score, first)
    lengths = np.append(first[1:], len(score)) - first
    at = np.flatnonzero(score == np.repeat(highest, lengths))
    return at[np.searchsorted(at, first)]
