"""What those who wait ask for to start with: mostly the same as others, so it is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.ledger import Ledger

__all__ = ["Wish", "Wishes", "charge_all"]

Ints = NDArray[np.int64]

Wish = tuple[int, tuple[float, ...]]
"""A queue, and what is asked for by column."""


class Wishes:
    """Of a line of jobs that does not change."""

    def __init__(self, line: Sequence[Wish]) -> None:
        number: dict[Wish, int] = {}
        which = np.array([number.setdefault(wish, len(number)) for wish in line], dtype=np.int64)
        self._number = number
        self._wishes: list[Wish] = list(number)
        self._queues = np.array([queue for queue, _ in number], dtype=np.int64)
        self._asks = np.array([ask for _, ask in number], dtype=np.float64)
        self._places = np.argsort(which, kind="stable")
        """By wish, ascending."""
        self._keys = which[self._places] * len(line) + self._places
        self._firsts = np.arange(len(number)) * len(line)
        self._ends = np.cumsum(np.bincount(which, minlength=len(number)))

    def refill(self, ledger: Ledger, at: int, gone: Iterable[Wish]) -> None:
        """Charge what those behind this place ask for, who comes first, first, and what has `gone`: as
        much as is allowed. What is hopeless is left out, whenever something has been refused again."""
        first = np.searchsorted(self._keys, self._firsts + at, side="right")
        counts = self._ends - first
        others: list[Wish] = []
        for wish in gone:
            known = self._number.get(wish)
            if known is not None and counts[known]:
                counts[known] += 1
            else:
                others.append(wish)
        left = np.flatnonzero(first < self._ends)
        left = left[np.argsort(self._places[first[left]])]
        while left.size:
            left = left[ledger.hopeful(self._queues[left], self._asks[left])]
            left = left[self._charged(ledger, left, counts) :]
        charge_all(ledger, others)

    def _charged(self, ledger: Ledger, left: Ints, counts: Ints) -> int:
        """How many of these wishes were looked at until one was refused after others were not."""
        some, numbers = False, list[int](left.tolist())
        for looked_at, w in enumerate(numbers, 1):
            queue, ask = self._wishes[w]
            for _ in range(int(counts[w])):
                if not ledger.allows(queue, ask):
                    if some:
                        return looked_at
                    break
                ledger.charge(queue, ask)
                some = True
        return len(left)


def charge_all(ledger: Ledger, wishes: Iterable[Wish]) -> None:
    """As many as are allowed, equal ones where the first of them is."""
    for (queue, ask), count in Counter[Wish](wishes).items():
        for _ in range(count):
            if not ledger.allows(queue, ask):
                break
            ledger.charge(queue, ask)
