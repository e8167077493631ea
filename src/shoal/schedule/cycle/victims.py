"""Who gives way so that a waiting job can start: surplus of others if that is enough, else whole jobs.

Where as much surplus as may be taken is not in the right places, other surplus tasks go for those: what
is left has room for as many, and growth gives it back.

The laws of `shares` say what may be taken, and that nobody gives up anything unless the beneficiary has
a place among what is then free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.freed import Freed, free, touched
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.lines import Rest
from shoal.schedule.cycle.rivals import Rivals
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.stock import Stock
from shoal.schedule.cycle.units import Unit, claim_of, is_surplus
from shoal.schedule.cycle.wishes import charge_all
from shoal.schedule.placing.asks import Gang, Group, Placement
from shoal.schedule.placing.place import place
from shoal.schedule.shares.laws import Claim, Laws, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.victims import affordable, choose

__all__ = ["Victims"]

_SWAPS = 200
"""So many surplus tasks are looked at, where those that may be taken are in the wrong places."""

_Found = tuple[dict[str, list[Task]], Placement]


@dataclass(frozen=True)
class _Either:
    one: Container[object]
    other: Container[object]

    def __contains__(self, number: object) -> bool:
        return number in self.one or number in self.other


class Victims:
    """Of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._stock = Stock(desk)
        self._units = self._stock.units
        self._rivals = Rivals(desk)
        self._vain: set[tuple[object, ...]] = set()
        """Asks of queues for more of their own that found nobody, since anything changed."""
        self._beside: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        """What `_beside_guarantees` has found since then."""

    def changed(self, names: Collection[str]) -> None:
        """These jobs hold more or less than before."""
        if names:
            self._vain.clear()
            self._beside.clear()
        self._stock.changed(names)

    def give_way(
        self, asked: Asked, amounts: tuple[float, ...], gang: Gang, rest: Rest
    ) -> _Found | None:
        """Which tasks of which jobs go, and where the beneficiary will be. None where nobody can.
        `rest` are those that wait behind it.

        Nothing is changed here."""
        desk = self._desk
        claim = claim_of(asked, asked.queue, amounts, asked.number)
        self._stock.look(claim)
        laws = Laws(beyond_nominal=desk.rules.beyond_nominal)
        spared = self._stock.spared(asked.queue)
        if not affordable(desk.later.ledger, claim, self._stock.offers, laws, spared=spared):
            return None
        gone = None
        if self._stock.surplus:
            gone = self._chosen(asked, amounts, gang, rest, surplus_only=True)
            if gone == ():
                return None  # something else is in the way
            gone = gone or self._swapped(asked, amounts, gang, rest)
        gone = gone or self._chosen(asked, amounts, gang, rest, surplus_only=False)
        return self._found(gone, gang) if gone else None

    def _swapped(
        self, asked: Asked, amounts: tuple[float, ...], gang: Gang, rest: Rest | None
    ) -> tuple[int, ...] | None:
        """As much surplus as may be taken, in other places, of jobs that are not of higher priority."""
        room = self._desk.later.room
        lawful = self._chosen(asked, amounts, gang, rest, surplus_only=True, anywhere=True)
        if lawful is None or any(self._desk.is_new(self._units[at].asked.job.name) for at in lawful):
            return None
        others = self._beside_guarantees(asked.job.priority, lawful)
        mark = room.mark()
        try:
            free(room, (self._units[at] for at in (*lawful, *others)))
            placed = place(room, gang)
            if placed is None:
                return None
            moved = touched(self._units, placed, others)
            room.rollback(mark)
            free(room, (self._units[at] for at in (*lawful, *sorted(moved))))
            for tasks in placed:
                room.occupy(tasks)
            again = Counter(tasks.shape for at in sorted(moved) for tasks in self._units[at].placement)
            for shape, count in again.items():
                if place(room, Gang((Group(shape, count, count),))) is None:
                    return None
        finally:
            room.rollback(mark)
        return tuple(sorted((*lawful, *moved)))

    def has_nothing_for(self, asked: Asked, amounts: tuple[float, ...]) -> bool:
        """Whether `surplus_for` has found nobody for one that is alike, since anything changed."""
        return _alike(asked, amounts) in self._vain

    def surplus_for(self, asked: Asked, amounts: tuple[float, ...], gang: Gang) -> _Found | None:
        """As `give_way`, of surplus of other queues alone, and of what is the queue's own."""
        self._stock.look(claim_of(asked, asked.queue, amounts, asked.number))
        gone = self._chosen(asked, amounts, gang, None, surplus_only=True, own_only=True)
        if not gone:
            self._vain.add(_alike(asked, amounts))
        return self._found(gone, gang) if gone else None

    def _chosen(
        self,
        asked: Asked,
        amounts: tuple[float, ...],
        gang: Gang,
        rest: Rest | None,
        *,
        surplus_only: bool,
        own_only: bool = False,
        anywhere: bool = False,
    ) -> tuple[int, ...] | None:
        desk = self._desk
        queue = desk.queue(asked.job)
        freed = None if anywhere else Freed(desk.later.room, self._units, gang)

        def refill(ledger: Ledger, gone: Sequence[int]) -> None:
            """Who would start, or start again, in what is left."""
            held = [self._units[at].holding for at in gone]
            held.sort(key=lambda holding: -holding.priority)
            wishes = [(holding.queue, holding.amounts) for holding in held]
            if rest is None:
                charge_all(ledger, wishes)
            else:
                rest.refill(ledger, wishes)

        spared = self._stock.spared(queue)
        claim = claim_of(asked, queue, amounts, asked.number)
        laws = Laws(beyond_nominal=desk.rules.beyond_nominal and not own_only)
        ledger = desk.later.ledger
        only = is_surplus if surplus_only else None
        for again in (False, True):
            without = self._stock.old_beside_new() if again else ()
            found = choose(
                ledger,
                claim,
                self._stock.offers,
                laws,
                freed,
                refill,
                spared=_Either(spared, without) if without else spared,
                only=only,
                abroad=own_only,
                rivals=self._rivals.of(queue),
            )
            if found is None or self._lawful_anyway(found, claim, laws):
                return found
        return None

    def _lawful_anyway(self, gone: Sequence[int], claim: Claim, laws: Laws) -> bool:
        """Nobody who was there before gives way because his queue has got more in this very plan: that
        may be taken back while it is made."""
        desk = self._desk
        old = [self._units[at].holding for at in gone if not desk.is_new(self._units[at].asked.job.name)]
        queues = {holding.queue for holding in old} - {claim.queue}
        new = [each for each in desk.new_holdings() if each[0] in queues]
        if not new:
            return True
        ledger = desk.later.ledger.copy()
        for queue, amounts in new:
            ledger.charge(queue, amounts, -1)
        for holding in old:
            if reclaim_refusal(ledger, claim, holding, laws, unequal=True) is not None:
                return False
            ledger.charge(holding.queue, holding.amounts, -1)
        return True

    def _beside_guarantees(self, priority: int, gone: tuple[int, ...]) -> list[int]:
        """Surplus of jobs of no higher priority that leaves every queue what is kept for it, also for
        the moment until it grows again."""
        key = (self._desk.later.version, priority, gone)
        found = self._beside.get(key)
        if found is None:
            found = self._beside[key] = []
            trial = self._desk.later.ledger.copy()
            for at in gone:
                trial.charge(self._units[at].holding.queue, self._units[at].holding.amounts, -1)
            for at in self._stock.beyond():
                if len(found) == _SWAPS:
                    break
                if at not in gone and self._units[at].asked.job.priority <= priority:
                    holding = self._units[at].holding
                    if trial.leaves_kept(holding.queue, holding.amounts):
                        trial.charge(holding.queue, holding.amounts, -1)
                        found.append(at)
        return found

    def _found(self, gone: Sequence[int], gang: Gang) -> _Found:
        units = [self._units[at] for at in gone]
        return self._whole(units), self._placed(units, gang)

    def _whole(self, units: Iterable[Unit]) -> dict[str, list[Task]]:
        """By job; who cannot go on gives up everything."""
        found: dict[str, list[Task]] = {}
        for unit in units:
            name = unit.asked.job.name
            if unit.core:
                found[name] = list(self._desk.offered(name))
            elif len(found.get(name, ())) < len(self._desk.offered(name)):
                found.setdefault(name, []).extend(unit.tasks)
        return found

    def _placed(self, units: Sequence[Unit], gang: Gang) -> Placement:
        """Where it will be. The victims' room is given back by those who let them go, so not here."""
        room = self._desk.later.room
        mark = room.mark()
        free(room, units)
        found = place(room, gang)
        room.rollback(mark)
        if found is None:
            raise AssertionError("what was enough a moment ago is not")
        return found


def _alike(asked: Asked, amounts: tuple[float, ...]) -> tuple[object, ...]:
    return (asked.queue, asked.job.priority, asked.need, amounts)
