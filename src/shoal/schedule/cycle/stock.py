"""What everybody who holds something may give up, kept up while the decision is made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import Unit, is_surplus, own_priority, units_of
from shoal.schedule.shares.laws import Claim
from shoal.schedule.shares.offers import Offers

__all__ = ["Stock"]


class Stock:
    """Of one decision. Units have the numbers of their holdings in `offers`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.offers = Offers()
        self.units: list[Unit] = []
        self.surplus = 0
        """So many of those that are offered are beyond somebody's minimum."""
        self._of: dict[str, tuple[tuple[Task, ...], Sequence[int]]] = {}
        self._young: dict[int, set[int]] = {}
        """By queue: who has not held something there for long enough to be taken for other queues."""
        self._pending: set[str] = set()
        """Who holds more or less than what is offered."""
        self._lowest: dict[int, int] | None = {}
        """By queue, the lowest priority of those, where all of them were started in this plan."""
        self._beside: set[int] | None = None
        self._beyond: list[int] | None = None
        """What `old_beside_new` and `beyond` have found, while nothing has changed."""
        self._offer([(name, desk.offered(name)) for name in desk.present])

    def changed(self, names: Collection[str]) -> None:
        """These jobs hold more or less than before."""
        if not names:
            return
        self._beside = self._beyond = None
        self._pending.update(names)
        desk, lowest = self._desk, self._lowest
        if lowest is None:
            return
        kinds: dict[tuple[int, bool], Asked] = {}
        for name in names:
            if name in self._of or not desk.is_new(name):
                self._lowest = None
                return
            asked = desk.asked[name]
            kinds.setdefault((asked.kind, asked.needs.elastic), asked)
        for asked in kinds.values():
            job = asked.job
            low = own_priority(job, surplus=asked.needs.elastic, turn_over=desk.turn_over(job))
            lowest[asked.queue] = min(low, lowest.get(asked.queue, low))

    def look(self, claim: Claim) -> None:
        """All is offered that the claim could take: it takes nothing of its own queue that is of no
        lower priority, and tens of thousands of equal jobs may have been started before it."""
        low = self._lowest
        if low is None or any(queue != claim.queue or low[queue] < claim.priority for queue in low):
            self._renew(self._pending)
            self._pending, self._lowest = set(), {}

    def _renew(self, names: Collection[str]) -> None:
        others: list[tuple[str, tuple[Task, ...]]] = []
        for name in sorted(names):
            present, numbers = self._of.get(name, ((), ()))
            offered = self._desk.offered(name)
            if offered is not present:
                others.append((name, offered))
                self._of.pop(name, None)
                for number in numbers:
                    self.offers.remove(number)
                    self.surplus -= not self.units[number].core
        self._offer(others)

    def spared(self, queue: int) -> set[int]:
        """Who has not held something for long enough to be taken for this queue."""
        return {at for q, young in self._young.items() if q != queue for at in young}

    def beyond(self) -> list[int]:
        """All surplus, ascending."""
        if self._beyond is None:
            self._beyond = self.offers.numbers(is_surplus)
        return self._beyond

    def old_beside_new(self) -> set[int]:
        """What was there before this plan, in queues that have got more by it."""
        if self._beside is None:
            desk = self._desk
            queues = {queue for queue, _ in desk.new_holdings()}
            self._beside = {
                at
                for name, (_, numbers) in self._of.items()
                if desk.asked[name].queue in queues and not desk.is_new(name)
                for at in numbers
            }
        return self._beside

    def _offer(self, given: Iterable[tuple[str, tuple[Task, ...]]]) -> None:
        """Of these jobs, so much each."""
        desk = self._desk
        first = len(self.units)
        for name, tasks in given:
            if not tasks:
                continue
            asked = desk.asked[name]
            units = self._units_of(asked, tasks)
            numbers = range(len(self.units), len(self.units) + len(units))
            self.units += units
            self.surplus += len(units) - units[-1].core if units else 0  # what it needs goes last
            if desk.now - desk.began(asked.job) < desk.cluster.queues[asked.queue].minimum_seconds:
                self._young.setdefault(asked.queue, set()).update(numbers)
            self._of[name] = (tasks, numbers)
        self.offers.extend([unit.holding for unit in self.units[first:]])
        self.offers.sort()

    def _units_of(self, asked: Asked, tasks: tuple[Task, ...]) -> list[Unit]:
        """What follows from its row alone is known from the plan before."""
        desk, name = self._desk, asked.job.name
        began, over = desk.began(asked.job), desk.turn_over(asked.job)
        if tasks is not asked.present or over:
            return units_of(asked, tasks, asked.queue, asked.number, began, turn_over=over)
        known = desk.units.get(name)
        if known is None or known[0] is not asked:
            known = asked, units_of(asked, tasks, asked.queue, asked.number, began)
            desk.units[name] = known
        return known[1]
