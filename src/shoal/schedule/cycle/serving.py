"""Those who wait are served, one after the other, and then what is left goes to who may have more.

Who is refused is told why; and who is like somebody that was refused a moment ago is told the same at
once. Most who wait are of few kinds, and little happens between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.cycle.growing import grow_all
from shoal.schedule.cycle.laid import Laid
from shoal.schedule.cycle.lines import Line, Rest
from shoal.schedule.cycle.own_place import OwnPlace
from shoal.schedule.cycle.places import placed, placed_by
from shoal.schedule.cycle.precedence import Precedence
from shoal.schedule.cycle.ranks import Ranks
from shoal.schedule.cycle.reasons import Held
from shoal.schedule.cycle.sizes.exchange import Exchange
from shoal.schedule.cycle.steps import Deny, Reserve
from shoal.schedule.cycle.units import claim_of, own_priority
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.cycle.ways import Ways
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.bulk import place_in_turn
from shoal.schedule.shares.laws import Laws, givers
from shoal.schedule.shares.ledger import Refusal

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
        self._own = OwnPlace(desk)
        self._ranks = ranks
        self._precedence = Precedence(desk, ranks)
        self.dates: Dates | None = None
        """Of those who wait for capacity, once anybody does."""
        self._hopeless: set[int] = set()
        """Kinds (`Asked.kind`) of which one found no way."""
        self._told: dict[int, tuple[Refusal | None, Held]] = {}
        """By kind: what refuses it, and all that holds it back, since anything was done."""
        self._no_room: dict[int, Held] = {}
        """By need (`Asked.need`), of those that only room is lacking, while that is as it was."""
        self._told_at: tuple[int, int] | None = None
        self._postponed: list[tuple[Asked, Rest]] | None = None

    def serve(self, order: Sequence[Asked]) -> None:
        """In order, and then what is left goes to those that may have more. Who was refused is served
        again where it may take from what others got since: or those would be told to go by the next
        plan. They are not told anything then, they have just not been started, or not grown."""
        desk = self._desk
        waiting, again = list(order), list(enumerate(order))
        self._date(waiting)
        for number in range(_ROUNDS):
            self._hopeless.clear()
            self._ways.forget()
            self._sizes.aim(waiting)
            self._postponed = []
            line = Line(waiting)
            for at, asked in again:
                if asked.job.name in desk.settled or self._refused_alike(asked):
                    continue
                if number == 0 and self._start_alike(line.members, at):
                    continue
                if number == 0 or self._is_near(asked):
                    self._serve_and_again(asked, line.rest(at))
                elif desk.date_of(asked.job.name) != self._promised(asked):
                    self._refuse(asked, desk.later.refusal(asked, asked.lacks), line.rest(at))
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
            self._date(waiting)

    def _refused_alike(self, asked: Asked) -> bool:
        """Whether it is refused as another was, of its kind, since when nothing has been done."""
        told = self._told.get(asked.kind)
        if told is None or not asked.fresh or asked.open or asked.kind not in self._hopeless:
            return False
        if self._told_at != self._state():
            return False
        refused, held = told
        if self.dates is not None:
            if self.dates.may_start(asked):
                return False
        elif refused is None or refused.rule == "Capacity":
            return False
        self._tell(asked, refused, held)
        return True

    def _serve_postponed(self) -> None:
        """Those whose dates are soon, by their dates: they are kept what comes free by then."""
        waiting, self._postponed = self._postponed or [], None
        self._hopeless.clear()  # others who are alike may have been refused for their later dates
        dates = self.dates
        if dates is not None:
            waiting.sort(key=lambda each: self._starts(dates, each[0]))
        for asked, rest in waiting:
            if asked.job.name not in self._desk.settled:
                self._serve_and_again(asked, rest)

    def _promised(self, asked: Asked) -> Stamp | None:
        return None if self.dates is None else self.dates.promised(asked)

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
        return self.dates is None or self._is_soon(asked) or self._may_start(asked)

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

    def _date(self, waiting: Sequence[Asked]) -> None:
        """Who has been promised a date keeps it from the first on that is served; else dates are made
        for those from the first on that finds no room."""
        promised = any(asked.job.promised is not None for asked in waiting)
        self.dates = Dates(self._desk, waiting, self._ahead) if promised else None

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
        laid = self._laid(asked)
        near = laid is not None and self._is_soon(asked)
        may = self.dates is not None and self.dates.may_start(asked)
        if asked.kind in self._hopeless and not (near or may):
            self._refuse(asked, desk.later.refusal(asked, amounts), rest)
            return
        current, later = desk.current, desk.later
        quota = later.refusal(asked, amounts)
        lacking = later.lacks(asked)
        free = quota is None and lacking is None and current.allows(asked, amounts)
        allowed = self._may_start(asked)
        if free and (allowed or laid is not None) and (found := self._placed_now(asked)) is not None:
            desk.start(asked, found)
            return
        soon = allowed or self._is_soon(asked)
        if soon and not allowed and self._postponed is not None:
            self._postponed.append((asked, rest))  # what is free now is for those who may start now
            return
        if near and lacking is None and laid is not None and self._own.kept(asked, laid):
            return
        if quota is None and lacking is None and soon and desk.departing:
            until = desk.ends(job)
            found = self._ahead.beside(later.room, asked, until, lambda: placed_by(desk, asked))
            if found is not None:
                desk.reserve(asked, found, "Departing", {}, self._promised(asked))
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
        self._refuse(asked, quota, rest)

    def _refuse(self, asked: Asked, refused: Refusal | None, rest: Rest) -> None:
        """Its queue has no more for it; or it would be allowed to, and there is no room: from there on
        dates decide."""
        if self.dates is None and (refused is None or refused.rule == "Capacity"):
            self.dates = Dates(self._desk, rest.members, self._ahead)
        self._tell(asked, refused, self._holding(asked, refused))

    def _tell(self, asked: Asked, refused: Refusal | None, held: Held) -> None:
        desk = self._desk
        if refused is not None and refused.rule != "Capacity":
            self._set_aside(asked)
            laid, step = self._ahead.of(asked), held.denied(asked)
            if laid is None or asked.job.promised is None:
                desk.deny(step)
            else:
                self._tell_date(asked, step, laid)  # it is refused what others are given before it
            return
        if self.dates is None:
            raise AssertionError("who waits for capacity is told when it may start")
        laid = self._date_of(asked, self.dates)
        step = held.denied(asked, self.dates.answer(asked, laid))
        at = self.dates.promised(asked)
        if laid is not None:
            self._tell_date(asked, step, laid)
        elif at is not None:
            desk.date(Reserve(job=step.job, code=step.code, evidence=step.evidence, at=at))
        else:
            desk.deny(step)

    def _tell_date(self, asked: Asked, step: Deny, laid: Laid) -> None:
        place = asked.tasks(laid.place, self._desk.names, ())
        self._desk.date(
            Reserve(job=step.job, code=step.code, evidence=step.evidence, at=laid.start, place=place)
        )

    def _date_of(self, asked: Asked, dates: Dates) -> Laid | None:
        """The date that it is told, and where it starts then: the first few, where sums do not do."""
        desk, ahead = self._desk, self._ahead
        if asked.present or not ahead.exact:
            return None
        laid = ahead.of(asked)
        if laid is not None and any(each is asked for each in desk.withdrawn):
            ahead.doubt(asked)
        if laid is not None and not ahead.lost(asked):
            return laid
        if laid is None and len(ahead.all()) >= desk.rules.promises:
            return None
        since = dates.starts(asked) if asked.job.shared else desk.now
        if not dates.knows(asked) or math.isinf(since):
            return None
        return ahead.find(asked, since)

    def _laid(self, asked: Asked) -> Laid | None:
        """The date and the place that it is told; laid at once where that may be soon."""
        laid, dates = self._ahead.of(asked), self.dates
        if laid is None and dates is not None and not dates.may_start(asked) and dates.soon(asked):
            return self._date_of(asked, dates)
        return laid

    def _placed_now(self, asked: Asked) -> Placement | None:
        """Where it may start: in its own place, if it has one by now, or beside those of others."""
        desk, laid = self._desk, self._ahead.of(asked)
        if laid is not None and laid.start <= desk.now and desk.current.take(laid.place):
            return laid.place
        room = desk.current.room
        return self._ahead.beside(room, asked, desk.ends(asked.job), lambda: placed(room, asked))

    def _starts(self, dates: Dates, asked: Asked) -> Stamp:
        laid = self._ahead.of(asked)
        return dates.starts(asked) if laid is None else laid.start

    def _is_soon(self, asked: Asked) -> bool:
        """Whether its date is no farther off than the notice."""
        laid, desk = self._ahead.of(asked), self._desk
        if laid is not None:
            return laid.start <= desk.now + desk.rules.notice_seconds
        if self._ahead.exact and not asked.present:
            return False  # there may be no place for it by then, and others would have gone for nothing
        return self.dates is not None and self.dates.soon(asked)

    def _state(self) -> tuple[int, int]:
        """Another whenever anything is done."""
        later = self._desk.later
        return later.version, later.room.mark()

    def _holding(self, asked: Asked, refused: Refusal | None) -> Held:
        """All that holds it back: of equal jobs the same, while nothing happens."""
        desk = self._desk
        state = self._state()
        if state != self._told_at:
            if self._told_at is None or state[1] != self._told_at[1]:
                self._no_room.clear()
            self._told.clear()
            self._told_at = state
        if (known := self._told.get(asked.kind)) is not None:
            return known[1]
        if not reasons.no_room(desk, asked, refused):
            held = Held(reasons.holding(desk, asked, asked.lacks))
        elif (alike := self._no_room.get(asked.need)) is not None:
            held = alike
        else:
            held = self._no_room[asked.need] = Held(reasons.lack_of_room(desk, asked))
        self._told[asked.kind] = refused, held
        return held

    def _set_aside(self, asked: Asked) -> None:
        """Who has starved for its queue's sake has what comes free there kept, one job a queue."""
        desk = self._desk
        if desk.now - asked.waiting_since >= desk.rules.starving_seconds:
            for books in (desk.current, desk.later):
                books.set_aside(asked.queue, asked.lacks)


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
