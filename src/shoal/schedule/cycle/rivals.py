"""What others wait for who might take something back.

Whether a queue may be taken from depends on who asks for how much: whoever asks for more of the same
resources may not where one of its queue that asks for less may not. So of each queue the least is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.units import claim_of
from shoal.schedule.shares.laws import Claim

__all__ = ["Rivals"]


class Rivals:
    """Of one decision."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rows: Sequence[Asked] = ()
        self._lines: dict[int, list[Asked]] = {}
        """By queue, those who ask for least before those who ask for more."""
        self._least: dict[int, tuple[int, list[Asked]]] = {}

    def of(self, queue: int) -> Iterator[Claim]:
        """In other queues than this one."""
        if self._rows is not self._desk.waiting:
            self._rows = self._desk.waiting
            self._lines.clear()
            self._least.clear()
            for asked in self._rows:
                self._lines.setdefault(asked.queue, []).append(asked)
            for line in self._lines.values():
                line.sort(key=_ask)
        for other in self._lines:
            if other != queue:
                for asked in self._waiting(other):
                    yield claim_of(asked, other, _ask(asked), -1)

    def _waiting(self, queue: int) -> list[Asked]:
        """Those with the least asks that have not got anything by now."""
        settled, withdrawn = self._desk.settled, len(self._desk.withdrawn)
        known = self._least.get(queue)
        if known is None or known[0] != withdrawn or any(e.job.name in settled for e in known[1]):
            found: list[Asked] = []
            for asked in self._lines[queue]:
                if asked.job.name not in settled and not any(_less(least, asked) for least in found):
                    found.append(asked)
            known = self._least[queue] = (withdrawn, found)
        return known[1]


def _ask(asked: Asked) -> tuple[float, ...]:
    return asked.wish[1]


def _less(one: Asked, other: Asked) -> bool:
    """Whether the one asks for as little of the same, or for less."""
    return all((a > 0) is (b > 0) and a <= b for a, b in zip(_ask(one), _ask(other), strict=True))
