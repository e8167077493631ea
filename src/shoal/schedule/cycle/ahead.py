"""Where those start who were told a date: their places are kept track of, node by node and GPU by GPU.

A date holds only if there is a place for it, and eight GPUs that are free are no place for two tasks of
four. So a date is told with the place that it counts on; the place is remembered with the date, and
whoever is put anywhere while the job waits, and would still be there at that date, is put elsewhere.
What was laid once can then be laid again in every later plan: those who run only end sooner than they
might, and those who come are laid beside it.

The first few who wait are told dates in this way (`Rules.promises`); for the others there is an estimate
from sums (`dates`). Where all tasks are of one shape, sums are as good, and nobody needs this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.future import Free, Future, taken
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.placing.asks import Ints, Placement, Shape
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["Ahead", "Laid"]

_FEW = 64
"""So many instants are tried one by one; of more only every so many."""
_LOOKS = 5000
"""An earlier place is looked for where there are no more instants times nodes than that."""


@dataclass(frozen=True)
class Laid:
    """One job, its date, and its place."""

    asked: Asked
    start: Stamp
    end: Stamp
    place: Placement

    @cached_property
    def nodes(self) -> Ints:
        """Where that is, ascending."""
        return _nodes_of(self.place)

    @cached_property
    def on(self) -> frozenset[int]:
        """The same."""
        return frozenset(self.nodes.tolist())


class Ahead:
    """Of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._laid: dict[str, Laid] = {}
        self._lacking: dict[tuple[bool, tuple[str, ...]], tuple[Ints, Free]] = {}
        self._future: Future | None = None
        self._made_at = (-1, -1)
        self._doubtful: set[str] = set()
        self.exact = False
        """Whether dates are told with places."""
        self.places: list[int] | None = None
        """Where they need not be: what all tasks take, in sums, for which there are places."""
        for asked in desk.asked.values():
            if asked.job.promised is not None and asked.job.place and not asked.present:
                self._lay(asked, asked.job.promised, asked.placement(asked.job.place))

    def review(self, waiting: Sequence[Asked]) -> None:
        """Of those that wait, who was told a date has the place that it was told with, from then on or
        earlier; or another one then; or, where there is none any more, the next that there is."""
        told = [asked for asked in waiting if asked.job.promised is not None and not asked.present]
        self.places = _places(self._desk)
        self.exact = self.places is None
        before, self._laid = self._laid, {}
        if not self.exact or not told:
            return
        told.sort(key=lambda each: (-each.job.priority, each.job.promised, each.job.name))
        self._renew()
        late = [asked for asked in told if not self._as_it_was(asked, before.get(asked.job.name))]
        for asked in late:
            self.find(asked, asked.job.promised or self._desk.now)
        for each in self.all():
            self._sooner(each)

    def look_again(self) -> None:
        """Earlier, where this plan has made that possible: before places are lent."""
        if self._laid and self._desk.effects:
            self._renew()
            for each in self.all():
                if not self.lost(each.asked):
                    self._sooner(each)

    def all(self) -> list[Laid]:
        """Those who have not got a place in this plan by now, the earliest date first."""
        settled = self._desk.settled
        there = [each for name, each in self._laid.items() if name not in settled]
        return sorted(there, key=lambda each: (each.start, each.asked.job.name))

    def of(self, asked: Asked) -> Laid | None:
        """Its date and place."""
        return self._laid.get(asked.job.name)

    def doubt(self, asked: Asked) -> None:
        """Its place may be somebody else's by now."""
        self._doubtful.add(asked.job.name)

    def lost(self, asked: Asked) -> bool:
        """Whether it has lost the place that it counted on, to a job of a higher class, in this plan."""
        laid = self._laid.get(asked.job.name)
        if laid is None or asked.job.name not in self._doubtful:
            return False
        self._doubtful.discard(asked.job.name)
        self._renew()
        return not self._there(asked, laid, laid.start, self._others(asked, math.inf))

    def find(self, asked: Asked, since: Stamp) -> Laid | None:
        """Lay it as early as there is a place for it, not before `since`; None: nowhere, ever."""
        desk = self._desk
        self._laid.pop(asked.job.name, None)
        self._renew()
        others = self._others(asked, math.inf)
        instants = self._instants(asked, max(since, desk.now), math.inf, others)
        found = self._first(instants, lambda at: self._placed(asked, at, others))
        if found is None or (found[0] <= desk.now and asked.job.promised is None):
            return None  # never, or something else is in its way
        return self._lay(asked, *found)

    @contextmanager
    def apart(
        self, room: Room, asked: Asked, until: Stamp, keeps: Callable[[Laid], bool] | None = None
    ) -> Generator[None]:
        """Meanwhile the room lacks what others count on before `until`, who are of no lower class than
        this job. What is free in the room once those have gone who give way in this plan may be kept
        for somebody; `keeps`: for whom it is."""
        others = self._others(asked, until, keeps)
        if not others:
            yield
            return
        nodes, lacks = self._needed(others, room is self._desk.current.room)
        mark = room.mark()
        room.less(nodes, lacks.amounts, lacks.parts)
        try:
            yield
            if room.mark() > mark + 1:
                self._doubtful.update(self._laid)
        finally:
            if room.mark() == mark + 1:
                room.rollback(mark)  # as if nothing had been looked at
            else:
                room.less(nodes, -lacks.amounts, -lacks.parts)

    def beside(
        self,
        room: Room,
        asked: Asked,
        until: Stamp,
        find: Callable[[], Placement | None],
        keeps: Callable[[Laid], bool] | None = None,
    ) -> Placement | None:
        """What `find` takes in the room when it is `apart`. Mostly it is far from others anyway."""
        mark = room.mark()
        found = find()
        if found is None or not self._laid:
            return found
        others = self._others(asked, until, keeps)
        if self._on_places_of(others, found):
            room.rollback(mark)
            with self.apart(room, asked, until, keeps):
                found = find()
        if found is not None and keeps is None:
            lower = [each for each in self.all() if each.asked.job.priority < asked.job.priority]
            if self._on_places_of(lower, found):
                self._doubtful.update(each.asked.job.name for each in lower)
        return found

    def unlent(self, room: Room, asked: Asked, find: Callable[[], Placement | None]) -> Placement | None:
        """As `beside`, for a job that grows: others keep what it cannot be asked to give back again."""
        return self.beside(room, asked, self._ends(asked), find, self._kept_from(asked))

    def without_loans(self, room: Room, asked: Asked) -> AbstractContextManager[None]:
        """As `apart`, for a job that grows by what is asked back for it."""
        return self.apart(room, asked, self._ends(asked), self._kept_from(asked))

    def _ends(self, asked: Asked) -> Stamp:
        return self._desk.began(asked.job) + asked.job.longest_seconds

    def _kept_from(self, asked: Asked) -> Callable[[Laid], bool]:
        """For whom it cannot be asked to give anything back: jobs of other queues, and of lower classes;
        and those for whom it is too late for that."""
        job, soon = asked.job, self._desk.now + self._desk.rules.notice_seconds

        def keeps(each: Laid) -> bool:
            other = each.asked
            lends = job.preemptible and other.queue == asked.queue and other.job.priority >= job.priority
            return each.start <= soon or not lends

        return keeps

    # laying

    def _lay(self, asked: Asked, start: Stamp, where: Placement) -> Laid:
        start = max(start, self._desk.now)
        found = Laid(asked, start, start + self._length(asked), where)
        self._laid[asked.job.name] = found
        self._lacking.clear()
        return found

    def _length(self, asked: Asked) -> float:
        longest, turn = asked.job.longest_seconds, self._desk.rules.minimum_run_seconds
        return turn if turn and math.isinf(longest) else longest

    def _as_it_was(self, asked: Asked, before: Laid | None) -> bool:
        """At its date, or, where that is a matter of seconds, a little later: in its place, else in
        another."""
        desk = self._desk
        date = max(before.start if before is not None else asked.job.promised or 0.0, desk.now)
        others = self._others(asked, math.inf)
        if before is not None and _whole(asked, before.place):
            soon = date + desk.rules.notice_seconds
            instants = self._instants(asked, date, soon, others, before.nodes)
            for at in instants:
                if self._there(asked, before, at, others):
                    self._lay(asked, at, before.place)
                    return True
        found = self._placed(asked, date, others)
        if found is not None:
            self._lay(asked, date, found)
        return found is not None

    def _sooner(self, each: Laid) -> None:
        """Earlier, if there is a place; where much goes on, in its own alone."""
        asked, now = each.asked, self._desk.now
        if each.start <= now:
            return
        others = self._others(asked, math.inf)
        instants = self._instants(asked, now, each.start, others)
        few = len(instants) * self._desk.columns.nodes.topology.nodes <= _LOOKS
        mine = instants if few else self._instants(asked, now, each.start, others, each.nodes)
        for at in mine:
            found = None
            if self._there(asked, each, at, others):
                found = each.place
            elif few:
                found = self._placed(asked, at, others)
            if found is not None:
                self._lay(asked, at, found)
                return

    def _instants(
        self,
        asked: Asked,
        since: Stamp,
        until: Stamp,
        others: Iterable[Laid],
        nodes: Ints | None = None,
    ) -> list[Stamp]:
        """`since`, and when something comes free after that, on these nodes or anywhere."""
        assert self._future is not None
        ends = {each.end for each in others if since < each.end < until}
        return [since, *sorted(ends.union(self._future.instants(asked, since, until, nodes)))]

    def _first(
        self, instants: Sequence[Stamp], found: Callable[[Stamp], Placement | None]
    ) -> tuple[Stamp, Placement] | None:
        """The first at which there is a place. Of many instants one that is not much later: steps are
        doubled until there is a place, and then halved."""
        if len(instants) <= _FEW:
            for at in instants:
                if (there := found(at)) is not None:
                    return at, there
            return None
        low, high, step = -1, 0, 1
        best = found(instants[high])
        while best is None and high < len(instants) - 1:
            low, high = high, min(high + step, len(instants) - 1)
            step *= 2
            best = found(instants[high])
        if best is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            there = found(instants[middle])
            if there is None:
                low = middle
            else:
                high, best = middle, there
        return instants[high], best

    # what there is

    def _renew(self) -> None:
        """What is free in time, as things stand by now."""
        desk = self._desk
        made_at = (desk.effects, desk.later.room.mark())
        if self._future is None or made_at != self._made_at:
            self._future, self._made_at = Future(desk), made_at
            self._lacking.clear()

    def _others(
        self, asked: Asked, until: Stamp, keeps: Callable[[Laid], bool] | None = None
    ) -> list[Laid]:
        """Who counts on a place before `until`, and does not give way to this job: who is of no lower
        class, unless `keeps` says otherwise."""
        job = asked.job
        return [
            each
            for each in self.all()
            if each.start < until
            and each.asked.job.name != job.name
            and (keeps(each) if keeps is not None else each.asked.job.priority >= job.priority)
        ]

    def _on_places_of(self, some: Sequence[Laid], found: Placement) -> bool:
        on = {node for tasks in found for node in tasks.node.tolist()}
        return not all(on.isdisjoint(each.on) for each in some)

    def _placed(self, asked: Asked, at: Stamp, others: Sequence[Laid]) -> Placement | None:
        """A place from then on."""
        free = self._window(asked, at, others, None)
        room = Room.of(self._desk.columns.nodes, free.amounts, free.parts.astype(np.int32))
        return place(room, asked.gang(asked.minimum, asked.minimum))

    def _there(self, asked: Asked, laid: Laid, at: Stamp, others: Sequence[Laid]) -> bool:
        """Whether just this place is free from then on, on nodes that suit."""
        where, nodes = laid.place, laid.nodes
        suits = self._desk.columns.nodes.suits
        if not all(suits[tasks.shape.suits, tasks.node].all() for tasks in where):
            return False
        near = [each for each in others if not laid.on.isdisjoint(each.on)]
        free = self._window(asked, at, near, nodes)
        used = taken(where, nodes, free.parts.shape[1])
        amounts = (used.amounts <= free.amounts) | (used.amounts == 0)
        return bool(amounts.all() and ((used.parts <= free.parts) | (used.parts == 0)).all())

    def _window(self, asked: Asked, start: Stamp, others: Sequence[Laid], nodes: Ints | None) -> Free:
        """What is free all the time from `start` on, for as long as the job may run."""
        assert self._future is not None
        end = start + self._length(asked)
        found = self._future.at(asked, start, nodes)
        moments = {start, *(each.start for each in others if start < each.start < end)}
        for at in sorted(moments):
            there = [each for each in others if each.start <= at < each.end]
            if not there:
                continue
            those = _nodes(there)
            if nodes is not None:
                those = np.intersect1d(those, nodes)
            rows = those if nodes is None else np.searchsorted(nodes, those)
            free = self._future.at(asked, at, those)
            for each in there:
                used = taken(each.place, those, free.parts.shape[1])
                free = Free(free.amounts - used.amounts, free.parts - used.parts)
            found.amounts[rows] = np.minimum(found.amounts[rows], free.amounts)
            found.parts[rows] = np.minimum(found.parts[rows], free.parts)
        return found

    def _needed(self, others: Sequence[Laid], now: bool) -> tuple[Ints, Free]:
        """What others need, and on which nodes: at most at any moment; and where `now` says so, of that
        what does not come free by then."""
        key = (now, tuple(each.asked.job.name for each in others))
        found = self._lacking.get(key)
        if found is None:
            nodes = _nodes(others)
            found = self._lacking[key] = nodes, self._most(others, nodes, now)
        return found

    def _most(self, others: Sequence[Laid], nodes: Ints, now: bool) -> Free:
        slots = self._desk.columns.nodes.slots.shape[1]
        future = self._future if now else None
        amounts = np.zeros((len(nodes), self._desk.columns.nodes.total.shape[1]), dtype=np.int64)
        parts = np.zeros((len(nodes), slots), dtype=np.int64)
        for each in others:
            there = [other for other in others if other.start <= each.start < other.end]
            used = [taken(other.place, nodes, slots) for other in there]
            more, most = sum(use.amounts for use in used), sum(use.parts for use in used)
            if future is not None:
                at_first = future.at(each.asked, self._desk.now - 1.0, nodes)
                by_then = future.at(each.asked, each.start, nodes)
                more = more - (by_then.amounts - at_first.amounts)
                most = most - (by_then.parts - at_first.parts)
            amounts, parts = np.maximum(amounts, more), np.maximum(parts, most)
        return Free(amounts, parts)


def _places(desk: Desk) -> list[int] | None:
    """What as many tasks take as there are places for, if all there are are alike and may be anywhere;
    else None."""
    nodes = desk.columns.nodes
    known: set[int] = set()
    alike: dict[Shape, tuple[int, ...]] = {}
    for asked in desk.asked.values():
        if asked.need in known:
            continue
        known.add(asked.need)
        bound = any(role.required for role in asked.job.roles)
        if bound or asked.reach.required is not None:
            return None
        alike.update(zip(asked.shapes, asked.needs.whole, strict=True))
        if len(alike) > 1:
            return None
    if not alike or not nodes.suits.all():
        return None
    ((shape, whole),) = alike.items()
    count = int(Room(nodes).fits(shape).total)
    return [count * amount for amount in whole]


def _whole(asked: Asked, where: Placement) -> bool:
    """Whether that is its minimum still."""
    return reached([len(tasks) for tasks in where], asked.minimum)


def _nodes_of(where: Placement) -> Ints:
    return np.unique(np.concatenate([tasks.node for tasks in where]))


def _nodes(some: Sequence[Laid]) -> Ints:
    return np.unique(np.concatenate([each.nodes for each in some]))
