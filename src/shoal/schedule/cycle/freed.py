"""What a gang would find on the nodes once some of those who run are gone.

Mostly one more has gone than when it was asked last, so the room is left as it was then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shoal.schedule.cycle.units import Unit
from shoal.schedule.placing.asks import Gang, Placement, Shape, Tasks
from shoal.schedule.placing.place import has_room, place
from shoal.schedule.placing.room import Room

__all__ = ["Freed", "free", "touched"]


class Freed:
    """Units by their numbers. The room is another until `restore` is called."""

    def __init__(self, room: Room, units: Sequence[Unit], gang: Gang) -> None:
        self._room, self._units, self._gang = room, units, gang
        self._start = room.mark()
        self._gone: list[int] = []
        self.steady = len(gang.groups) == 1
        """Of several groups a place may be found with less room, and missed with more."""

    def fits(self, gone: Sequence[int]) -> bool:
        """Whether the gang has a place once these are gone."""
        self._let_go(gone)
        return has_room(self._room, self._gang)

    def takes(self, gone: Sequence[int]) -> Collection[int]:
        """Those of them that are where it is placed; none where it is not."""
        self._let_go(gone)
        mark = self._room.mark()
        found = place(self._room, self._gang)
        self._room.rollback(mark)
        return set() if found is None else touched(self._units, found, gone)

    def restore(self) -> None:
        """Nobody has gone."""
        self._room.rollback(self._start)
        self._gone = []

    def _let_go(self, gone: Sequence[int]) -> None:
        if self._gone != list(gone[: len(self._gone)]):
            self.restore()
        more = gone[len(self._gone) :]
        free(self._room, (self._units[at] for at in more))
        self._gone += more


def free(room: Room, units: Iterable[Unit]) -> None:
    """Give back what they take."""
    pieces: dict[Shape, list[Tasks]] = {}
    for unit in units:
        for tasks in unit.placement:
            pieces.setdefault(tasks.shape, []).append(tasks)
    for shape, some in pieces.items():
        room.give_back(Tasks.joined(shape, some))


def touched(units: Sequence[Unit], placement: Placement, numbers: Iterable[int]) -> set[int]:
    """Those that are on its nodes."""
    nodes = {node for tasks in placement for node in tasks.node.tolist()}
    return {at for at in numbers if not nodes.isdisjoint(units[at].nodes)}
