"""What a gang would find on the nodes once some of those who run are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shoal.schedule.cycle.units import Unit
from shoal.schedule.placing.asks import Gang, Placement, Shape, Tasks
from shoal.schedule.placing.place import place
from shoal.schedule.placing.prospect import Prospect
from shoal.schedule.placing.room import Room

__all__ = ["Freed", "free", "touched"]


class Freed:
    """Units by their numbers. The room is as it was whenever something has been told."""

    def __init__(self, room: Room, units: Sequence[Unit], gang: Gang) -> None:
        self._room, self._units, self._gang = room, units, gang
        self.steady = Prospect.says_all(gang)
        """Of several groups a place may be found with less room, and missed with more."""
        self._prospect: Prospect | None = None
        self._gone: dict[int, None] = {}

    def fits(self, gone: Sequence[int]) -> bool:
        """Whether the gang has a place once these are gone."""
        if not self.steady:
            return self._placed(gone) is not None
        if self._prospect is None:
            self._prospect = Prospect(self._room, self._gang)
        after = dict.fromkeys(gone)
        for numbers, sign in ((self._gone.keys() - after, -1), (after.keys() - self._gone, 1)):
            for at in numbers:
                self._prospect.change(self._units[at].placement, sign)
        self._gone = after
        return self._prospect.fits()

    def takes(self, gone: Sequence[int]) -> Collection[int]:
        """Those of them that are where it is placed; none where it is not."""
        found = self._placed(gone)
        return set() if found is None else touched(self._units, found, gone)

    def _placed(self, gone: Sequence[int]) -> Placement | None:
        mark = self._room.mark()
        free(self._room, (self._units[at] for at in gone))
        found = place(self._room, self._gang)
        self._room.rollback(mark)
        return found


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
