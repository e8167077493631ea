"""Policies by name, and how each chooses: at random, or where a state gains most."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.packing.best_fit import BestFit
from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.fleet import Fleet, Place
from shoal.simulate.packing.fragments import Fragments
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.outlook import Outlook
from shoal.simulate.packing.pods import Pods
from shoal.simulate.packing.states import Request, States, fitting_gpus, outcomes, requests_of

__all__ = ["POLICIES", "Policy", "Random", "Value", "Where"]

_COVER = 0.95
"""Typical pods are the most frequent ones until they are so much of all, as published with FGD."""


class Value(Protocol):
    """What states are worth. Pure: equal states have equal values, whatever came before."""

    @property
    def growth(self) -> bool:
        """A pod goes where the value grows most; False: to the highest value."""
        ...

    def value(self, states: States) -> NDArray[np.float64]:
        """(m,)"""
        ...


class Policy(Protocol):
    """Chooses places, one pod at a time."""

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        ...


class Where:
    """The place with the highest gain; of equal ones the first node, and its GPU with the most free.

    A gain is worked out once for each shape and state. For one fleet."""

    def __init__(self, requests: list[Request], value: Value) -> None:
        self._requests = requests
        self._value = value
        self._gain = np.full((len(requests), 64), np.nan)
        self._free = np.zeros((len(requests), 64), dtype=np.int64)

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        self._grow(fleet.seen)
        known = self._gain[shape]
        gain = known[fleet.state]
        unknown = np.isnan(gain)
        if unknown.any():
            numbers = np.unique(fleet.state[unknown])
            self._work_out(fleet.states(numbers), numbers, shape)
            gain = known[fleet.state]
        node = int(gain.argmax())
        if gain[node] == -np.inf:
            return None
        return Place(node, int(self._free[shape, fleet.state[node]]))

    def _work_out(self, states: States, numbers: NDArray[np.int64], shape: int) -> None:
        self._gain[shape, numbers] = -np.inf
        origin, free, after = outcomes(states, self._requests[shape])
        if not len(origin):
            return
        value = self._value.value(after)
        first = np.flatnonzero(np.diff(origin, prepend=-1))
        best = np.maximum.reduceat(value, first)
        each = np.repeat(best, np.diff(first, append=len(origin)))
        at = np.flatnonzero(value == each)
        chosen = at[np.searchsorted(at, first)]
        places = origin[first]
        if self._value.growth:
            best = best - self._value.value(states[places])
        self._gain[shape, numbers[places]] = best
        self._free[shape, numbers[places]] = free[chosen]

    def _grow(self, seen: int) -> None:
        if seen > self._gain.shape[1]:
            self._gain = np.concatenate((self._gain, np.full_like(self._gain, np.nan)), axis=1)
            self._free = np.concatenate((self._free, np.zeros_like(self._free)), axis=1)


class Random:
    """Any node that the pod fits on, and any of its GPUs with room, each equally likely."""

    def __init__(self, requests: list[Request], seed: int) -> None:
        self._requests = requests
        self._chance = random.Random(f"packing at random, {seed}")

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        request = self._requests[shape]
        able = np.flatnonzero(fitting_gpus(fleet.states(fleet.state), request) >= 0)
        if not len(able):
            return None
        node = int(able[self._chance.randrange(len(able))])
        if not request.shared:
            return Place(node, request.milli)
        gpus = fleet.gpus[node]
        return Place(node, int(self._chance.choice(gpus[gpus >= request.milli].tolist())))


POLICIES: dict[str, Callable[[Nodes, Pods, int], Policy]] = {
    "random": lambda nodes, pods, seed: Random(requests_of(pods.shapes, nodes.models), seed),
    "best-fit": lambda nodes, pods, _: Where(requests_of(pods.shapes, nodes.models), BestFit(nodes)),
    "fgd": lambda nodes, pods, _: Where(
        requests_of(pods.shapes, nodes.models), Fragments(typical(pods, nodes.models, _COVER))
    ),
    "shoal": lambda nodes, pods, _: Where(
        requests_of(pods.shapes, nodes.models), Outlook(typical(pods, nodes.models, _COVER))
    ),
}
"""Name to what makes it, given the cluster, the list that pods come from, and a seed."""
