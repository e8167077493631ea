"""Who gives way so that a waiting job can start: surplus of others if that is enough, else whole jobs.

The laws of `shares` say what may be taken, and that nobody gives up anything unless the beneficiary has
a place among what is then free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.units import Unit, claim_of
from shoal.schedule.placing.asks import Gang, Placement
from shoal.schedule.placing.place import place
from shoal.schedule.shares.laws import Laws
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.victims import choose

__all__ = ["give_way"]


def give_way(
    desk: Desk, asked: Asked, amounts: tuple[float, ...], gang: Gang
) -> tuple[dict[str, list[Task]], Placement] | None:
    """Which tasks of which jobs go, and where the beneficiary will be; `later` is as it will be then
    with its place taken. None, and nothing changes, where nobody can."""
    units = _all_units(desk, asked)
    for surplus_only in (True, False):
        offered = [unit for unit in units if not (surplus_only and unit.core)]
        if not offered:
            continue
        found = _chosen(desk, asked, amounts, gang, offered)
        if found:
            return _whole(desk, found), _placed(desk, found, gang)
    return None


def _all_units(desk: Desk, asked: Asked) -> list[Unit]:
    """Of all that hold something, but for those who are protected from this job."""
    mine = desk.queue(asked.job)
    found: list[Unit] = []
    for name in desk.present:
        other = desk.asked[name]
        theirs = desk.queue(other.job)
        held_for = desk.now - other.job.since
        row = desk.cluster.queues[theirs]
        if name == asked.job.name or other.job.reserved:
            continue
        if theirs != mine and held_for < row.minimum_seconds:
            continue
        found += desk.units(other)
    return found


def _chosen(
    desk: Desk, asked: Asked, amounts: tuple[float, ...], gang: Gang, units: Sequence[Unit]
) -> list[Unit]:
    room, queue = desk.later.room, desk.queue(asked.job)
    laws = Laws(beyond_nominal=desk.rules.beyond_nominal)

    def enough(gone: Sequence[int]) -> bool:
        mark = room.mark()
        try:
            _free(desk, (units[at] for at in gone))
            return place(room, gang) is not None
        finally:
            room.rollback(mark)

    def refill(ledger: Ledger, gone: Sequence[int]) -> None:
        for at in sorted(gone, key=lambda each: -units[each].holding.priority):
            holding = units[at].holding
            if ledger.refusal(holding.queue, holding.amounts) is None:
                ledger.charge(holding.queue, holding.amounts)

    claim = claim_of(asked, queue, amounts, desk.number[asked.job.name])
    holdings = [unit.holding for unit in units]
    gone = choose(desk.later.ledger, claim, holdings, laws, enough, refill)
    return [units[at] for at in gone or ()]


def _whole(desk: Desk, units: Iterable[Unit]) -> dict[str, list[Task]]:
    """By job; who cannot go on gives up everything."""
    found: dict[str, list[Task]] = {}
    for unit in units:
        name = unit.asked.job.name
        if unit.core:
            found[name] = list(desk.present[name])
        elif len(found.get(name, ())) < len(desk.present[name]):
            found.setdefault(name, []).extend(unit.tasks)
    return found


def _placed(desk: Desk, units: Sequence[Unit], gang: Gang) -> Placement:
    """Where it will be. The victims' room is given back by those who let them go, so not here."""
    room = desk.later.room
    mark = room.mark()
    _free(desk, units)
    found = place(room, gang)
    room.rollback(mark)
    if found is None:
        raise AssertionError("what was enough a moment ago is not")
    return found


def _free(desk: Desk, units: Iterable[Unit]) -> None:
    for unit in units:
        for tasks in unit.asked.placement(unit.tasks):
            desk.later.room.give_back(tasks)
