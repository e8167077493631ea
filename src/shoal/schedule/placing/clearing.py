"""Which jobs to move away from where, so that more tasks of a shape fit.

A job is looked at as what it would free on each node it is on. Sets of jobs are proposed, the most
promising first; whether they find other places is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Ints, Placement, Shape
from shoal.schedule.placing.fits import how_many
from shoal.schedule.placing.room import Room

__all__ = ["Parts", "parts_of", "proposals"]

_NODES = 64
"""Only so many nodes are looked at closely, those that seem to need the fewest moves."""
_ALL_SUBSETS = 6
"""Of so many jobs on a node all sets are tried; of more, sets of two at most, and the largest first."""
_KEPT = 4
"""Sets that are kept of each size on a node."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What each job would free on each node: p parts, sorted by node."""

    job: Ints
    """(p,) positions in the list of jobs."""
    node: Ints
    """(p,)"""
    free: Ints
    """(p, r)"""
    slots: Ints
    """(p, g) thousandths."""

    def only(self, which: NDArray[np.bool_]) -> Parts:
        """Those where the mask (p,) is true."""
        return Parts(self.job[which], self.node[which], self.free[which], self.slots[which])


def parts_of(room: Room, jobs: Sequence[Placement]) -> Parts:
    """All jobs, cut up by node."""
    tasks = [(job, tasks) for job, placement in enumerate(jobs) for tasks in placement if len(tasks)]
    lengths = np.array([len(each) for _, each in tasks], dtype=np.int64)
    job = np.repeat(np.array([job for job, _ in tasks], dtype=np.int64), lengths)
    node = np.concatenate([_NONE, *(each.node for _, each in tasks)])
    found, part = np.unique(node * len(jobs) + job, return_inverse=True)
    asks = np.array([each.shape.ask for _, each in tasks], dtype=np.int64)
    free = np.zeros((len(found), room.free.shape[1]), dtype=np.int64)
    if len(tasks):
        np.add.at(free, part, np.repeat(asks, lengths, axis=0))
    # tasks on so many GPUs each; a row of `slot` for each GPU of each task
    wide = np.array([each.shape.slots for _, each in tasks], dtype=np.int64)
    amount = np.array([each.shape.thousandths for _, each in tasks], dtype=np.int64)
    slot = np.concatenate([_NONE, *(each.slots.ravel() for _, each in tasks)])
    slots = np.zeros((len(found), room.slots.shape[1]), dtype=np.int64)
    on = np.repeat(part, np.repeat(wide, lengths))
    np.add.at(slots, (on, slot), np.repeat(amount, wide * lengths))
    return Parts(found % max(len(jobs), 1), found // max(len(jobs), 1), free, slots)


def proposals(room: Room, shape: Shape, need: int, parts: Parts) -> Iterator[tuple[int, ...]]:
    """Sets of jobs without which at least `need` more tasks of the shape fit on the nodes of `parts`.

    First single jobs, those that hold the least first; then what few nodes need, put together from the
    sets that gain the most per job.
    """
    suits = room.nodes.suits[shape.suits, parts.node]
    if not suits.all():
        parts = parts.only(suits)
    if not len(parts.node):
        return
    weight = parts.slots.sum(axis=1) + parts.free.astype(np.float64) @ _scarcity(room, shape)
    yield from _singles(room, shape, need, parts, weight)
    ways = [
        way
        for first, last in _closest_nodes(room, shape, parts, weight)
        for way in _ways(room, shape, need, parts, weight, slice(first, last))
    ]
    ways.sort(key=lambda way: (len(way.jobs) / way.gain, way.weight, way.node, way.jobs))
    for start in range(len(ways)):
        chosen = _enough(ways[start:], need)
        if chosen and len(chosen) > 1:
            yield chosen


@dataclass(frozen=True)
class _Way:
    """To gain so many tasks on a node."""

    node: int
    jobs: tuple[int, ...]
    gain: int
    weight: float


_NONE = np.empty(0, dtype=np.int64)


def _scarcity(room: Room, shape: Shape) -> NDArray[np.float64]:
    """(r,): what weighs like all GPUs of a node: all of a resource that is asked for."""
    total = np.maximum(room.nodes.total.max(axis=0, initial=1), 1)
    return np.where(shape.vector > 0, 1.0 / total, 0.0)


def _singles(
    room: Room, shape: Shape, need: int, parts: Parts, weight: NDArray[np.float64]
) -> Iterator[tuple[int, ...]]:
    gain = _gain(room, shape, parts)
    jobs = int(parts.job.max()) + 1
    gains = np.bincount(parts.job, weights=gain, minlength=jobs)
    weights = np.bincount(parts.job, weights=weight, minlength=jobs)
    enough = np.flatnonzero(gains >= need)
    for job in enough[np.argsort(weights[enough], kind="stable")].tolist():
        yield (job,)


def _gain(room: Room, shape: Shape, parts: Parts) -> Ints:
    """(p,): how many more tasks fit on the node without the part alone; all nodes suit."""
    then = how_many(shape, room.free[parts.node] + parts.free, room.slots[parts.node] + parts.slots)
    return then - room.fits(shape).count[parts.node]


def _closest_nodes(
    room: Room, shape: Shape, parts: Parts, weight: NDArray[np.float64]
) -> list[tuple[int, int]]:
    """First and last part of the nodes on which a task more needs the fewest jobs moved, by the largest
    alone; nodes on which none is gained even without all of their jobs are left out."""
    first = np.flatnonzero(np.diff(parts.node, prepend=-1))
    nodes = parts.node[first]
    free = room.free[nodes] + np.add.reduceat(parts.free, first, axis=0)
    slots = room.slots[nodes] + np.add.reduceat(parts.slots, first, axis=0)
    possible = how_many(shape, free, slots) > room.fits(shape).count[nodes]
    last = np.append(first[1:], len(parts.node))
    largest = np.maximum.reduceat(weight, first)
    asked = shape.slots * shape.thousandths - np.maximum(room.slots[nodes], 0).sum(axis=1)
    resources = np.maximum(shape.vector - room.free[nodes], 0) @ _scarcity(room, shape)
    short = np.maximum(asked, 0) + resources
    moves = np.maximum(np.ceil(short / np.maximum(largest, 1e-9)), 1)
    order = np.lexsort((nodes, short, moves))
    order = order[possible[order]][:_NODES]
    return list(zip(first[order].tolist(), last[order].tolist(), strict=True))


def _ways(
    room: Room,
    shape: Shape,
    need: int,
    parts: Parts,
    weight: NDArray[np.float64],
    here: slice,
) -> list[_Way]:
    """Sets of the jobs on one node, for each size those that gain the most and weigh the least."""
    node = int(parts.node[here.start])
    jobs, weights = parts.job[here], weight[here]
    subsets = _subsets(weights)
    free = room.free[node] + subsets @ parts.free[here]
    slots = room.slots[node] + subsets @ parts.slots[here]
    gain = np.minimum(how_many(shape, free, slots) - room.fits(shape).count[node], need)
    size, heavy = subsets.sum(axis=1), subsets @ weights
    ways: list[_Way] = []
    kept: dict[int, int] = {}
    for at in np.lexsort((heavy, -gain, size)).tolist():
        if gain[at] > 0 and kept.get(int(size[at]), 0) < _KEPT:
            kept[int(size[at])] = kept.get(int(size[at]), 0) + 1
            moved = tuple(jobs[subsets[at] > 0].tolist())
            ways.append(_Way(node, moved, int(gain[at]), float(heavy[at])))
    return ways


def _subsets(weights: NDArray[np.float64]) -> Ints:
    """(s, k): which of k jobs are in each of the sets that are tried."""
    count = len(weights)
    most = count if count <= _ALL_SUBSETS else 2
    sizes = range(1, most + 1)
    sets = list(chain.from_iterable(combinations(range(count), size) for size in sizes))
    heaviest = np.argsort(-weights, kind="stable").tolist()
    sets += [tuple(heaviest[:size]) for size in range(most + 1, count + 1)]
    chosen = np.zeros((len(sets), count), dtype=np.int64)
    for row, each in enumerate(sets):
        chosen[row, list(each)] = 1
    return chosen


def _enough(ways: Sequence[_Way], need: int) -> tuple[int, ...]:
    """One way per node, in order, until the gains are enough; none, if they never are."""
    nodes: set[int] = set()
    jobs: set[int] = set()
    for way in ways:
        if need <= 0:
            break
        if way.node not in nodes:
            nodes.add(way.node)
            jobs.update(way.jobs)
            need -= way.gain
    return tuple(sorted(jobs)) if need <= 0 else ()
