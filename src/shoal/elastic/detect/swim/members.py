"""The table of members, and which news about them wins: SWIM's order of alive, suspect and dead.

News of a higher incarnation beats news of a lower; at the same incarnation suspect beats alive, dead
beats both, and nothing revives the dead. Only a member itself raises its incarnation, by refuting what
is said about it. Applying news twice, or late, changes nothing. With the table: how well this member
itself does (`Awareness`, Lifeguard), how long a suspicion lasts, and what is still to be passed on
(`Gossip`: what was sent least goes first, and nothing is sent for ever).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shoal.elastic.detect.swim.messages import Alive, Dead, Row, State, Suspect, encode
from shoal.elastic.detect.swim.settings import Settings

__all__ = ["Awareness", "Change", "Gossip", "Known", "Members", "News", "Suspicion"]


class Awareness:
    """A score from 0 (healthy) to `limit` - 1; times are multiplied by score + 1."""

    def __init__(self, limit: int, score: int = 0) -> None:
        self._limit = limit
        self.score = score

    def apply(self, delta: int) -> None:
        """Something went well (negative) or badly here."""
        self.score = max(0, min(self._limit - 1, self.score + delta))

    def scale(self, seconds: float) -> float:
        """A time for others, seen from here."""
        return seconds * (self.score + 1)


class Suspicion:
    """A suspicion raised at `began` (monotonic) by `accuser`; lengths in seconds.

    Its length is max - log(c + 1) / log(k + 1) * (max - min), c being the number of distinct others that
    confirmed it and k the number wanted (Lifeguard, section IV-B); min when k is 0.
    """

    def __init__(self, accuser: str, began: float, shortest: float, longest: float, wanted: int) -> None:
        self._began = began
        self._shortest = shortest
        self._longest = longest
        self._wanted = wanted
        self._accusers = {accuser}
        self._postponed = 0.0

    @property
    def ends_at(self) -> float:
        """When the member is to be declared dead; may be past already."""
        if self._wanted < 1:
            return self._began + self._shortest + self._postponed
        share = math.log(len(self._accusers)) / math.log(self._wanted + 1)
        length = max(self._shortest, self._longest - share * (self._longest - self._shortest))
        return self._began + length + self._postponed

    def confirm(self, accuser: str) -> bool:
        """Another member suspects it, too; True when that is news worth passing on."""
        if len(self._accusers) > self._wanted or accuser in self._accusers:
            return False
        self._accusers.add(accuser)
        return True

    def postpone(self, seconds: float) -> None:
        """We were not awake for so long and could not have got a refutation."""
        self._postponed += seconds


News = Alive | Suspect | Dead


class Gossip:
    """At most one piece of news about each member: a later one takes the place of an earlier."""

    def __init__(self) -> None:
        self._queue: dict[str, tuple[int, int, bytes]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, news: News) -> None:
        """To be spread from now on."""
        self._added += 1
        self._queue[news.name] = (0, -self._added, encode(news))

    def take(self, room_bytes: int, transmits: int) -> list[bytes]:
        """Messages for one packet, each with its comma in the room; counted as sent once more."""
        if not self._queue:
            return []
        taken: list[bytes] = []
        # of those that were sent equally often the newest goes first
        for sent, age, encoded, name in sorted((*entry, name) for name, entry in self._queue.items()):
            if len(encoded) + 1 > room_bytes:
                continue
            room_bytes -= len(encoded) + 1
            taken.append(encoded)
            if sent + 1 >= transmits:
                del self._queue[name]
            else:
                self._queue[name] = (sent + 1, age, encoded)
        return taken


Kind = Literal["joined", "suspect", "alive", "dead", "left", "conflict", "reached", "unreached"]


class Change(NamedTuple):
    """What this member has just learned.

    `conflict`: a second member claims the name from that address. `reached`, `unreached`: of a join,
    with the address alone.
    """

    kind: Kind
    name: str
    address: str


@dataclass
class Known:
    """One member as it is known here."""

    name: str
    address: str
    incarnation: int
    state: State
    since: float

    @property
    def there(self) -> bool:
        """It counts as a member."""
        return self.state in ("alive", "suspect")


class Members:
    """Everybody known, this one included. What follows from news is left in `gossip` and `changes`."""

    def __init__(
        self,
        me: Alive,
        settings: Settings,
        gossip: Gossip,
        awareness: Awareness,
        randomness: random.Random,
        admit: Callable[[str, str], bool] = lambda _name, _address: True,
        outdated: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self.me = me.name
        self.changes: list[Change] = []
        self.order: list[str] = [me.name]
        """In which all are probed; a newcomer has a random place."""
        self._settings = settings
        self._gossip = gossip
        self._awareness = awareness
        self._random = randomness
        self._admit = admit
        self._outdated = outdated
        self._leaving = False
        self._known = {me.name: Known(me.name, me.address, me.incarnation, "alive", 0.0)}
        self._suspicions: dict[str, Suspicion] = {}
        self._there = 1
        gossip.add(me)

    def __len__(self) -> int:
        """How many are alive or suspected."""
        return self._there

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def get(self, name: str) -> Known | None:
        """What is known of one."""
        return self._known.get(name)

    def alive(self, news: Alive, now: float) -> None:
        """It says that it is there."""
        known = self._known.get(news.name)
        if news.name == self.me:
            own = self._known[self.me]
            if news.incarnation > own.incarnation or news.address != own.address:
                self._refute(own, news.incarnation)
            return
        if (known is None or not known.there) and self._outdated(news.name):
            return
        if known is None:
            if not self._admit(news.name, news.address):
                return
            known = self._known[news.name] = Known(news.name, news.address, -1, "dead", now)
            self.order.insert(self._random.randint(0, len(self.order)), news.name)
        if news.incarnation <= known.incarnation:
            return
        if known.there and news.address != known.address:
            self.changes.append(Change("conflict", news.name, news.address))
            return
        was = known.state
        known.address = news.address
        known.incarnation = news.incarnation
        self._put(known, "alive", now)
        self._gossip.add(news)
        if was != "alive":
            self._say("alive" if was == "suspect" else "joined", known)

    def suspect(self, news: Suspect, now: float) -> None:
        """A member had no answer from it."""
        known = self._known.get(news.name)
        if known is None or news.incarnation < known.incarnation or not known.there:
            return None
        if news.name == self.me:
            return self._refute(known, news.incarnation)
        running = self._suspicions.get(news.name)
        if running is not None:
            known.incarnation = news.incarnation
            if running.confirm(news.accuser):
                self._gossip.add(news)
            return None
        shortest, longest = self._settings.suspicion_seconds(len(self))
        wanted = self._settings.confirmations(len(self))
        known.incarnation = news.incarnation
        self._put(known, "suspect", now)
        self._suspicions[news.name] = Suspicion(news.accuser, now, shortest, longest, wanted)
        self._gossip.add(news)
        self._say("suspect", known)
        return None

    def dead(self, news: Dead, now: float) -> None:
        """A member has waited for it long enough, or it says itself that it leaves."""
        known = self._known.get(news.name)
        if known is None or news.incarnation < known.incarnation or not known.there:
            return None
        if news.name == self.me and not self._leaving:
            return self._refute(known, news.incarnation)
        known.incarnation = news.incarnation
        self._put(known, "left" if news.accuser == news.name else "dead", now)
        self._gossip.add(news)
        self._say("left" if known.state == "left" else "dead", known)
        return None

    def expel(self, name: str, now: float) -> None:
        """It is known from elsewhere that it is no member any more."""
        known = self._known.get(name)
        if known is not None:
            self.dead(Dead(known.incarnation, name, self.me), now)

    def leave(self, now: float) -> None:
        """This member goes of its own will."""
        self._leaving = True
        self.dead(Dead(self._known[self.me].incarnation, self.me, self.me), now)

    def admits(self, rows: Iterable[Row]) -> bool:
        """None of these is refused."""
        return all(row.name in self._known or self._admit(row.name, row.address) for row in rows)

    def merge(self, rows: Iterable[Row], now: float) -> None:
        """The table of another: a death that it has seen is a suspicion here, and can be refuted."""
        for row in rows:
            if row.state == "alive":
                self.alive(Alive(row.incarnation, row.name, row.address), now)
                continue
            if row.state == "left":
                self.dead(Dead(row.incarnation, row.name, row.name), now)
            else:
                self.suspect(Suspect(row.incarnation, row.name, self.me), now)

    def rows(self) -> tuple[Row, ...]:
        """The table, as it is sent to another."""
        return tuple(Row(each.name, each.address, each.incarnation, each.state) for each in self)

    @property
    def expires_at(self) -> float:
        """When the first suspicion runs out; infinite when there is none."""
        return min((each.ends_at for each in self._suspicions.values()), default=float("inf"))

    def expire(self, now: float) -> None:
        """Declare members dead when their suspicion has run out."""
        for name in [name for name, each in self._suspicions.items() if now >= each.ends_at]:
            self.dead(Dead(self._known[name].incarnation, name, self.me), now)

    def postpone(self, seconds: float) -> None:
        """This process was not awake for so long: no refutation could arrive here."""
        for suspicion in self._suspicions.values():
            suspicion.postpone(seconds)

    def forget(self, now: float) -> None:
        """Drop those that have been dead for longer than they may still refute; shuffle the order."""
        for name in [each.name for each in self if not each.there and not self._reachable(each, now)]:
            if name != self.me:
                del self._known[name]
        self.order = list(self._known)
        self._random.shuffle(self.order)

    def pick(self, count: int, wanted: Callable[[Known], bool]) -> list[Known]:
        """That many others at random, or as many as a fair number of draws has found."""
        found: list[Known] = []
        for _ in range(3 * len(self.order)):
            if len(found) == count:
                break
            known = self._known[self._random.choice(self.order)]
            if known.name != self.me and known not in found and wanted(known):
                found.append(known)
        return found

    def hears_gossip(self, known: Known, now: float) -> bool:
        """It is there, or dead for so short a time that it may not have been."""
        return known.there or self._reachable(known, now)

    def _reachable(self, known: Known, now: float) -> bool:
        return now - known.since <= self._settings.gossip_to_dead

    def _refute(self, own: Known, accused: int) -> None:
        if self._leaving:
            return
        own.incarnation = max(own.incarnation, accused) + 1
        self._awareness.apply(1)
        self._gossip.add(Alive(own.incarnation, own.name, own.address))

    def _put(self, known: Known, state: State, now: float) -> None:
        there = known.there
        if known.state != state:
            known.since = now
        known.state = state
        self._suspicions.pop(known.name, None)
        self._there += known.there - there

    def _say(self, kind: Kind, known: Known) -> None:
        self.changes.append(Change(kind, known.name, known.address))
