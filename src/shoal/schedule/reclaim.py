"""What a waiting job may take over from elastic jobs of lower priority, one task at a time.

The room *later* is what will be free once everything on its way out has gone. A job that fits there
only if others give up surplus gets a reservation, and exactly those tasks are named that it cannot do
without: of the lowest priority first, of the youngest job, the highest index. Nobody goes below its
minimum, a role that is not elastic (the coordinator) gives nothing, and nobody gives anything up for a
job that would not fit then. What is reserved is nobody else's who comes later in the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from shoal.schedule.give_back import Draft
from shoal.schedule.quota import Quotas
from shoal.schedule.reasons import Ask, place_all
from shoal.schedule.room import Bools, Place, Room
from shoal.schedule.snapshot import Hold, RoleForm, Snapshot

__all__ = ["Reclaim", "Reservation"]

_MOST_AT_ONCE = 16
"""So many jobs are made room for in one decision; the next one goes on, and starts come in between."""

Victim = tuple[Draft, Hold]


@dataclass(frozen=True)
class Reservation:
    """Where the tasks of each ask will stand, in their order, and who gives up which slot for them."""

    places: list[list[Place]]
    victims: tuple[Victim, ...]


class Reclaim:
    """Mutable, for one decision. `drafts` are all jobs that hold something, as they are decided on."""

    def __init__(self, snapshot: Snapshot, drafts: Mapping[str, Draft]) -> None:
        self._snapshot = snapshot
        self._drafts = drafts
        self._later: Room | None = None
        self._givers: list[Draft] | None = None
        self._disturbed = 0
        lost = frozenset(node.name for node in snapshot.nodes if node.lost)
        self._quotas = Quotas(snapshot.queues, lost)

    def took(self, draft: Draft, hold: Hold) -> None:
        """The job was given this in the meantime."""
        if self._later is not None:
            self._later.occupy(hold)
            self._quotas.charge(draft.row, hold, 1)

    def gave_back(self, draft: Draft, hold: Hold) -> None:
        """The job was made to give this back in the meantime."""
        if self._later is not None:
            self._later.give_back(hold)
            self._quotas.charge(draft.row, hold, -1)

    def reserve(self, draft: Draft, asks: list[Ask], where: list[Bools]) -> Reservation | None:
        """Keep room for these tasks, on the nodes `where` allows for each ask. The victims' slots are
        given back; None, and nothing changed, where that would not help, or is not needed."""
        if not (self._surplus() or draft.row.reserved):
            return None
        victims: list[Victim] = []
        if self._fits(draft, asks, where):
            if not draft.row.reserved:
                return None  # all that it needs is on its way out: it waits in line like everybody
        elif self._disturbed < _MOST_AT_ONCE:
            victims = self._fewest(draft, asks, where)
        if not (victims or draft.row.reserved) or not self._without(draft, asks, where, victims):
            return None
        self._disturbed += bool(victims)
        for giver, hold in victims:
            self.gave_back(giver, hold)
            giver.give_up(hold, draft.row)
        places = place_all(self._room(), asks, where)
        assert places is not None, "it fitted a moment ago"
        for role, count in asks:
            self._quotas.charge(draft.row, role.shape, count)
        return Reservation(places, tuple(victims))

    def _without(self, draft: Draft, asks: list[Ask], where: list[Bools], victims: list[Victim]) -> bool:
        """Whether it fits once these have gone; changes nothing."""
        for victim in victims:
            self.gave_back(*victim)
        fits = self._fits(draft, asks, where)
        for victim in victims:
            self.took(*victim)
        return fits

    def _fewest(self, draft: Draft, asks: list[Ask], where: list[Bools]) -> list[Victim]:
        """One more until it fits; then those go free whose places do not help after all. Nobody, where
        all of them together are not enough."""
        candidates = list(self._candidates(draft, asks, where))
        if not self._without(draft, asks, where, candidates):
            return []
        taken: list[Victim] = []
        for giver, hold in candidates:
            if self._fits(draft, asks, where):
                break
            self.gave_back(giver, hold)
            taken.append((giver, hold))
        needed: list[Victim] = []
        for victim in taken:
            self.took(*victim)
            if not self._fits(draft, asks, where):
                self.gave_back(*victim)
                needed.append(victim)
        for victim in needed:
            self.took(*victim)
        return needed

    def _fits(self, draft: Draft, asks: list[Ask], where: list[Bools]) -> bool:
        later = self._room()  # which also counts what its queue has
        if self._quotas.exceeded(draft.row, [(role.shape, count) for role, count in asks]) is not None:
            return False
        mark = later.mark()
        fits = place_all(later, asks, where) is not None
        later.rollback(mark)
        return fits

    def _candidates(self, draft: Draft, asks: list[Ask], where: list[Bools]) -> Iterator[Victim]:
        at = self._room().at
        helpful: Bools = np.logical_or.reduce(where)
        fixed = not any(role.elastic for role, _ in asks)
        for giver in self._surplus():
            lower = giver.row.priority < draft.row.priority
            itself = giver is draft and fixed
            if lower or itself:
                for hold in _spare(giver):
                    if hold.node in at and helpful[at[hold.node]]:
                        yield giver, hold

    def _surplus(self) -> list[Draft]:
        """Jobs that may have something to spare: the lowest priority first, then the youngest."""
        if self._givers is None:
            held = (self._drafts.get(row.uid) for row in reversed(self._snapshot.jobs))
            self._givers = [draft for draft in held if draft is not None and any(_spare(draft))]
        return self._givers

    def _room(self) -> Room:
        if self._later is None:
            stays: list[Hold] = []
            for draft in self._drafts.values():
                own = (*draft.kept.values(), *draft.got.values())
                self._quotas.count(draft.row, own)
                stays += own
            self._later = Room(self._snapshot.nodes, (*stays, *self._snapshot.strangers))
        return self._later


def _spare(draft: Draft) -> Iterator[Hold]:
    """What a job can do without, the highest index first. Jobs whose tasks start together have nothing
    to spare: losing one would stop them all."""
    form = draft.form
    if form.whole or form.array:
        return
    there = {role.name: len(draft.done(role.name)) for role in form.roles}
    for name, _ in draft.kept:
        there[name] = there.get(name, 0) + 1
    over = sum(there.values()) - form.minimum
    for role in form.roles:
        spare = min(over, there[role.name] - role.minimum) if role.elastic else 0
        holds = _of_role(draft, role)[: max(0, spare)]
        over -= len(holds)
        yield from holds


def _of_role(draft: Draft, role: RoleForm) -> list[Hold]:
    holds = [hold for (name, _), hold in draft.kept.items() if name == role.name]
    return sorted(holds, key=lambda hold: hold.index, reverse=True)
