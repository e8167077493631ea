"""Gangs: every group gets its minimum, or nobody gets anything; then as many more as fit.

For one group nothing is missed: if its minimum fits within its reach, it is placed. Groups of several
shapes share nodes, and finding a place for all of them is bin packing: domains are tried with the
scarcest group first and then the other way round, and what neither finds is not placed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from shoal.schedule.placing.asks import Domain, Gang, Group, Placement, Reach, Tasks
from shoal.schedule.placing.dealing import packed, spread
from shoal.schedule.placing.joint import Joint
from shoal.schedule.placing.room import Room
from shoal.schedule.placing.scopes import best_count, scopes
from shoal.schedule.placing.topology import Topology

__all__ = ["has_room", "place"]

_TRIES = 32
"""Domains in which a gang of several groups is tried; those that have too little in all do not count."""


def place(room: Room, gang: Gang) -> Placement | None:
    """Take room for the gang; None, and nothing is taken, where it does not fit.

    Each group has from its minimum to its maximum, as many as fit: more tasks come before closer ones,
    where closeness is only preferred. Raises ValueError for a level, domain or mask that there is not.
    """
    _check(room.topology, gang)
    least = [group.minimum for group in gang.groups]
    most = [_most(room, gang, group) for group in gang.groups]
    if any(low > high for low, high in zip(least, most, strict=True)) or sum(most) < gang.minimum:
        return None
    found = _together(room, gang, most, most)
    if found is None and least != most:
        found = _together(room, gang, least, most)
    return found


def has_room(room: Room, gang: Gang) -> bool:
    """Whether `place` finds a place; nothing is taken. Of one group that is counted, not tried."""
    group = gang.groups[0]
    both = gang.reach.required is not None and group.reach.required is not None
    if len(gang.groups) == 1 and group.minimum and not both:
        _check(room.topology, gang)
        return max(group.minimum, gang.minimum) <= _most(room, gang, group)
    mark = room.mark()
    found = place(room, gang)
    room.rollback(mark)
    return found is not None


def _most(room: Room, gang: Gang, group: Group) -> int:
    """How many tasks of the group fit if there is no other group."""
    if not group.maximum:
        return 0
    table = room.fits(group.shape)
    best = min(best_count(table, gang.reach, gang.inside), best_count(table, group.reach, gang.inside))
    return min(group.maximum, best)


def _together(room: Room, gang: Gang, counts: Sequence[int], most: Sequence[int]) -> Placement | None:
    """So many of each group, then up to the most, in the first domain that takes it.

    Where there may be more, roomy domains come first, as wide as is allowed: close is second to many.
    """
    mark = room.mark()
    grows = list(counts) != list(most)
    reach = Reach(required=gang.reach.required) if grows else gang.reach
    attempt = _Attempt(room, gang, roomy=grows or gang.spread is not None)
    asked = [at for at, count in enumerate(counts) if count] or list(range(len(counts)))
    shapes = [gang.groups[at].shape for at in asked]
    wanted = [counts[at] for at in asked]
    times = [room.fits(shape).total / max(count, 1) for shape, count in zip(shapes, wanted, strict=True)]
    order = [asked[at] for at in sorted(range(len(asked)), key=times.__getitem__)]
    orders = [order, order[::-1]] if len(order) > 1 else [order]
    candidates = scopes(room, shapes, wanted, reach, gang.inside, near=gang.near, roomy=attempt.roomy)
    if len(asked) > 1:  # the first will mostly do, and to know better costs more than to try
        joint = Joint(room, [gang.groups[at] for at in asked], wanted)
        candidates = islice(chain(islice(candidates, 1), filter(joint.could, candidates)), _TRIES)
    for scope in candidates:
        for each in orders:
            pieces: list[list[Tasks]] = [[] for _ in counts]
            if all(attempt.fill(at, counts[at], scope, pieces[at]) for at in each):
                if grows:
                    attempt.extend(most, scope, pieces)
                if sum(len(tasks) for mine in pieces for tasks in mine) >= gang.minimum:
                    return tuple(
                        Tasks.joined(group.shape, mine)
                        for group, mine in zip(gang.groups, pieces, strict=True)
                    )
            room.rollback(mark)
    return None


@dataclass(frozen=True)
class _Attempt:
    """At one gang. What is taken is added to the pieces of its group; nothing is rolled back here."""

    room: Room
    gang: Gang
    roomy: bool
    """Roomy domains before tight ones."""

    def fill(self, at: int, count: int, scope: Domain | None, pieces: list[Tasks]) -> bool:
        """Exactly so many tasks of the group, or none."""
        group, near = self.gang.groups[at], self.gang.near
        shapes, counts = [group.shape], [count]
        for within in scopes(self.room, shapes, counts, group.reach, scope, near=near, roomy=self.roomy):
            self._outwards(group, count, near, within, pieces)
            return True
        return False

    def extend(self, most: Sequence[int], scope: Domain | None, pieces: Sequence[list[Tasks]]) -> None:
        """As many more as fit, group by group, as far out as the gang may reach from where it is."""
        topology, gang = self.room.topology, self.gang
        required = gang.reach.required
        bound = gang.inside
        if required is not None and scope is not None and scope.level >= required:
            bound = topology.widened(scope, required)
        for at, (group, mine) in enumerate(zip(gang.groups, pieces, strict=True)):
            table = self.room.fits(group.shape)
            own, level = bound, group.reach.required
            if level is not None and not mine:
                self.fill(at, min(most[at], best_count(table, group.reach, bound)), bound, mine)
                continue
            if level is not None and (bound is None or level > bound.level):
                own = Domain(level, int(topology.domain[level, mine[0].node[0]]))
            more = min(most[at] - sum(map(len, mine)), table.capacity(own))
            self._outwards(group, more, gang.near or scope, own, mine)

    def _outwards(
        self, group: Group, count: int, inner: Domain | None, outer: Domain | None, pieces: list[Tasks]
    ) -> None:
        """So many tasks, which fit in the outer domain, from the inner one to there."""
        reach = group.reach if group.reach.preferred is not None else self.gang.reach
        for step in _steps(self.room.topology, inner, outer):
            table = self.room.fits(group.shape)
            here = min(count, table.capacity(step))
            if here > 0:
                if self.gang.spread is not None:
                    nodes, each = spread(table, step, here, self.gang.spread)
                elif self.gang.balanced is not None:
                    nodes, each = spread(table, step, here, self.gang.balanced, few=True)
                else:
                    nodes, each = packed(table, step, here, reach.preferred)
                pieces.append(self.room.take(group.shape, nodes, each))
                count -= here


def _steps(topology: Topology, inner: Domain | None, outer: Domain | None) -> list[Domain | None]:
    """From the inner domain, level by level, to the outer; the outer alone where it is not around it."""
    steps: list[Domain | None] = []
    if inner is not None and topology.holds(outer, inner) and inner != outer:
        last = -1 if outer is None else outer.level
        for level in range(inner.level, last, -1):
            around = topology.widened(inner, level)
            if around is not None:
                steps.append(around)
    return [*steps, outer]


def _check(topology: Topology, gang: Gang) -> None:
    if not gang.groups:
        raise ValueError("a gang has at least one group")
    topology.check(gang.inside)
    topology.check(gang.near)
    topology.check_level(gang.spread)
    topology.check_level(gang.balanced)
    for reach in (gang.reach, *(group.reach for group in gang.groups)):
        topology.check_level(reach.required)
        topology.check_level(reach.preferred)
