"""Those who wait are served, one after the other, and then what is left goes to who may have more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.cycle.growing import grow_all
from shoal.schedule.cycle.lines import Line, Rest
from shoal.schedule.cycle.own_place import OwnPlace
from shoal.schedule.cycle.places import placed, placed_by
from shoal.schedule.cycle.precedence import Precedence
from shoal.schedule.cycle.ranks import Ranks
from shoal.schedule.cycle.sizes.exchange import Exchange
from shoal.schedule.cycle.steps import Deny
from shoal.schedule.cycle.telling import Telling
from shoal.schedule.cycle.units import claim_of, own_priority
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.cycle.ways import Ways
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.bulk import place_in_turn
from shoal.schedule.shares.laws import Laws, givers

__all__ = ["Service", "give_up_stale"]

_ROUNDS = 3
"""So many times those who wait are served in one plan; mostly nothing changes in the second."""


class Service:
    """Of one decision."""

    def __init__(
        self, desk: Desk, victims: Victims, sizes: Exchange, ahead: Ahead, ranks: Ranks
    ) -> None:
        self._desk = desk
        self._victims = victims
        self._sizes = sizes
        self._ways = Ways(desk, victims)
        self._ahead = ahead
        self._telling = Telling(desk, ahead)
        self._own = OwnPlace(desk)
        self._ranks = ranks
        self._precedence = Precedence(desk, ranks)
        self._hopeless: set[int] = set()
        """Kinds (`Asked.kind`) of which one found no way."""
        self._postponed: list[tuple[Asked, Rest]] | None = None

    @property
    def dates(self) -> Dates | None:
        """Of those who wait for capacity, once anybody does."""
        return self._telling.dates

    def serve(self, order: Sequence[Asked]) -> None:
        """In order, and then what is left goes to those that may have more. Who was refused is served
        again where it may take from what others got since: or those would be told to go by the next
        plan. They are not told anything then, they have just not been started, or not grown."""
        desk = self._desk
        waiting, again = list(order), list(enumerate(order))
        self._telling.begin(waiting)
        for number in range(_ROUNDS):
            self._hopeless.clear()
            self._ways.forget()
            self._sizes.aim(waiting)
            self._postponed = []
            line = Line(waiting)
            for at, asked in again:
                if asked.job.name in desk.settled:
                    continue
                if asked.kind in self._hopeless and self._telling.refused_alike(asked):
                    continue
                if number == 0 and self._start_alike(line.members, at):
                    continue
                if number == 0 or self._is_near(asked):
                    self._serve_and_again(asked, line.rest(at))
                elif desk.date_of(asked.job.name) != self._telling.promised(asked):
                    self._telling.refuse(asked, desk.later.refusal(asked, asked.lacks), line.rest(at))
            self._serve_postponed()
            if number == 0:
                give_up_stale(desk)
            if waiting:
                self._sizes.aim(())  # who was not served claims nothing of what is left
            self._ahead.look_again()
            grow_all(desk, order, self._ahead)
            gained = desk.gained()
            if not gained:
                return
            waiting = [asked for asked in order if asked.job.name not in desk.settled]
            taking = _ByKind(lambda asked, gained=gained: self._may_take(asked, gained))
            again = [(at, asked) for at, asked in enumerate(waiting) if taking.of(asked)]
            if not again:
                return
            self._telling.begin(waiting)

    def _serve_postponed(self) -> None:
        """Those whose dates are soon, by their dates: they are kept what comes free by then."""
        waiting, self._postponed = self._postponed or [], None
        self._hopeless.clear()  # others who are alike may have been refused for their later dates
        dates = self.dates
        if dates is not None:
            waiting.sort(key=lambda each: self._telling.starts(dates, each[0]))
        for asked, rest in waiting:
            if asked.job.name not in self._desk.settled:
                self._serve_and_again(asked, rest)

    def _may_start(self, asked: Asked) -> bool:
        """As far as the dates of others are concerned."""
        if self._ahead.exact and self._ranks.asks_for_its_own(asked):
            return True  # the places of others are kept, and nothing else of theirs is in its way
        return self._goes_first(asked)

    def _goes_first(self, asked: Asked) -> bool:
        """Whether what is free now is for nobody before it."""
        dates = self.dates
        return dates is None or dates.may_start(asked) or self._precedence.above_promises(asked, dates)

    def _is_near(self, asked: Asked) -> bool:
        """Whether others may give way for it: it may start, or has to soon."""
        return self.dates is None or self._telling.is_soon(asked) or self._may_start(asked)

    def _may_take(self, asked: Asked, gained: Mapping[int, int]) -> bool:
        """Whether the laws do not forbid from the start that it takes from what was `gained`: by queue,
        the lowest priority of it."""
        desk = self._desk
        mine = asked.queue
        if mine in gained and (desk.targets or gained[mine] < own_priority(asked.job)):
            return True
        claim = claim_of(asked, mine, asked.lacks, asked.number)
        laws = Laws(beyond_nominal=desk.rules.beyond_nominal)
        return bool(givers(desk.later.ledger, claim, sorted(gained.keys() - {mine}), laws))

    def _start_alike(self, line: Sequence[Asked], at: int) -> bool:
        """Whether this one, and those behind it that are of its kind, of a task each, have been started
        at once: as many as there is room for, and as they may. That is what becomes of each of them, one
        after the other, as long as nobody has a date."""
        desk, asked = self._desk, line[at]
        if not (asked.fresh and asked.needs.single and asked.job.preemptible):
            return False
        if self.dates is not None or self._ahead.all() or asked.kind in self._hopeless:
            return False
        if desk.withdrawn or desk.budgeted[asked.queue]:
            return False
        if not desk.current.allows(asked, asked.lacks):
            return False
        last = at + 1
        while last < len(line) and _alike(line[last], asked) and line[last].job.name not in desk.settled:
            last += 1
        if last - at < 2 or (most := desk.later.times(asked, desk.current.times(asked, last - at))) < 2:
            return False
        found = place_in_turn(desk.current.room, asked.shapes[0], most)
        if len(found):
            desk.start_alike(line[at : at + len(found)], found)
        return len(found) > 0

    def _serve_and_again(self, asked: Asked, rest: Rest) -> None:
        if asked.open:
            asked = self._desk.composed(asked)
        known = len(self._desk.withdrawn)
        self._serve(asked, rest)
        if len(self._desk.withdrawn) > known:
            self.serve_withdrawn(known, rest.members[1:])

    def serve_withdrawn(self, known: int, behind: Sequence[Asked] = ()) -> None:
        """Those who were started in this plan, and are not after all, but for the first `known` of them;
        before those who wait `behind` them."""
        withdrawn = self._desk.withdrawn
        while known < len(withdrawn):  # for who is served again others may be withdrawn
            each = withdrawn[known]
            known += 1
            self._serve(each, Line([each, *(other for other in behind if other is not each)]).rest(0))

    def _serve(self, asked: Asked, rest: Rest) -> None:
        """`rest`: it, and those who wait behind it."""
        desk, job = self._desk, asked.job
        amounts = asked.lacks
        gone = job.tasks and job.name not in desk.present
        if asked.lacks_indices or gone or desk.told_to_give(job.name):
            desk.deny(Deny(job=job.name, code="Stopping"))
            return
        if reasons.forbidden(desk, asked, amounts):
            desk.deny(reasons.denied(asked, reasons.holding(desk, asked, amounts)))
            return
        laid = self._telling.laid(asked)
        near = laid is not None and self._telling.is_soon(asked)
        may = self.dates is not None and self.dates.may_start(asked)
        if asked.kind in self._hopeless and not (near or may):
            self._telling.refuse(asked, desk.later.refusal(asked, amounts), rest)
            return
        current, later = desk.current, desk.later
        quota = later.refusal(asked, amounts)
        lacking = later.lacks(asked)
        free = quota is None and lacking is None and current.allows(asked, amounts)
        allowed = self._may_start(asked)
        if free and (allowed or laid is not None) and (found := self._placed_now(asked)) is not None:
            desk.start(asked, found)
            return
        soon = allowed or self._telling.is_soon(asked)
        if soon and not allowed and self._postponed is not None:
            self._postponed.append((asked, rest))  # what is free now is for those who may start now
            return
        if near and lacking is None and laid is not None and self._own.kept(asked, laid):
            return
        if quota is None and lacking is None and soon and desk.departing:
            until = desk.ends(job)
            found = self._ahead.beside(later.room, asked, until, lambda: placed_by(desk, asked))
            if found is not None:
                desk.reserve(asked, found, "Departing", {}, self._telling.promised(asked))
                return
        if lacking is None and soon and self._sizes.from_beyond(asked):
            return
        moves = quota is None and lacking is None and desk.rules.consolidate and self._goes_first(asked)
        gives = lacking is None and soon
        if gives or asked.present or moves:
            until = math.inf if asked.present or moves else desk.ends(job)
            with self._ahead.apart(later.room, asked, until):
                if gives and self._ways.others_give_way(asked, amounts, rest):
                    return
                if asked.present and self._ways.from_itself(asked, amounts):
                    return
                if moves and self._ways.moved_together(asked):
                    return
        self._hopeless.add(asked.kind)
        self._telling.refuse(asked, quota, rest)

    def _placed_now(self, asked: Asked) -> Placement | None:
        """Where it may start: in its own place, if it has one by now, or beside those of others."""
        desk, laid = self._desk, self._ahead.of(asked)
        if laid is not None and laid.start <= desk.now and desk.current.take(laid.place):
            return laid.place
        room = desk.current.room
        return self._ahead.beside(room, asked, desk.ends(asked.job), lambda: placed(room, asked))


class _ByKind:
    """What is so of one of a kind is so of all."""

    def __init__(self, asks: Callable[[Asked], bool]) -> None:
        self._asks = asks
        self._known: dict[int, bool] = {}

    def of(self, asked: Asked) -> bool:
        known = self._known.get(asked.kind)
        if known is None:
            known = self._known[asked.kind] = self._asks(asked)
        return known


def _alike(asked: Asked, other: Asked) -> bool:
    """Whether the same is done for one as for the other, where both have nothing yet."""
    return asked.needs is other.needs and asked.kind == other.kind and asked.fresh


def give_up_stale(desk: Desk) -> None:
    """Who has lost its minimum, and found no way back to it in time, gives up the rest."""
    for name, asked in desk.below.items():
        present, since = desk.present.get(name), asked.job.below_since
        if not present or since is None or name in desk.settled:
            continue
        if reached(asked.counts(present), asked.minimum):
            continue
        if desk.now - since >= desk.rules.stale_seconds:
            desk.depart(asked, present, "", "BelowMinimum", minimum=sum(asked.minimum))
