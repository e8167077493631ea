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

import math

import numpy as np

from shoal.objects.meta import Stamp
from shoal.schedule.cycle import reasons
from shoal.schedule.cycle.ahead import Ahead
from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.giving import give_back
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.growing import take_back_own
from shoal.schedule.cycle.lines import in_order
from shoal.schedule.cycle.peers.follow import follow
from shoal.schedule.cycle.peers.named import as_asked, peer
from shoal.schedule.cycle.places import by_date, kept, waits
from shoal.schedule.cycle.ranks import Ranks, classes
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.serving import Service, give_up_stale
from shoal.schedule.cycle.sizes.exchange import Exchange
from shoal.schedule.cycle.steps import Plan
from shoal.schedule.cycle.victims import Victims

__all__ = ["Planner", "plan"]

_SOON_SECONDS = 1.0


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
        self._victims = Victims(desk)
        ranks = Ranks(desk)
        self._ahead = Ahead(desk, ranks)
        self._sizes = Exchange(desk, self._ahead)
        self._service = Service(desk, self._victims, self._sizes, self._ahead, ranks)

    def run(self) -> Plan:
        desk = self.desk
        give_back(desk)
        waiting: list[tuple[Asked, tuple[float, ...]]] = []
        for asked in desk.asked.values():
            if asked.rests:
                continue
            if asked.fresh and asked.never == []:
                waiting.append((asked, asked.lacks))
                continue
            if desk.told_to_give(asked.job.name):
                if asked.job.reserved:
                    desk.release(asked)
                continue
            if not waits(asked):
                if asked.job.reserved and not asked.job.suspended:
                    kept(desk, self._ahead, asked)
                continue
            if never := reasons.never(desk, asked):
                if asked.job.reserved:
                    desk.release(asked)
                held = reasons.holding(desk, asked, asked.lacks, never)
                desk.deny(reasons.denied(asked, held))
            elif not kept(desk, self._ahead, asked):
                waiting.append((asked, asked.lacks))
        policy = peer(desk.cluster, desk.rules)
        if policy is not None:
            soon = follow(desk, policy, [asked for asked, _ in waiting])
            give_up_stale(desk)
            return desk.plan(self._again_at(soon))
        order = in_order(waiting, desk.current.ledger)
        desk.classes = classes(order, desk.current.ledger)
        desk.waiting = order = by_date(desk, order)
        self._ahead.review(order)
        self._service.serve(order)
        soon = self._sizes.even_out()
        known = len(desk.withdrawn)
        soon = take_back_own(desk, self._victims, self._ahead) or soon
        self._service.serve_withdrawn(known)
        return desk.plan(self._again_at(desk.now + _SOON_SECONDS if soon else None))

    def _again_at(self, soon: Stamp | None) -> Stamp | None:
        """When the next date, wall time, or patience with a job below its minimum is over."""
        desk = self.desk
        dates = self._service.dates
        moments = [soon, dates.again_at if dates is not None else None]
        for laid in self._ahead.all():
            moments += [laid.start - desk.rules.notice_seconds, laid.start]
        moments += self._turns()
        for name, asked in desk.below.items():
            if name in desk.present and name not in desk.settled:
                moments.append((asked.job.below_since or 0.0) + desk.rules.stale_seconds)
        starving = desk.rules.starving_seconds
        since = [desk.asked[name].waiting_since for name in desk.denied]
        first = min((each for each in since if each + starving > desk.now), default=None)
        moments.append(None if first is None else first + starving)
        return min((each for each in moments if each is not None and each > desk.now), default=None)

    def _turns(self) -> list[Stamp]:
        """When the next wall time, or turn, of those is over who hold something."""
        desk, known = self.desk, self.desk.holdings
        turn = desk.rules.minimum_run_seconds or math.inf
        touched = desk.touched()
        rows = known.rows(touched)
        walls = known.wall[rows]
        over = known.since[rows] + np.where(np.isinf(walls), turn, walls)
        over[over <= desk.now] = math.inf
        those = [asked.job.name for asked in known.of(rows[over == over.min(initial=math.inf)][:1])]
        those += [name for name in touched if name in desk.present]
        moments: list[Stamp] = []
        for name in those:
            asked = desk.asked[name]
            wall = asked.job.wall_seconds
            length = desk.rules.minimum_run_seconds or None if wall is None else wall
            if length is not None:
                moments.append(length + (asked.job.since if asked.present else desk.now))
        return moments
