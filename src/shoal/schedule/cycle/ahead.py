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
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.cycle.laid import Laid, nodes_of
from shoal.schedule.cycle.ranks import Ranks
from shoal.schedule.cycle.windows import Windows
from shoal.schedule.placing.asks import Ints, Placement, Shape
from shoal.schedule.placing.room import Room
from shoal.schedule.shares.ledger import CLUSTER

__all__ = ["Ahead"]

_LOOKS = 5000
"""An earlier place is looked for where there are no more instants times nodes than that."""


class Ahead:
    """Of one decision."""

    def __init__(self, desk: Desk, ranks: Ranks) -> None:
        self._desk, self._ranks = desk, ranks
        self._laid: dict[str, Laid] = {}
        self._order: list[Laid] | None = None
        """As `all` has it, for so many who had a place in this plan:"""
        self._order_of = -1
        self._lacking: dict[tuple[bool, tuple[str, ...]], tuple[Ints, Ints]] = {}
        self._windows = Windows(desk)
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
        told = [each for each in waiting if each.job.promised is not None and self._may_keep(each)]
        self.places = _places(self._desk)
        self.exact = self.places is None
        before, self._laid, self._order = self._laid, {}, None
        if not self.exact or not told:
            return
        told.sort(key=lambda each: (-self._desk.class_of(each), each.job.promised, each.job.name))
        self._look()
        late = [asked for asked in told if not self._as_it_was(asked, before.get(asked.job.name))]
        for asked in late:
            self.find(asked, asked.job.promised or self._desk.now)
        for each in self.all():
            self._sooner(each)

    def _may_keep(self, asked: Asked) -> bool:
        """Whether it still waits for what the cluster has, and not for its queue to allow it."""
        refused = None if asked.present else self._desk.later.refusal(asked, asked.lacks)
        return not asked.present and (refused is None or refused.queue == CLUSTER)

    def look_again(self) -> None:
        """Earlier, where this plan has made that possible: before places are lent."""
        if self._laid and self._desk.effects:
            self._look()
            for each in self.all():
                if not self.lost(each.asked):
                    self._sooner(each)

    def all(self) -> list[Laid]:
        """Those who have not got a place in this plan by now, the earliest date first."""
        desk = self._desk
        if self._order is not None and self._order_of == desk.effects:
            return self._order
        there = [each for name, each in self._laid.items() if name not in desk.settled]
        self._order = sorted(there, key=lambda each: (each.start, each.asked.job.name))
        self._order_of = desk.effects
        return self._order

    def of(self, asked: Asked) -> Laid | None:
        """Its date and place."""
        return self._laid.get(asked.job.name)

    def doubt(self, asked: Asked) -> None:
        """Its place may be somebody else's by now."""
        self._doubtful.add(asked.job.name)

    def lost(self, asked: Asked) -> bool:
        """Whether it has lost the place that it counted on, to who has a better right, in this plan."""
        laid = self._laid.get(asked.job.name)
        if laid is None or asked.job.name not in self._doubtful:
            return False
        self._doubtful.discard(asked.job.name)
        self._look()
        return not self._windows.there(asked, laid, laid.start, self._others(asked, math.inf))

    def find(self, asked: Asked, since: Stamp) -> Laid | None:
        """Lay it as early as there is a place for it, not before `since`; None: nowhere, ever."""
        desk = self._desk
        self._laid.pop(asked.job.name, None)
        self._order = None
        self._look()
        others = self._others(asked, math.inf)
        instants = self._windows.instants(asked, max(since, desk.now), math.inf, others)
        found = self._windows.first(instants, lambda at: self._windows.placed(asked, at, others))
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
        mark = room.mark()
        if not others:
            yield
            if room.mark() > mark:
                self._doubtful.update(self._laid)
            return
        nodes, lacks = self._needed(others, room is self._desk.current.room)
        amounts, parts = self._windows.split(lacks)
        room.less(nodes, amounts, parts)
        try:
            yield
            if room.mark() > mark + 1:
                self._doubtful.update(self._laid)
        finally:
            if room.mark() == mark + 1:
                room.rollback(mark)  # as if nothing had been looked at
            else:
                room.less(nodes, -amounts, -parts)

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
            lower = [each for each in self.all() if self._ranks.above(asked, each.asked)]
            if self._on_places_of(lower, found):
                self._doubtful.update(each.asked.job.name for each in lower)
        return found

    def unlent(self, room: Room, asked: Asked, find: Callable[[], Placement | None]) -> Placement | None:
        """As `beside`, for a job that grows: others keep what it cannot be asked to give back again."""
        return self.beside(room, asked, self._desk.ends(asked.job), find, self._kept_from(asked))

    def kept_clear_of(self, asked: Asked) -> frozenset[str]:
        """Whose places are kept from it when it grows."""
        others = self._others(asked, self._desk.ends(asked.job), self._kept_from(asked))
        return frozenset(each.asked.job.name for each in others)

    def without_loans(self, room: Room, asked: Asked) -> AbstractContextManager[None]:
        """As `apart`, for a job that grows by what is asked back for it."""
        return self.apart(room, asked, self._desk.ends(asked.job), self._kept_from(asked))

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
        found = Laid(asked, start, start + self._windows.length(asked), where, self._windows.wide)
        self._laid[asked.job.name] = found
        self._order = None
        self._lacking.clear()
        return found

    def _as_it_was(self, asked: Asked, before: Laid | None) -> bool:
        """At its date, or, where that is a matter of seconds, a little later: in its place, else in
        another."""
        desk = self._desk
        date = max(before.start if before is not None else asked.job.promised or 0.0, desk.now)
        others = self._others(asked, math.inf)
        if before is not None and _whole(asked, before.place):
            soon = date + desk.rules.notice_seconds
            instants = self._windows.instants(asked, date, soon, others, before.nodes)
            for at in instants:
                if self._windows.there(asked, before, at, others):
                    self._lay(asked, at, before.place)
                    return True
        found = self._windows.placed(asked, date, others)
        if found is not None:
            self._lay(asked, date, found)
        return found is not None

    def _sooner(self, each: Laid) -> None:
        """Earlier, if there is a place; where much goes on, in its own alone."""
        asked, now = each.asked, self._desk.now
        if each.start <= now:
            return
        others = self._others(asked, math.inf)
        instants = self._windows.instants(asked, now, each.start, others)
        few = len(instants) * self._desk.columns.nodes.topology.nodes <= _LOOKS
        mine = instants if few else self._windows.instants(asked, now, each.start, others, each.nodes)
        for at in mine:
            found = None
            if self._windows.there(asked, each, at, others):
                found = each.place
            elif few:
                found = self._windows.placed(asked, at, others)
            if found is not None:
                self._lay(asked, at, found)
                return

    # what there is

    def _look(self) -> None:
        if self._windows.renew():
            self._lacking = {key: found for key, found in self._lacking.items() if not key[0]}

    def _others(
        self, asked: Asked, until: Stamp, keeps: Callable[[Laid], bool] | None = None
    ) -> list[Laid]:
        """Who counts on a place before `until`, and does not give way to this job: who is of no lower
        class, unless `keeps` says otherwise."""
        return [
            each
            for each in self.all()
            if each.start < until
            and each.asked.job.name != asked.job.name
            and (keeps(each) if keeps is not None else not self._ranks.above(asked, each.asked))
        ]

    def _on_places_of(self, some: Sequence[Laid], found: Placement) -> bool:
        on = {node for tasks in found for node in tasks.node.tolist()}
        return not all(on.isdisjoint(each.on) for each in some)

    def _needed(self, others: Sequence[Laid], now: bool) -> tuple[Ints, Ints]:
        """What others need, and on which nodes: at most at any moment; and where `now` says so, of that
        what does not come free by then."""
        key = (now, tuple(each.asked.job.name for each in others))
        found = self._lacking.get(key)
        if found is None:
            nodes = nodes_of(others)
            found = self._lacking[key] = nodes, self._windows.most(others, nodes, now)
        return found


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
