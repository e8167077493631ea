"""Holdings in the order in which each queue gives them up: the lowest priority first, then the newest.

Kept up while a decision is made, so that a claim costs no sorting. Equal holdings are of one *kind*: the
laws say the same of all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

from shoal.schedule.shares.laws import Holding

__all__ = ["Heads", "Kind", "Offers", "Only"]

Kind = tuple[int, tuple[float, ...]]
"""Priority and amounts."""

Only = Callable[[Kind], bool]

_Key = tuple[int, float, int]
_Head = tuple[_Key, list[_Key], int]
"""Who goes first of a kind, the line of all of the kind, and where in it that is."""


class Offers:
    """Mutable. What is offered has a number that is never given again; of equals the first goes."""

    def __init__(self, holdings: Iterable[Holding] = ()) -> None:
        self.holdings: list[Holding] = []
        """By number, those that were taken back included."""
        self._lines: dict[int, list[_Key]] = {}
        self._kinds: dict[int, dict[Kind, list[_Key]]] = {}
        self._unsorted: set[int] = set()
        self._firsts: dict[int, dict[Only | None, list[_Head]]] = {}
        """By queue and what kinds count: who goes first of each, until the queue offers more or less."""
        self._offering: dict[Only | None, list[int]] = {}
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
        for queue in {holding.queue for holding in holdings}:
            self._forget(queue)
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
        self._forget(holding.queue)
        _take(self._lines[holding.queue], key)
        kinds, kind = self._kinds[holding.queue], (holding.priority, holding.amounts)
        _take(kinds[kind], key)
        if not kinds[kind]:
            del kinds[kind]
        if not self._lines[holding.queue]:
            del self._lines[holding.queue], self._kinds[holding.queue]

    def numbers(self, only: Only) -> list[int]:
        """All that is offered of these kinds, ascending."""
        return sorted(
            key[2]
            for kinds in self._kinds.values()
            for kind, line in kinds.items()
            if only(kind)
            for key in line
        )

    def queues(self, only: Only | None = None) -> list[int]:
        """Those that offer something, of these kinds, ascending."""
        found = self._offering.get(only)
        if found is None:
            found = self._offering[only] = sorted(
                queue for queue in self._lines if self._of(queue, only)
            )
        return found

    def lowest(self, queue: int) -> int:
        """The lowest priority that the queue offers."""
        return self._lines[queue][0][0]

    def heads(
        self, queue: int, only: Only | None, below: int | None, left: Callable[[int], bool] | None
    ) -> Heads:
        """Who goes first, of those of the queue that are of these kinds, of a priority `below` that,
        and `left`."""
        found = self._of(queue, only)
        if below is not None:
            found = [head for head in found if head[0][0] < below]
        return Heads(found, left)

    def _forget(self, queue: int) -> None:
        self._firsts.pop(queue, None)
        self._offering.clear()

    def _of(self, queue: int, only: Only | None) -> list[_Head]:
        known = self._firsts.setdefault(queue, {})
        found = known.get(only)
        if found is None:
            kinds = self._kinds[queue].items()
            lines = [line for kind, line in kinds if only is None or only(kind)]
            found = known[only] = sorted((line[0], line, 0) for line in lines)
        return found


class Heads:
    """Of each kind who goes first, while one after the other is taken; the offers stay as they are."""

    def __init__(self, firsts: Sequence[_Head], left: Callable[[int], bool] | None) -> None:
        self._left = left
        self._heads = list(firsts) if left is None else []
        if left is not None:
            for _, line, at in firsts:
                self._next(line, at)

    def __iter__(self) -> Iterator[int]:
        """Their numbers; whoever would go first of all comes first."""
        return (key[2] for key, _, _ in self._heads)

    def take(self, number: int) -> None:
        """It has gone; the next of its kind is first."""
        which = next(which for which, head in enumerate(self._heads) if head[0][2] == number)
        _, line, at = self._heads.pop(which)
        self._next(line, at + 1)

    def _next(self, line: list[_Key], start: int) -> None:
        """The first that is left from there on."""
        for at in range(start, len(line)):
            if self._left is None or self._left(line[at][2]):
                insort(self._heads, (line[at], line, at))
                return


def _take(line: list[_Key], key: _Key) -> None:
    del line[bisect_left(line, key)]
