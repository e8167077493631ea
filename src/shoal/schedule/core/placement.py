"""Nodes for gangs: topology first, then few nodes, then the place that leaves large blocks whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.state import Capacity, JobState, Nodes, Slot

__all__ = ["Override", "place"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Override = Mapping[int, tuple[Ints, Ints]]
"""By node: the amounts and GPU parts that a job may use there, where that is less than what is free."""


def place(
    nodes: Nodes,
    free: Capacity,
    job: JobState,
    counts: Sequence[int],
    *,
    limits: Override | None = None,
    within: Bools | None = None,
    partial: bool = False,
) -> list[Slot] | None:
    """Slots for so many tasks by role, taken in `free`; None, and nothing taken, where they do not fit.

    `within` restricts the nodes; `partial` places as many as fit.
    """
    mark = free.mark()
    if limits:
        for node, (amounts, slots) in limits.items():
            free.put(node, np.minimum(free.amounts[node], amounts), np.minimum(free.slots[node], slots))
    chosen: list[Slot] | None = None
    for domain in _domains(nodes, free, job, counts, within):
        inner = free.mark()
        chosen = _in_domain(nodes, free, job, counts, domain, partial=partial)
        if chosen is not None:
            break
        free.rollback(inner)
    free.rollback(mark)
    if chosen is not None:
        for slot in chosen:
            free.change(slot.node, job.requests[slot.role], slot.gpus, -1)
    return chosen


def _base(nodes: Nodes, within: Bools | None) -> Bools:
    return nodes.open if within is None else nodes.open & within


def _domains(
    nodes: Nodes, free: Capacity, job: JobState, counts: Sequence[int], within: Bools | None
) -> Iterator[Bools]:
    """Sets of nodes to try, best first: domains of the required level, inside them (or before all nodes)
    those of the preferred one, the fullest that fits first."""
    base = _base(nodes, within)
    row = job.row
    placed = {nodes.index[task.node] for task in job.present if task.node in nodes.index}
    tried = [base]
    if row.required:
        tried = list(_by_domain(nodes, free, job, counts, base, row.required, placed))
    for mask in tried:
        if row.preferred:
            yield from _by_domain(nodes, free, job, counts, mask, row.preferred, placed)
        yield mask


def _by_domain(
    nodes: Nodes,
    free: Capacity,
    job: JobState,
    counts: Sequence[int],
    base: Bools,
    level: str,
    placed: set[int],
) -> Iterator[Bools]:
    domains = nodes.domains(level)
    if placed:
        mine = {int(domains[at]) for at in placed}
        if len(mine) == 1 and -1 not in mine:
            yield base & (domains == mine.pop())
        return
    count = int(domains.max(initial=-1)) + 1
    enough = np.ones(count, np.bool_)
    room = np.zeros(count)
    inside = domains >= 0
    for role, wanted in enumerate(counts):
        if not wanted:
            continue
        mask = base & inside & nodes.suits(job.row.roles[role])
        fits = np.minimum(free.counts(job.requests[role]), wanted)
        found = np.bincount(domains[mask], weights=fits[mask], minlength=count)
        enough &= found >= wanted
        every = free.counts(job.requests[role])
        room += np.bincount(domains[mask], weights=np.minimum(every[mask], 1 << 20), minlength=count)
    for domain in sorted(np.flatnonzero(enough).tolist(), key=lambda each: (room[each], each)):
        yield base & (domains == domain)


def _in_domain(
    nodes: Nodes,
    free: Capacity,
    job: JobState,
    counts: Sequence[int],
    mask: Bools,
    *,
    partial: bool,
) -> list[Slot] | None:
    chosen: list[Slot] = []
    for role in _scarcest_first(nodes, job, counts, mask):
        wanted = counts[role]
        if not wanted:
            continue
        row = job.row.roles[role]
        usable = mask & nodes.suits(row)
        sets = [usable]
        level = row.required or row.preferred
        if level:
            placed = {
                nodes.index[t.node] for t in job.present if t.role == row.name and t.node in nodes.index
            }
            only = [wanted if at == role else 0 for at in range(len(counts))]
            sets = list(_by_domain(nodes, free, job, only, usable, level, placed))
            if not row.required:
                sets.append(usable)
        done: list[Slot] | None = None
        for each in sets:
            inner = free.mark()
            done = _fill(nodes, free, job, role, wanted, each)
            if len(done) == wanted or partial:
                break
            free.rollback(inner)
            done = None
        if done is None:
            return None
        chosen += done
    return chosen


def _scarcest_first(nodes: Nodes, job: JobState, counts: Sequence[int], mask: Bools) -> list[int]:
    """Roles in the order of placement: larger tasks first, then those that fewer nodes admit."""
    if len(counts) == 1:
        return [0]

    def key(at: int) -> tuple[int, int, int, int]:
        request = job.requests[at]
        admitting = int((mask & nodes.suits(job.row.roles[at])).sum())
        return -(request.gpus * 1000 + request.share), -sum(request.amounts), admitting, at

    return sorted(range(len(counts)), key=key)


def _fill(
    nodes: Nodes, free: Capacity, job: JobState, role: int, wanted: int, mask: Bools
) -> list[Slot]:
    """Few nodes, and among equal ones the one with least left over; as many tasks as fit."""
    request = job.requests[role]
    chosen: list[Slot] = []
    if job.row.spread:
        return _spread(nodes, free, job, role, wanted, mask)
    while wanted:
        fits = np.where(mask, free.counts(request), 0)
        if not fits.any():
            break
        node = _best(free, fits, wanted)
        for _ in range(min(wanted, int(fits[node]))):
            gpus = free.choose_gpus(node, request)
            free.change(node, request, gpus, -1)
            chosen.append(Slot(role, node, gpus))
            wanted -= 1
    return chosen


def _best(free: Capacity, fits: Ints, wanted: int) -> int:
    """The node that holds all that is wanted with least left over, else the one that holds most."""
    enough = np.flatnonzero(fits >= wanted)
    if not len(enough):
        most = np.flatnonzero(fits == fits.max())
        return int(most[0])
    gpus = free.slots[enough].sum(axis=1)
    amounts = free.amounts[enough].sum(axis=1)
    order = np.lexsort((enough, amounts, gpus))
    return int(enough[order[0]])


def _spread(
    nodes: Nodes, free: Capacity, job: JobState, role: int, wanted: int, mask: Bools
) -> list[Slot]:
    """Evenly over the domains of the level that the job names."""
    request = job.requests[role]
    domains = nodes.domains(job.row.spread)
    used: dict[int, int] = {}
    for task in job.present:
        at = int(domains[nodes.index[task.node]])
        used[at] = used.get(at, 0) + 1
    chosen: list[Slot] = []
    while len(chosen) < wanted:
        fits = np.where(mask & (domains >= 0), free.counts(request), 0)
        there = np.flatnonzero(fits > 0)
        if not len(there):
            break
        least = min((used.get(int(domains[at]), 0), int(domains[at])) for at in there)[1]
        node = _best(free, np.where(domains == least, fits, 0), 1)
        gpus = free.choose_gpus(node, request)
        free.change(node, request, gpus, -1)
        chosen.append(Slot(role, node, gpus))
        used[least] = used.get(least, 0) + 1
    return chosen
