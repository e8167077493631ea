"""Reservations: the first blocked jobs get nodes and a start, and others run on them until then.

One availability profile answers "when": what is idle, what ends at its wall time, what is reserved. A
job whose start depends on jobs of unknown length has no date, and holds nothing until it starves.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shoal.objects.meta import Stamp
from shoal.schedule.core.placement import place
from shoal.schedule.core.session import Session, ends_at
from shoal.schedule.core.state import Capacity, JobState, Slot

__all__ = ["Profile", "Reservation"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_BOOKS = 64
"""Times for which the nodes' capacity is remembered."""


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


class _Ends:
    """Jobs of the rows that end at a known time, first first, as columns."""

    def __init__(self, session: Session) -> None:
        base, index = session.base, session.nodes.index
        found: list[_Release] = []
        for job in base.jobs.values():
            if not job.present or math.isinf(ends := ends_at(job.row, session.now)):
                continue
            slots = [
                Slot(job.role(task.role), index[task.node], task.gpus)
                for task in job.present
                if task.node in index
            ]
            load = job.load(job.counts(), new=True)
            found.append(_Release(max(ends, session.now), job, slots, load))
        found.sort(key=lambda each: (each.at, each.job.name))
        self.releases = found
        self.number = {each.job.name: at for at, each in enumerate(found)}
        self.times = [each.at for each in found]
        self.load = np.array([each.load for each in found]).reshape(
            len(found), len(session.queues.resources)
        )
        self.queue = np.array([each.job.queue for each in found], np.int64)
        slots = [(at, each.job, slot) for at, each in enumerate(found) for slot in each.slots]
        gpus = [(at, job, slot, gpu) for at, job, slot in slots for gpu in slot.gpus]
        amounts = [job.requests[slot.role].amounts for _, job, slot in slots]
        self.release = np.array([at for at, _, _ in slots], np.int64)
        self.node = np.array([slot.node for _, _, slot in slots], np.int64)
        self.amounts = np.array(amounts, np.int64).reshape(len(slots), len(session.nodes.resources))
        self.gpu_release = np.array([at for at, *_ in gpus], np.int64)
        self.gpu_node = np.array([slot.node for _, _, slot, _ in gpus], np.int64)
        self.gpu = np.array([gpu for *_, gpu in gpus], np.int64)
        shares = [job.requests[slot.role].share or 1000 for _, job, slot, _ in gpus]
        self.part = np.array(shares, np.int64)
        paths = session.queues.paths
        depth = max((len(path) for path in paths), default=0)
        self.above = [
            np.array([path[at] if at < len(path) else -1 for path in paths], np.int64)
            for at in range(depth)
        ]
        self._freed: dict[int, Floats] = {}
        self._books: dict[int, tuple[Ints, Ints]] = {}

    def until(self, at: Stamp) -> int:
        """How many end until then."""
        return bisect_right(self.times, at)

    def freed(self, count: int, shape: tuple[int, ...]) -> Floats:
        """What the first so many give back to queues; not to be changed by the caller."""
        if count not in self._freed:
            found: Floats = np.zeros(shape)
            for above in self.above:
                each = above[self.queue[:count]]
                np.add.at(found, each[each >= 0], self.load[:count][each >= 0])
            self._freed[count] = found
        return self._freed[count]

    def given(self, count: int, nodes: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[Ints, Ints]:
        """What the first so many give back to nodes; not to be changed by the caller."""
        if count not in self._books:
            if len(self._books) >= _MOST_BOOKS:
                self._books.clear()
            amounts, slots = np.zeros(nodes[0], np.int64), np.zeros(nodes[1], np.int64)
            tasks = int(np.searchsorted(self.release, count))
            parts = int(np.searchsorted(self.gpu_release, count))
            np.add.at(amounts, self.node[:tasks], self.amounts[:tasks])
            np.add.at(slots, (self.gpu_node[:parts], self.gpu[:parts]), self.part[:parts])
            self._books[count] = (amounts, slots)
        return self._books[count]


@dataclass(frozen=True)
class _Ended:
    """What has ended by a time: the first of the rows' jobs, but for some, and others."""

    count: int
    without: list[_Release]
    others: list[_Release]


class Profile:
    """Availability over time, with the reservations made so far."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.reservations: list[Reservation] = []
        self._ends: _Ends | None = None
        self._changed: tuple[list[_Release], list[_Release]] = ([], [])
        self._version = -1
        self._dates: dict[int, Stamp] = {}
        """Of the last job of each kind: an equal one starts no earlier."""

    # making

    def date(
        self, job: JobState, counts: Sequence[int], *, keep: Sequence[Slot] = (), recall: bool = False
    ) -> tuple[Stamp, list[Slot]] | None:
        """The earliest start and its nodes; None where no date can be computed. `keep`: nodes that it
        has been promised: elastic surplus there is recalled in time. `recall`: so is surplus of its own
        queue anywhere."""
        session = self.session
        promised = job.row.promised
        if keep and promised is not None and promised > session.now:
            found = self._fits_at(job, counts, promised, keep, recall)
            if found is not None:  # an earlier date has been looked for on all nodes
                return promised, found
        ends, (_, others) = self._rows(), self._dynamic()
        times = sorted(
            {session.now, *ends.times}
            | {each.at for each in others}
            | {each.until for each in self.reservations if not math.isinf(each.until)}
        )
        low, high = 0, len(times) - 1
        exact = not keep and not recall
        before = -math.inf if not exact else self._dates.get(job.kind, -math.inf)
        low = next((at for at, each in enumerate(times) if each >= before), high)
        for at in range(low, min(low + 2, high + 1)):  # most often equal jobs start one after the other
            found = self._fits_at(job, counts, times[at], keep, recall)
            if found is not None:
                if exact:
                    self._dates[job.kind] = times[at]
                return times[at], found
        low = min(low + 2, high)
        last = self._fits_at(job, counts, times[high], keep, recall)
        if last is None:
            return None
        best = (times[high], last)
        while low < high:
            middle = (low + high) // 2
            found = self._fits_at(job, counts, times[middle], keep, recall)
            if found is None:
                low = middle + 1
            else:
                high = middle
                best = (times[middle], found)
        if exact:
            self._dates[job.kind] = best[0]
        return best

    def _rows(self) -> _Ends:
        if self._ends is None:
            self._ends = _Ends(self.session)
        return self._ends

    def _dynamic(self) -> tuple[list[_Release], list[_Release]]:
        """Releases of rows that do not hold any more, and those that do instead: of jobs that started
        or lost tasks in this decision."""
        session = self.session
        version = len(session.started) + len(session.grown) + len(session.evictions)
        if version == self._version:
            return self._changed
        ends = self._rows()
        names = session.present.keys() | session.started.keys() | session.grown.keys()
        without = [ends.releases[ends.number[name]] for name in names if name in ends.number]
        others: list[_Release] = []
        for name in sorted(names):
            job = session.jobs[name]
            started, tasks = session.started.get(name), session.tasks(job)
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
            slots += started or session.grown.get(name, [])
            counts = [0] * len(job.requests)
            for slot in slots:
                counts[slot.role] += 1
            others.append(_Release(max(at, session.now), job, slots, job.load(counts, new=True)))
        self._changed, self._version = (without, others), version
        return self._changed

    def _until(self, at: Stamp) -> _Ended:
        without, others = self._dynamic()
        return _Ended(
            self._rows().until(at),
            [each for each in without if each.at <= at],
            [each for each in others if each.at <= at],
        )

    def _ended_jobs(self, ended: _Ended) -> Iterator[_Release]:
        gone = {each.job.name for each in ended.without}
        for each in self._rows().releases[: ended.count]:
            if each.job.name not in gone:
                yield each
        yield from ended.others

    def _given(self, ended: _Ended) -> Floats:
        """What queues get back."""
        queues = self.session.queues
        found = self._rows().freed(ended.count, queues.stays.shape).copy()
        for sign, releases in ((-1.0, ended.without), (1.0, ended.others)):
            for each in releases:
                found[queues.paths[each.job.queue]] += sign * each.load
        return found

    def _fits_at(
        self, job: JobState, counts: Sequence[int], at: Stamp, keep: Sequence[Slot], recall: bool
    ) -> list[Slot] | None:
        session = self.session
        book, freed, users = self._book(at, job)
        if keep or recall:
            self._recall(book, job, at, None if recall else {slot.node for slot in keep})
        load = job.load(counts, new=not job.row.tasks)
        if not self._allowed(job, load, at, freed, users):
            return None
        mask = None
        if keep:
            mask = np.zeros(len(session.nodes.rows), np.bool_)
            mask[[slot.node for slot in keep]] = True
        return place(session.nodes, book, job, counts, within=mask)

    def _book(self, at: Stamp, job: JobState) -> tuple[Capacity, Floats, _Ended]:
        """Capacity at a time, for a job: releases until then, minus reservations."""
        session = self.session
        ended = self._until(at)
        later = session.later
        amounts, slots = self._rows().given(ended.count, (later.amounts.shape, later.slots.shape))
        book = Capacity(later.amounts + amounts, later.slots + slots)
        for sign, releases in ((-1, ended.without), (1, ended.others)):
            for each in releases:
                for slot in each.slots:
                    request = each.job.requests[slot.role]
                    if request.amounts:
                        book.amounts[slot.node] += sign * np.asarray(request.amounts, np.int64)
                    for gpu in slot.gpus:
                        book.slots[slot.node, gpu] += sign * (request.share or 1000)
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
            freed = self._given(ended)
            for each in overlapping:
                freed[session.queues.paths[each.job.queue]] -= each.load
        return book, freed, ended

    def _recall(self, book: Capacity, job: JobState, at: Stamp, nodes: set[int] | None) -> None:
        """Elastic surplus on these nodes, else that of the job's queue, counts as free: it is taken back
        in time."""
        session = self.session
        for other in session.jobs.values():
            if other is job or not other.row.preemptible or other.row.priority > job.row.priority:
                continue
            if nodes is None and other.queue != job.queue:
                continue
            if ends_at(other.row, session.now) <= at:  # all of it is free by then
                continue
            present = {(task.role, task.index) for task in session.tasks(other)}
            for task in other.surplus() if present else ():
                node = session.nodes.index.get(task.node, -1)
                kept = (task.role, task.index) in present
                if kept and (node >= 0 if nodes is None else node in nodes):
                    book.change(node, other.requests[other.role(task.role)], task.gpus, +1)

    def _allowed(self, job: JobState, load: Floats, at: Stamp, freed: Floats, ended: _Ended) -> bool:
        """Whether limits and licences permit the start then."""
        session, queues = self.session, self.session.queues
        if not queues.binding[job.queue] and not job.row.shared:
            return True
        stays, users = queues.stays, queues.users
        queues.stays = stays - freed
        left = dict(users)
        for each in self._ended_jobs(ended) if left else ():
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
            free += sum(each.job.row.shared.get(name, 0) for each in self._ended_jobs(ended))
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
        other = job.queue != reservation.job.queue  # inside a queue its own order holds
        return entitled and other and not reservation.entitled

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
            ended = self._until(each.at)
            freed = self._given(ended)
            freed[session.queues.paths[job.queue]] -= load
            if not self._allowed(each.job, each.load, each.at, freed, ended):
                return False
        return True

    def _licence(self, name: str, ask: int, reservation: Reservation) -> bool:
        free = self.session.licences.get(name, 0) - ask
        free += sum(
            each.job.row.shared.get(name, 0) for each in self._ended_jobs(self._until(reservation.at))
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
