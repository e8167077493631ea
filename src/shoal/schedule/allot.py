"""Dividing nodes of equal GPUs among training jobs: what a policy sees, and ways to place replicas.

Shoal's sizing of elastic jobs and the re-created policies of others share this view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Allot", "Contender", "Nodes", "Outlook", "free_gpus", "most_free_first", "packed"]

Nodes = tuple[int, ...]
"""The node of each replica."""

Placing = Callable[[list[int], int], Nodes | None]
"""Takes so many GPUs out of those free on each node; None, and nothing taken, where there are fewer."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of an elastic job's speed and work. Progress in steps of its initial batch."""

    speeds: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]] | None
    """Progress a second on so many nodes with so many replicas; None: nothing has been observed."""
    most: int
    """Replicas that it may be given now: it is not sent far beyond what has been tried."""
    limit: int
    """Replicas that it could ever use."""
    done: float
    """Progress made."""
    remaining: float | None
    """Progress still to make, as its user declared; None: nobody said; below 0: it is over that."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A job that has not ended. Times and durations in seconds."""

    name: str
    submitted: float
    size: int
    """Replicas that its user asks for."""
    least: int = 1
    """It can run with so few."""
    most: int
    """And could use so many."""
    nodes: Nodes = ()
    """What it has."""
    service: float = 0.0
    """GPU seconds that it has had."""
    run_seconds: Callable[[], float]
    """What is left at `size`; an oracle, or what its user declares."""
    step_seconds: Callable[[int], float]
    """Of one step with so many replicas on as few nodes as can be; an oracle."""
    steps_left: Callable[[], float]
    """An oracle."""
    restart: float = 30.0
    """Seconds that a change of its nodes stops it."""
    outlook: Outlook | None = None
    """None: it is rigid, or nobody observes it."""


class Allot(Protocol):
    """A policy. It may remember what it did before; one object sees one cluster."""

    information: str
    """What it knows of a job's work: none, declared, profiles or oracle."""
    elastic: bool
    """It sizes jobs by what they find out about themselves; their batch size is theirs to choose."""

    def allot(self, jobs: Sequence[Contender], capacity: Sequence[int], now: float) -> dict[str, Nodes]:
        """Nodes for each job that runs from now on; `jobs` in the order of submission, `capacity` the
        GPUs of each node."""
        ...


def free_gpus(capacity: Sequence[int], taken: Iterable[Nodes]) -> list[int]:
    """GPUs of each node that none of these hold."""
    free = list(capacity)
    for nodes in taken:
        for node in nodes:
            free[node] -= 1
    return free


def most_free_first(free: list[int], count: int) -> Nodes | None:
    """Again and again from the node with the most free, the first of equals."""
    if sum(free) < count:
        return None
    nodes: list[int] = []
    while len(nodes) < count:
        node = max(range(len(free)), key=free.__getitem__)
        taken = min(free[node], count - len(nodes))
        free[node] -= taken
        nodes += [node] * taken
    return tuple(nodes)


def packed(free: list[int], count: int) -> Nodes | None:
    """From the node with the least free that holds all that is left, else from the one with the most."""
    if sum(free) < count:
        return None
    nodes: list[int] = []
    while len(nodes) < count:
        left = count - len(nodes)
        enough = [node for node, here in enumerate(free) if here >= left]
        node = (
            min(enough, key=free.__getitem__) if enough else max(range(len(free)), key=free.__getitem__)
        )
        taken = min(free[node], left)
        free[node] -= taken
        nodes += [node] * taken
    return tuple(nodes)
