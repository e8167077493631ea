"""Jobs move closer together so that another can start: only if it does, and if all of them find a place.

A move costs its job a restart, so that as few as can be are moved. One job is enough more often than
not, and if so, one is moved. Of more, sets are tried in the order of `clearing.proposals`, and what a
set does not need stays where it is; if that finds nothing, or many, those who leave may have others
make room for them in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from shoal.schedule.placing.asks import Domain, Gang, Group, Ints, Placement
from shoal.schedule.placing.clearing import Parts, parts_of, proposals
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Room

__all__ = ["Consolidation", "Mover", "consolidate"]

_DOMAINS = 8
"""Of the domains that a gang has to be in one of, so many are cleared on trial."""
_SHORTEST_CHAIN = 2
"""A job that makes room for a mover, and the mover: no fewer are saved by looking for that."""
_CHAINS = 8
"""Attempts to make room for one mover."""


@dataclass(frozen=True, eq=False)
class Mover:
    """A job that may be moved."""

    gang: Gang
    """What it needs where it goes: as many tasks as it has, as close together."""
    placement: Placement
    """Where it is."""


@dataclass(frozen=True, eq=False)
class Consolidation:
    """A job that starts, and who moves for it."""

    start: Placement
    moves: tuple[tuple[int, Placement], ...]
    """Position of the mover, ascending, and where it goes: perhaps where another mover leaves."""


def consolidate(
    room: Room, gang: Gang, movers: Sequence[Mover], *, most: int = 8, attempts: int = 64
) -> Consolidation | None:
    """Take room for a gang, by moving as few as can be and at most `most` of the movers.

    The room then is as it will be afterwards; where None comes back, it is as it was. At most so many
    `attempts` at sets of movers are made, so None does not prove that there is no way.
    """
    mark = room.mark()
    search = _Search(room, movers, parts_of(room, [mover.placement for mover in movers]))
    found = search.attempt(gang, (), frozenset(), most, chained=False)
    if found is None:
        found = search.find(gang, frozenset(), most, attempts, chained=False)
    if found is not None and len(found.moves) <= _SHORTEST_CHAIN:
        return found
    room.rollback(mark)
    fewer = min(most, len(found.moves) - 1) if found is not None else most
    better = search.find(gang, frozenset(), fewer, attempts // 4, chained=True)
    if better is not None or found is None:
        return better
    return search.attempt(gang, [at for at, _ in found.moves], frozenset(), most, chained=False)


@dataclass(frozen=True)
class _Search:
    room: Room
    movers: Sequence[Mover]
    parts: Parts

    def find(
        self, gang: Gang, gone: frozenset[int], most: int, attempts: int, *, chained: bool
    ) -> Consolidation | None:
        """With none of those who have gone; taken, or nothing is changed."""
        if most < 1:
            return None
        mark = self.room.mark()
        parts = self.parts
        if gone:
            parts = parts.only(~np.isin(parts.job, np.array(sorted(gone), dtype=np.int64)))
        sets = _sets(self.room, gang, parts, most)
        for moved in islice(sets, attempts):
            found = self.attempt(gang, moved, gone, most, chained=chained)
            if found is not None:
                self.room.rollback(mark)
                moved = self._needed(gang, moved, gone, most, chained=chained)
                return self.attempt(gang, moved, gone, most, chained=chained)
        return None

    def attempt(
        self, gang: Gang, moved: Sequence[int], gone: frozenset[int], most: int, *, chained: bool
    ) -> Consolidation | None:
        """All of these leave, the gang comes, they come back, the largest first. All or nothing."""
        mark = self.room.mark()
        for at in moved:
            for tasks in self.movers[at].placement:
                self.room.give_back(tasks)
        start = place(self.room, gang)
        places: dict[int, Placement] = {}
        waiting = self._largest_first(moved) if start is not None else []
        for at in waiting:
            again = place(self.room, self.movers[at].gang)
            if again is None and chained:
                away = gone | set(moved) | set(places)
                spare = most - len(set(moved) | set(places))
                chain = self.find(self.movers[at].gang, away, spare, _CHAINS, chained=False)
                if chain is not None:
                    again = chain.start
                    places.update(chain.moves)
            if again is None:
                break
            places[at] = again
        if start is None or not places.keys() >= set(moved):
            self.room.rollback(mark)
            return None
        return Consolidation(start, tuple(sorted(places.items())))

    def _needed(
        self, gang: Gang, moved: tuple[int, ...], gone: frozenset[int], most: int, *, chained: bool
    ) -> tuple[int, ...]:
        """The set without those that can as well stay, the largest first."""
        mark = self.room.mark()
        for at in self._largest_first(moved):
            fewer = tuple(each for each in moved if each != at)
            if fewer and self.attempt(gang, fewer, gone, most, chained=chained) is not None:
                self.room.rollback(mark)
                moved = fewer
        return moved

    def _largest_first(self, moved: Sequence[int]) -> list[int]:
        return sorted(moved, key=lambda at: (-_size(self.movers[at]), at))


def _sets(room: Room, gang: Gang, parts: Parts, most: int) -> Iterator[tuple[int, ...]]:
    """Sets of movers, none larger than `most`, none twice."""
    seen: set[tuple[int, ...]] = set()
    group = _scarcest(room, gang)
    for scope in _scopes(room, gang, group):
        need = max(group.minimum - room.fits(group.shape).capacity(scope), 1)
        here = parts
        if scope is not None:
            here = parts.only(room.topology.domain[scope.level, parts.node] == scope.index)
        for moved in proposals(room, group.shape, need, here):
            if len(moved) <= most and moved not in seen:
                seen.add(moved)
                yield moved


def _scarcest(room: Room, gang: Gang) -> Group:
    """The group of which the least is there, for what it needs at least."""
    needed = [group for group in gang.groups if group.minimum] or list(gang.groups)
    return min(needed, key=lambda group: room.fits(group.shape).total / max(group.minimum, 1))


def _scopes(room: Room, gang: Gang, group: Group) -> list[Domain | None]:
    """Where to clear: in the domains that lack the least, or everywhere."""
    levels = [reach.required for reach in (gang.reach, group.reach) if reach.required is not None]
    bound = gang.inside
    if not levels or (bound is not None and max(levels) <= bound.level):
        return [bound]
    level = max(levels)
    ids = room.topology.inside(level, bound)
    room_now: Ints = room.fits(group.shape).per_domain(level)[ids]
    order = np.argsort(-room_now, kind="stable")[:_DOMAINS]
    return [Domain(level, int(index)) for index in ids[order]]


def _size(mover: Mover) -> int:
    """Thousandths of GPUs, then tasks."""
    taken = sum(len(tasks) * tasks.shape.slots * tasks.shape.thousandths for tasks in mover.placement)
    return (taken << 32) + sum(map(len, mover.placement))
