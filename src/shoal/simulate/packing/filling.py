"""Pods one by one onto an empty cluster: what fits is placed, the rest is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.simulate.packing.fleet import Fleet, Place
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.states import Request

__all__ = ["Placed", "Policy", "fill"]


class Policy(Protocol):
    """Chooses places, one pod at a time."""

    def choose(self, fleet: Fleet, shape: int) -> Place | None:
        """Where a pod of that shape goes; None where it fits nowhere."""
        ...


@dataclass(frozen=True)
class Placed:
    """Where a pod is."""

    arrival: int
    """Its number among the arrivals."""
    shape: int
    node: int
    gpus: tuple[int, ...]
    """Indices of the node's GPUs."""


def fill(
    nodes: Nodes, requests: Sequence[Request], policy: Policy, arrivals: Sequence[int]
) -> Iterator[Placed]:
    """The pods that are placed; `arrivals` are shapes, in order."""
    fleet = Fleet(nodes)
    for arrival, shape in enumerate(arrivals):
        place = policy.choose(fleet, shape)
        if place is not None:
            yield Placed(arrival, shape, place.node, fleet.place(place, requests[shape]))
