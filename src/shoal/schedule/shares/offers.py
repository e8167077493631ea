"""Holdings in the order in which each queue gives them up: the lowest priority first, then the newest.

Kept up while a decision is made, so that a claim costs no sorting. Equal holdings are of one *kind*: the
laws say the same of all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from shoal.schedule.shares.laws import Holding

__all__ = ["Heads", "Kind", "Offers"]

Kind = tuple[int, tuple[float, ...]]
"""Priority and amounts."""

_Key = tuple[int, float, int]


class Offers:
    """Mutable. What is offered has a number that is never given again; of equals the first goes."""

    def __init__(self, holdings: Iterable[Holding] = ()) -> None:
        self.holdings: list[Holding] = []
        """By number, those that were taken back included."""
        self._lines: dict[int, list[_Key]] = {}
        self._kinds: dict[int, dict[Kind, list[_Key]]] = {}
        self._unsorted: set[int] = set()
        self.extend(list(holdings))
        self.sort()

    def add(self, holding: Holding) -> int:
        """Its number."""
        number = self.extend([holding])[0]
        self.sort()
        return number

    def extend(self, holdings: Sequence[Holding]) -> range:
        """Their numbers. Not to be asked for until `sort` has been called."""
        first = len(self.holdings)
        self.holdings += holdings
        for number, holding in enumerate(holdings, first):
            queue = holding.queue
            key = (holding.priority, -holding.started, number)
            self._lines.setdefault(queue, []).append(key)
            kinds = self._kinds.setdefault(queue, {})
            kinds.setdefault((holding.priority, holding.amounts), []).append(key)
            self._unsorted.add(queue)
        return range(first, len(self.holdings))

    def sort(self) -> None:
        """Of queues to which something was added."""
        for queue in self._unsorted:
            self._lines[queue].sort()
            for line in self._kinds[queue].values():
                line.sort()
        self._unsorted.clear()

    def remove(self, number: int) -> None:
        """It is offered no more."""
        holding = self.holdings[number]
        key = (holding.priority, -holding.started, number)
        _take(self._lines[holding.queue], key)
        kinds, kind = self._kinds[holding.queue], (holding.priority, holding.amounts)
        _take(kinds[kind], key)
        if not kinds[kind]:
            del kinds[kind]
        if not self._lines[holding.queue]:
            del self._lines[holding.queue], self._kinds[holding.queue]

    def numbers(self, only: Callable[[Kind], bool]) -> list[int]:
        """All that is offered of these kinds, ascending."""
        return sorted(
            key[2]
            for kinds in self._kinds.values()
            for kind, line in kinds.items()
            if only(kind)
            for key in line
        )

    def queues(self) -> list[int]:
        """Those that offer something, ascending."""
        return sorted(self._lines)

    def heads(
        self, queue: int, only: Callable[[Kind], bool] | None, left: Callable[[int], bool]
    ) -> Heads:
        """Who goes first, of those of the queue that are of these kinds and are left."""
        kinds = self._kinds[queue].items()
        return Heads([line for kind, line in kinds if only is None or only(kind)], left)


class Heads:
    """Of each kind who goes first, while one after the other is taken; the offers stay as they are."""

    def __init__(self, lines: Iterable[Sequence[_Key]], left: Callable[[int], bool]) -> None:
        self._left = left
        self._heads: list[_Key] = []
        self._behind: dict[int, Iterator[_Key]] = {}
        for line in lines:
            self._next(iter(line))
        self._heads.sort()

    def __iter__(self) -> Iterator[int]:
        """Their numbers; whoever would go first of all comes first."""
        return (key[2] for key in self._heads)

    def take(self, number: int) -> None:
        """It has gone; the next of its kind is first."""
        at = next(at for at, key in enumerate(self._heads) if key[2] == number)
        del self._heads[at]
        self._next(self._behind.pop(number))
        self._heads.sort()

    def _next(self, line: Iterator[_Key]) -> None:
        for key in line:
            if self._left(key[2]):
                self._heads.append(key)
                self._behind[key[2]] = line
                return


def _take(line: list[_Key], key: _Key) -> None:
    del line[bisect_left(line, key)]
