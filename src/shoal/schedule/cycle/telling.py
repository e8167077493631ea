"""Who waits is told why, and until when.

Dates are made once anybody waits for capacity. Who is like somebody that was refused a moment ago is
told the same at once: most who wait are of few kinds, and little happens between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.laid import Laid
from shoal.schedule.cycle.lines import Rest
from shoal.schedule.cycle.reasons import Held
from shoal.schedule.cycle.steps import Deny, Reserve
from shoal.schedule.shares.ledger import Refusal

__all__ = ["Telling"]


class Telling:
    """Of one decision."""

    def __init__(self, desk: Desk, ahead: Ahead) -> None:
        self._desk, self._ahead = desk, ahead
        self.dates: Dates | None = None
        """Of those who wait for capacity, once anybody does."""
        self._told: dict[int, tuple[Refusal | None, Held]] = {}
        """By kind: what refuses it, and all that holds it back, since anything was done."""
        self._no_room: dict[int, Held] = {}
        """By need (`Asked.need`), of those that only room is lacking, while that is as it was."""
        self._told_at: tuple[int, int] | None = None

    def begin(self, waiting: Sequence[Asked]) -> None:
        """Who has been promised a date keeps it from the first on that is served; else dates are made
        for those from the first on that finds no room."""
        promised = any(asked.job.promised is not None for asked in waiting)
        self.dates = Dates(self._desk, waiting, self._ahead) if promised else None

    def refused_alike(self, asked: Asked) -> bool:
        """Whether it was refused, and told why, as another of its kind was since anything was done."""
        told = self._told.get(asked.kind)
        if told is None or not asked.fresh or asked.open:
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

    def promised(self, asked: Asked) -> Stamp | None:
        """The date that it is promised, where sums are enough to hold it."""
        return None if self.dates is None else self.dates.promised(asked)

    def refuse(self, asked: Asked, refused: Refusal | None, rest: Rest) -> None:
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

    def laid(self, asked: Asked) -> Laid | None:
        """The date and the place that it is told; laid at once where that may be soon."""
        laid, dates = self._ahead.of(asked), self.dates
        if laid is None and dates is not None and not dates.may_start(asked) and dates.soon(asked):
            return self._date_of(asked, dates)
        return laid

    def starts(self, dates: Dates, asked: Asked) -> Stamp:
        """By its date with a place, or as sums have it."""
        laid = self._ahead.of(asked)
        return dates.starts(asked) if laid is None else laid.start

    def is_soon(self, asked: Asked) -> bool:
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
