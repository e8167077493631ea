"""The stages of a decision, in their order.

1. What jobs give back for no one (`giving`). Who was kept a place starts there if it is free by now, or
   elsewhere if that is, or goes on waiting for it, or loses it.
2. All who wait are served in order (`lines`), each with its minimum: it starts on what is free now; or
   is kept a place among what is coming free; or others give way for it; or jobs move together for it.
3. From the first who finds no capacity on, dates decide (`dates`): nobody starts who would make somebody
   before it start later.
4. Who has lost its minimum, and found no way back to it in time, gives back the rest.
5. What is left goes to those that may have more (`growing`).
6. Who was refused is served again where it may take from what others were given after that. Nobody is
   told anything then: they have just not been started, or not grown. So the next plan does not undo this
   one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.dates import Dates
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked, reached
from shoal.schedule.cycle.giving import give_back
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.growing import grow_all, take_back_own
from shoal.schedule.cycle.lines import in_order
from shoal.schedule.cycle.peers.follow import follow
from shoal.schedule.cycle.peers.named import as_asked, peer
from shoal.schedule.cycle.places import by_date, kept, placed, placed_by, waits
from shoal.schedule.cycle.reasons import Held
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.sizes.exchange import Exchange
from shoal.schedule.cycle.steps import Deny, Plan, Reserve
from shoal.schedule.cycle.units import claim_of
from shoal.schedule.cycle.victims import Victims
from shoal.schedule.cycle.ways import Ways
from shoal.schedule.shares.laws import Laws, givers
from shoal.schedule.shares.ledger import Refusal

_Rest = Callable[[], Sequence[Asked]]

__all__ = ["Planner", "plan"]

_SOON_SECONDS = 1.0
_ROUNDS = 3
"""So many times those who wait are served in one plan; mostly nothing changes in the second."""


def plan(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
    """What to do now. Equal rows give an equal plan, whatever the order in which they came.

    Raises ValueError for rows that contradict each other.
    """
    return Planner(rules).plan(cluster, now)


class Planner:
    """Remembers between decisions what rows come to: who asks again with most rows the same is answered
    sooner, and the answer is that of `plan`. Not for sharing between threads."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._ground: Ground | None = None

    def plan(self, cluster: Cluster, now: Stamp) -> Plan:
        """What to do now; raises as `plan` does, and has then forgotten everything."""
        cluster = as_asked(cluster, self.rules)
        ground, self._ground = self._ground, None
        if ground is None or not ground.carries(cluster):
            ground = Ground(cluster)
        else:
            ground.update(cluster)
        found = _Cycle(Desk(ground, cluster, self.rules, now)).run()
        ground.close()
        self._ground = ground
        return found


class _Cycle:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.dates: Dates | None = None
        self._hopeless: set[tuple[object, ...]] = set()
        self._told: dict[tuple[object, ...], tuple[Refusal | None, Held]] = {}
        self._told_at: tuple[int, int] | None = None
        self._taking: dict[tuple[int, tuple[float, ...]], bool] = {}
        self._taking_at = -1
        self._postponed: list[tuple[Asked, _Rest]] | None = None
        self._victims = Victims(desk)
        self._ways = Ways(desk, self._victims)
        self._sizes = Exchange(desk)

    def run(self) -> Plan:
        desk = self.desk
        give_back(desk)
        waiting: list[tuple[Asked, tuple[float, ...]]] = []
        for asked in desk.asked.values():
            if desk.told_to_give(asked.job.name):
                if asked.job.reserved:
                    desk.release(asked)
                continue
            if not waits(asked):
                if asked.job.reserved and not asked.job.suspended:
                    kept(desk, asked)
                continue
            if never := reasons.never(desk, asked):
                if asked.job.reserved:
                    desk.release(asked)
                held = reasons.holding(desk, asked, asked.lacks, never)
                desk.deny(reasons.denied(asked, held))
            elif not kept(desk, asked):
                waiting.append((asked, asked.lacks))
        policy = peer(desk.cluster, desk.rules)
        if policy is not None:
            soon = follow(desk, policy, [asked for asked, _ in waiting])
            for asked in desk.asked.values():
                self._stale(asked)
            return desk.plan(self._again_at(soon))
        order = by_date(desk, in_order(waiting, desk.current.ledger))
        desk.waiting = order
        self._serve_all(order)
        soon = self._sizes.even_out()
        soon = take_back_own(desk, self._victims) or soon
        return desk.plan(self._again_at(desk.now + _SOON_SECONDS if soon else None))

    def _again_at(self, soon: Stamp | None) -> Stamp | None:
        """When the next date, wall time, or patience with a job below its minimum is over."""
        desk = self.desk
        moments = [soon, self.dates.again_at if self.dates is not None else None]
        for name in desk.present:
            job = desk.asked[name].job
            began = job.since if job.present else desk.now
            turn = desk.rules.minimum_run_seconds or None
            length = turn if job.wall_seconds is None else job.wall_seconds
            moments.append(None if length is None else began + length)
            if job.below_since is not None and name not in desk.settled:
                moments.append(job.below_since + desk.rules.stale_seconds)
        starving = desk.rules.starving_seconds
        moments += [desk.asked[name].job.waiting_since + starving for name in desk.denied]
        return min((each for each in moments if each is not None and each > desk.now), default=None)

    # 2

    def _serve_all(self, order: Sequence[Asked]) -> None:
        """In order, and then what is left goes to those that may have more. Who was refused is served
        again where it may take from what others got since: or those would be told to go by the next
        plan. They are not told anything then, they have just not been started, or not grown."""
        desk = self.desk
        waiting, gained = list(order), None
        for _ in range(_ROUNDS):
            self._hopeless.clear()
            self._ways.forget()
            self._taking.clear()
            self._sizes.aim(waiting)
            self._date(waiting)
            self._postponed = []
            for at, asked in enumerate(waiting):
                if asked.job.name not in desk.settled and (
                    gained is None or self._may_take(asked, gained)
                ):
                    self._serve_and_again(asked, partial(_from, waiting, at))
            self._serve_postponed()
            if gained is None:
                for asked in desk.asked.values():
                    self._stale(asked)
            if waiting:
                self._sizes.aim(())  # who was not served claims nothing of what is left
            grow_all(desk, order)
            gained = desk.gained()
            waiting = [asked for asked in order if asked.job.name not in desk.settled]
            if not (gained and waiting):
                return

    def _serve_postponed(self) -> None:
        """Those whose dates are soon, by their dates: they are kept what comes free by then."""
        waiting, self._postponed = self._postponed or [], None
        self._hopeless.clear()  # others who are alike may have been refused for their later dates
        dates = self.dates
        if dates is not None:
            waiting.sort(key=lambda each: dates.starts(each[0]))
        for asked, rest in waiting:
            if asked.job.name not in self.desk.settled:
                self._serve_and_again(asked, rest)

    def _may_take(self, asked: Asked, queues: Collection[int]) -> bool:
        """Whether the laws do not forbid from the start that it takes from one of these queues."""
        desk = self.desk
        mine = asked.queue
        if mine in queues:
            return True
        version = desk.later.version
        if version != self._taking_at:
            self._taking.clear()
            self._taking_at = version
        key = (mine, asked.lacks)
        if key not in self._taking:
            claim = claim_of(asked, mine, asked.lacks, asked.number)
            laws = Laws(beyond_nominal=desk.rules.beyond_nominal)
            self._taking[key] = bool(givers(desk.later.ledger, claim, sorted(queues), laws))
        return self._taking[key]

    def _date(self, waiting: Sequence[Asked]) -> None:
        """Who has been promised a date keeps it from the first on that is served; else dates are made
        for those from the first on that finds no room."""
        promised = any(asked.job.promised is not None for asked in waiting)
        self.dates = Dates(self.desk, waiting) if promised else None

    def _serve_and_again(self, asked: Asked, rest: _Rest) -> None:
        if asked.open:
            asked = self.desk.composed(asked)
        known = len(self.desk.withdrawn)
        self._serve(asked, rest)
        for each in self.desk.withdrawn[known:]:
            line = [each, *(other for other in rest()[1:] if other is not each)]
            self._serve(each, partial(_from, line, 0))

    def _serve(self, asked: Asked, rest: _Rest) -> None:
        """`rest`: it, and those who wait behind it."""
        desk, job = self.desk, asked.job
        amounts = asked.lacks
        gone = job.tasks and job.name not in desk.present
        if asked.lacks_indices or gone or desk.told_to_give(job.name):
            desk.deny(Deny(job=job.name, code="Stopping"))
            return
        if reasons.forbidden(desk, asked, amounts):
            desk.deny(reasons.denied(asked, reasons.holding(desk, asked, amounts)))
            return
        alike = asked.alike
        if alike in self._hopeless and (self.dates is None or not self.dates.may_start(asked)):
            self._refuse(asked, amounts, rest)
            return
        current, later = desk.current, desk.later
        free = not desk.refused_now(asked, amounts)
        allowed = self.dates is None or self.dates.may_start(asked) or self._above_promises(asked)
        if free and allowed and (found := placed(current.room, asked)) is not None:
            desk.start(asked, found)
            return
        quota = later.refusal(asked, amounts)
        lacking = later.lacks(asked)
        soon = allowed or (self.dates is not None and self.dates.soon(asked))
        if soon and not allowed and self._postponed is not None:
            self._postponed.append((asked, rest))  # what is free now is for those who may start now
            return
        if quota is None and lacking is None and soon and desk.departing:
            found = placed_by(desk, asked)
            if found is not None:
                desk.reserve(asked, found, "Departing", {}, self.dates and self.dates.promised(asked))
                return
        if (
            lacking is None
            and soon
            and (self._sizes.from_beyond(asked) or self._ways.others_give_way(asked, amounts, rest))
        ):
            return
        if job.present and self._ways.from_itself(asked, amounts):
            return
        if (
            quota is None
            and lacking is None
            and allowed
            and desk.rules.consolidate
            and self._ways.moved_together(asked)
        ):
            return
        self._hopeless.add(alike)
        self._refuse(asked, amounts, rest)

    def _refuse(self, asked: Asked, amounts: tuple[float, ...], rest: _Rest) -> None:
        """Its queue has no more for it; or it would be allowed to, and there is no room: from there on
        dates decide."""
        desk = self.desk
        refused, held = self._holding(asked, amounts)
        if refused is not None and refused.rule != "Capacity":
            self._set_aside(asked, amounts)
            desk.deny(held.denied(asked))
            return
        if self.dates is None:
            self.dates = Dates(desk, rest())
        step = held.denied(asked, self.dates.answer(asked))
        if (at := self.dates.promised(asked)) is not None:
            desk.date(Reserve(job=step.job, code=step.code, evidence=step.evidence, at=at))
        else:
            desk.deny(step)

    def _holding(self, asked: Asked, amounts: tuple[float, ...]) -> tuple[Refusal | None, Held]:
        """What refuses it, and all that holds it back: of equal jobs the same, while nothing happens."""
        desk = self.desk
        state = (desk.later.version, desk.later.room.mark())
        if state != self._told_at:
            self._told.clear()
            self._told_at = state
        key = (asked.alike, asked.job.preemptible)
        if key not in self._told:
            refused = desk.later.refusal(asked, amounts)
            self._told[key] = refused, Held(reasons.holding(desk, asked, amounts))
        return self._told[key]

    def _above_promises(self, asked: Asked) -> bool:
        """Whether it is of a higher class than everybody who has been promised a date, or is told one
        before it, or has what comes free kept."""
        ahead = True
        for other in self.desk.waiting:
            ahead &= other is not asked
            waits = other.job.name not in self.desk.settled
            held = other.job.promised is not None or (
                ahead and self.dates is not None and self.dates.keeps(other)
            )
            if waits and held and other.job.priority >= asked.job.priority and other is not asked:
                return False
        return True

    def _set_aside(self, asked: Asked, amounts: tuple[float, ...]) -> None:
        """Who has starved for its queue's sake has what comes free there kept, one job a queue."""
        desk, job = self.desk, asked.job
        if desk.now - job.waiting_since >= desk.rules.starving_seconds:
            for books in (desk.current, desk.later):
                books.set_aside(desk.queue(job), amounts)

    # 3

    def _stale(self, asked: Asked) -> None:
        desk, job = self.desk, asked.job
        present = desk.present.get(job.name, ())
        if job.name in desk.settled or job.below_since is None or not present:
            return
        if reached(asked.counts(present), asked.minimum):
            return
        if desk.now - job.below_since >= desk.rules.stale_seconds:
            desk.depart(asked, present, "", "BelowMinimum", minimum=sum(asked.minimum))


def _from(line: Sequence[Asked], at: int) -> Sequence[Asked]:
    return line[at:]
