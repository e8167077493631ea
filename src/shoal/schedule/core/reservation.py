"""Reservations: the first blocked jobs get nodes and a start, and others run on them until then.

One availability profile answers "when": what is idle, what ends at its wall time, what is reserved. A
job whose start depends on jobs of unknown length has no date, and holds nothing until it starves.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.objects.meta import Stamp
from shoal.schedule.core.placement import place
from shoal.schedule.core.session import Session, ends_at
from shoal.schedule.core.state import Capacity, JobState, Slot

__all__ = ["Profile", "Reservation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass
class Reservation:
    """Nodes kept for a blocked job from a time on."""

    job: JobState
    at: Stamp
    until: Stamp
    slots: list[Slot]
    load: Floats
    published: bool
    entitled: bool
    """Within nominal, or starving: claims within nominal of other queues do not displace it."""
    spare: dict[int, tuple[Ints, Ints]] = field(default_factory=dict[int, tuple[Ints, Ints]])
    """By node: what others may use there beyond `at`."""


@dataclass(frozen=True)
class _Release:
    at: Stamp
    job: JobState
    slots: list[Slot]
    load: Floats


@dataclass(frozen=True)
class _Columns:
    """Slots of releases, in their order."""

    release: Ints
    node: Ints
    amounts: Ints
    gpu_release: Ints
    gpu_node: Ints
    gpu: Ints
    part: Ints


def _columns(releases: Sequence[_Release], width: int) -> _Columns:
    slots = [(at, each.job, slot) for at, each in enumerate(releases) for slot in each.slots]
    gpus = [(at, job, slot, gpu) for at, job, slot in slots for gpu in slot.gpus]
    amounts = [job.requests[slot.role].amounts for _, job, slot in slots]
    return _Columns(
        release=np.array([at for at, _, _ in slots], np.int64),
        node=np.array([slot.node for _, _, slot in slots], np.int64),
        amounts=np.array(amounts, np.int64).reshape(len(slots), width),
        gpu_release=np.array([at for at, *_ in gpus], np.int64),
        gpu_node=np.array([slot.node for _, _, slot, _ in gpus], np.int64),
        gpu=np.array([gpu for *_, gpu in gpus], np.int64),
        part=np.array([job.requests[slot.role].share or 1000 for _, job, slot, _ in gpus], np.int64),
    )


def _at(release: _Release) -> Stamp:
    return release.at


class Profile:
    """Availability over time, with the reservations made so far."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.reservations: list[Reservation] = []
        self._releases: list[_Release] | None = None
        self._columns: _Columns | None = None
        self._freed: dict[Stamp, tuple[list[_Release], Floats, list[_Release]]] = {}
        self._version = -1
        self._dates: dict[tuple[Any, ...], Stamp] = {}
        """Of the last job of each kind: an equal one starts no earlier."""

    # making

    def date(
        self, job: JobState, counts: Sequence[int], *, keep: Sequence[Slot] = ()
    ) -> tuple[Stamp, list[Slot]] | None:
        """The earliest start and its nodes; None where no date can be computed. `keep`: nodes that it
        has been promised: elastic surplus there is recalled in time."""
        session = self.session
        releases = self.releases()
        times = sorted(
            {session.now}
            | {each.at for each in releases}
            | {each.until for each in self.reservations if not math.isinf(each.until)}
        )
        low, high = 0, len(times) - 1
        before = -math.inf if keep else self._dates.get(job.kind, -math.inf)
        low = next((at for at, each in enumerate(times) if each >= before), high)
        for at in range(low, min(low + 2, high + 1)):  # most often equal jobs start one after the other
            found = self._fits_at(job, counts, times[at], keep)
            if found is not None:
                self._dates[job.kind] = times[at]
                return times[at], found
        low = min(low + 2, high)
        last = self._fits_at(job, counts, times[high], keep)
        if last is None:
            return None
        best = (times[high], last)
        while low < high:
            middle = (low + high) // 2
            found = self._fits_at(job, counts, times[middle], keep)
            if found is None:
                low = middle + 1
            else:
                high = middle
                best = (times[middle], found)
        if not keep:
            self._dates[job.kind] = best[0]
        return best

    def releases(self) -> list[_Release]:
        """Jobs that end at a known time, those started in this decision included, first first."""
        session = self.session
        version = len(session.started) + len(session.grown) + len(session.evictions)
        if self._releases is not None and version == self._version:
            return self._releases
        found: list[_Release] = []
        for job in session.jobs.values():
            started = session.started.get(job.name)
            tasks = session.tasks(job)
            if started is None and not tasks:
                continue
            at = ends_at(job.row, session.now)
            if math.isinf(at):
                continue
            slots = [
                Slot(job.role(task.role), session.nodes.index[task.node], task.gpus)
                for task in tasks
                if task.node in session.nodes.index
            ]
            slots += started or session.grown.get(job.name, [])
            counts = [0] * len(job.requests)
            for slot in slots:
                counts[slot.role] += 1
            found.append(_Release(max(at, session.now), job, slots, job.load(counts, new=True)))
        found.sort(key=lambda each: (each.at, each.job.name))
        self._releases, self._version = found, version
        self._columns = _columns(found, len(session.nodes.resources))
        return found

    def _fits_at(
        self, job: JobState, counts: Sequence[int], at: Stamp, keep: Sequence[Slot]
    ) -> list[Slot] | None:
        session = self.session
        book, freed, users = self._book(at, job)
        if keep:
            self._recall(book, job, {slot.node for slot in keep})
        load = job.load(counts, new=not job.row.tasks)
        if not self._allowed(job, load, at, freed, users):
            return None
        mask = None
        if keep:
            mask = np.zeros(len(session.nodes.rows), np.bool_)
            mask[[slot.node for slot in keep]] = True
        return place(session.nodes, book, job, counts, within=mask)

    def _book(self, at: Stamp, job: JobState) -> tuple[Capacity, Floats, list[_Release]]:
        """Capacity at a time, for a job: releases until then, minus reservations."""
        session = self.session
        book = session.later.copy()
        releases = self.releases()
        ended = releases[: bisect_right(releases, at, key=_at)]
        columns = self._columns
        if columns is not None and ended:
            count = int(np.searchsorted(columns.release, len(ended)))
            parts = int(np.searchsorted(columns.gpu_release, len(ended)))
            np.add.at(book.amounts, columns.node[:count], columns.amounts[:count])
            where = (columns.gpu_node[:parts], columns.gpu[:parts])
            np.add.at(book.slots, where, columns.part[:parts])
        overlapping = [
            each
            for each in self.reservations
            if each.at < at + job.length and each.until > at and each.job is not job
        ]
        for each in overlapping:
            for slot in each.slots:
                request = each.job.requests[slot.role]
                if request.amounts:
                    book.amounts[slot.node] -= request.amounts
                for gpu in slot.gpus:
                    book.slots[slot.node, gpu] -= request.share or 1000
        freed: Floats = np.zeros_like(session.queues.stays)
        if session.queues.binding[job.queue]:
            for each in ended:
                freed[session.queues.paths[each.job.queue]] += each.load
            for each in overlapping:
                freed[session.queues.paths[each.job.queue]] -= each.load
        return book, freed, ended

    def _recall(self, book: Capacity, job: JobState, nodes: set[int]) -> None:
        """Elastic surplus on these nodes counts as free: it is taken back in time."""
        session = self.session
        for other in session.jobs.values():
            if other is job or not other.row.preemptible or other.row.priority > job.row.priority:
                continue
            for task in other.surplus() if other.present else ():
                at = session.nodes.index.get(task.node, -1)
                if at in nodes:
                    book.change(at, other.requests[other.role(task.role)], task.gpus, +1)

    def _allowed(
        self, job: JobState, load: Floats, at: Stamp, freed: Floats, ended: Sequence[_Release]
    ) -> bool:
        """Whether limits and licences permit the start then."""
        session, queues = self.session, self.session.queues
        if not queues.binding[job.queue] and not job.row.shared:
            return True
        stays, users = queues.stays, queues.users
        queues.stays = stays - freed
        left = dict(users)
        for each in ended:
            for queue in queues.paths[each.job.queue]:
                key = (queue, each.job.row.user)
                if key in left:
                    left[key] = left[key] - each.load
        queues.users = left
        try:
            refused = next(queues.refusals(job.queue, job.row.user, load, now=False), None)
        finally:
            queues.stays, queues.users = stays, users
        if refused is not None:
            return False
        for name, ask in job.row.shared.items() if not job.row.tasks else ():
            free = session.licences.get(name, 0)
            free += sum(each.job.row.shared.get(name, 0) for each in ended)
            free -= sum(
                each.job.row.shared.get(name, 0)
                for each in self.reservations
                if each.at <= at < each.until
            )
            if free < ask:
                return False
        return True

    def add(self, reservation: Reservation) -> None:
        """Keep the nodes from its start on, and work out what others may use there beyond it."""
        book, _, _ = self._book(reservation.at, reservation.job)
        for slot in reservation.slots:
            book.change(slot.node, reservation.job.requests[slot.role], slot.gpus, -1)
        for slot in reservation.slots:
            node = slot.node
            reservation.spare[node] = (
                np.maximum(book.amounts[node], 0).copy(),
                np.maximum(book.slots[node], 0).copy(),
            )
        for other in self.reservations:
            for node in other.spare.keys() & reservation.spare.keys():
                if other.until > reservation.at:
                    amounts, slots = other.spare[node]
                    for slot in reservation.slots:
                        if slot.node == node:
                            request = reservation.job.requests[slot.role]
                            amounts -= np.asarray(request.amounts, np.int64)
                            for gpu in slot.gpus:
                                slots[gpu] -= request.share or 1000
                    other.spare[node] = (np.maximum(amounts, 0), np.maximum(slots, 0))
        self.reservations.append(reservation)

    def drop(self, job: JobState) -> None:
        """Give up a job's reservation: it starts, or is dated again."""
        kept = [each for each in self.reservations if each.job is not job]
        if len(kept) < len(self.reservations):
            self.reservations = kept
            self._dates.clear()

    # respecting

    def limits(self, job: JobState, *, entitled: bool) -> dict[int, tuple[Ints, Ints]]:
        """By node: what a job that starts now may use there, so that no reservation starts later."""
        found: dict[int, tuple[Ints, Ints]] = {}
        ends = self.session.now + job.length
        own = next((each for each in self.reservations if each.job is job), None)
        for each in self.reservations:
            if each.job is job or ends <= each.at or self._displaces(job, each, entitled=entitled):
                continue
            for node, (amounts, slots) in each.spare.items():
                if own is not None and own.until > each.at:
                    amounts, slots = _given_back(own, node, amounts, slots)
                if node in found:
                    amounts = np.minimum(amounts, found[node][0])
                    slots = np.minimum(slots, found[node][1])
                found[node] = (amounts, slots)
        return found

    def _displaces(self, job: JobState, reservation: Reservation, *, entitled: bool) -> bool:
        if job.row.priority > reservation.job.row.priority:
            return True
        return entitled and not reservation.entitled

    def respects(self, job: JobState, slots: Sequence[Slot], load: Floats) -> bool:
        """Whether a start on these slots delays no reservation."""
        queues = self.session.queues
        entitled = queues.claims_nominal(job.queue, load, queues.stays) > 0
        ends = self.session.now + job.length
        for each in self.reservations:
            if each.job is job or ends <= each.at or self._displaces(job, each, entitled=entitled):
                continue
            if _intrudes(job, slots, each):
                return False
        return self.quota_allows(job, load, entitled=entitled)

    def quota_allows(self, job: JobState, load: Floats, *, entitled: bool) -> bool:
        """Whether limits, caps and licences leave reservations what they need at their start."""
        session = self.session
        ends = session.now + job.length
        for each in self.reservations:
            if each.job is job or ends <= each.at or self._displaces(job, each, entitled=entitled):
                continue
            for name, ask in job.row.shared.items():
                if name in each.job.row.shared and not self._licence(name, ask, each):
                    return False
            if not session.queues.binding[each.job.queue]:
                continue
            before, ended = self._freed_by(each)
            freed = before.copy()
            freed[session.queues.paths[job.queue]] -= load
            if not self._allowed(each.job, each.load, each.at, freed, ended):
                return False
        return True

    def _freed_by(self, reservation: Reservation) -> tuple[Floats, list[_Release]]:
        """What releases give back to queues until a reservation starts."""
        releases = self.releases()
        known = self._freed.get(reservation.at)
        if known is not None and known[0] is releases:
            return known[1], known[2]
        session = self.session
        freed: Floats = np.zeros_like(session.queues.stays)
        ended = releases[: bisect_right(releases, reservation.at, key=_at)]
        for release in ended:
            freed[session.queues.paths[release.job.queue]] += release.load
        self._freed[reservation.at] = (releases, freed, ended)
        return freed, ended

    def _licence(self, name: str, ask: int, reservation: Reservation) -> bool:
        free = self.session.licences.get(name, 0) - ask
        free += sum(
            each.job.row.shared.get(name, 0) for each in self.releases() if each.at <= reservation.at
        )
        free -= sum(
            each.job.row.shared.get(name, 0) for each in self.reservations if each.at <= reservation.at
        )
        return free >= 0

    def took(self, job: JobState, slots: Sequence[Slot], *, entitled: bool) -> None:
        """A job started: what it uses beyond a reservation's start is not spare any more. A reservation
        that it displaces is dropped; its job is dated again when it is served."""
        ends = self.session.now + job.length
        for each in list(self.reservations):
            if ends <= each.at or each.job is job:
                continue
            if self._displaces(job, each, entitled=entitled) and _intrudes(job, slots, each):
                self.drop(each.job)
                continue
            for slot in slots:
                if slot.node in each.spare:
                    amounts, parts = each.spare[slot.node]
                    request = job.requests[slot.role]
                    amounts = amounts - np.asarray(request.amounts, np.int64)
                    parts = parts.copy()
                    for gpu in slot.gpus:
                        parts[gpu] -= request.share or 1000
                    each.spare[slot.node] = (np.maximum(amounts, 0), np.maximum(parts, 0))


def _given_back(own: Reservation, node: int, amounts: Ints, slots: Ints) -> tuple[Ints, Ints]:
    """What is spare on a node without the need of a job's own reservation."""
    mine = [slot for slot in own.slots if slot.node == node]
    if not mine:
        return amounts, slots
    amounts, slots = amounts.copy(), slots.copy()
    for slot in mine:
        request = own.job.requests[slot.role]
        amounts += np.asarray(request.amounts, np.int64)
        for gpu in slot.gpus:
            slots[gpu] += request.share or 1000
    return amounts, slots


def _intrudes(job: JobState, slots: Sequence[Slot], reservation: Reservation) -> bool:
    """Whether the slots use more than is spare on the reservation's nodes."""
    used: dict[int, tuple[Ints, Ints]] = {}
    for slot in slots:
        if slot.node not in reservation.spare:
            continue
        amounts, parts = used.get(slot.node) or tuple(
            each.copy() for each in reservation.spare[slot.node]
        )
        request = job.requests[slot.role]
        amounts -= np.asarray(request.amounts, np.int64)
        for gpu in slot.gpus:
            parts[gpu] -= request.share or 1000
        used[slot.node] = (amounts, parts)
    return any((amounts < 0).any() or (parts < 0).any() for amounts, parts in used.values())
