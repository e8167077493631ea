"""Sets of indices and maps from index to value, written as ranges.

A status must stay small at ten thousand tasks, so per-index facts are kept as text such as
`0-4,7` (an `IndexSet`) or `0-99=2,100=3` (an `IndexMap`): structural in the schema (a string), short
because neighbours mostly share a value, and cheap to compare. Both are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

__all__ = ["IndexMap", "IndexSet"]

_LARGEST_INDEX = 10_000_000


class IndexSet:
    """An immutable set of task indices."""

    __slots__ = ("_ranges",)

    def __init__(self, indices: Iterable[int] = ()) -> None:
        self._ranges = _runs(sorted(set(indices)))

    @classmethod
    def parse(cls, text: str) -> IndexSet:
        """Read `0-4,7`; the empty string is the empty set.

        Raises:
            ValueError: the text is no list of indices and ranges.
        """
        made = cls()
        pairs: list[tuple[int, int]] = []
        for part in filter(None, text.split(",")):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise ValueError(f"{text!r} is not a list of indices such as 0-4,7")
            low, high = int(first), int(last or first)
            if high < low or high > _LARGEST_INDEX:
                raise ValueError(f"{part.strip()!r} is not a range of indices such as 0-4")
            pairs.append((low, high))
        made._ranges = _merge(pairs)
        return made

    @classmethod
    def span(cls, count: int) -> IndexSet:
        """The indices 0 to count - 1."""
        made = cls()
        made._ranges = ((0, count - 1),) if count > 0 else ()
        return made

    @property
    def text(self) -> str:
        """`parse` of it gives the same set."""
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in self._ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self._ranges:
            yield from range(low, high + 1)

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and any(low <= index <= high for low, high in self._ranges)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self._ranges)

    def __or__(self, other: Iterable[int]) -> IndexSet:
        return IndexSet([*self, *other])

    def __sub__(self, other: Iterable[int]) -> IndexSet:
        gone = set(other)
        return IndexSet(index for index in self if index not in gone)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __repr__(self) -> str:
        return f"IndexSet({self.text!r})"


class IndexMap(Mapping[int, str]):
    """An immutable map from task index to a short word or number, kept as text.

    Values hold no comma and no equals sign. Numbers are read with `number`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[int, object] | None = None) -> None:
        self._values = {index: str(value) for index, value in sorted((values or {}).items())}

    @classmethod
    def parse(cls, text: str) -> IndexMap:
        """Read `0-99=2,100=3`.

        Raises:
            ValueError: the text is no such map.
        """
        values: dict[int, str] = {}
        for part in filter(None, text.split(",")):
            indices, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{text!r} is not a map such as 0-99=2,100=3")
            for index in IndexSet.parse(indices):
                values[index] = value
        return cls(values)

    @property
    def text(self) -> str:
        """`parse` of it gives the same map."""
        parts: list[str] = []
        run: list[int] = []
        for index, value in self._values.items():
            if run and (index != run[1] + 1 or self._values[run[0]] != value):
                parts.append(self._part(run))
                run = []
            run = [run[0], index] if run else [index, index]
        if run:
            parts.append(self._part(run))
        return ",".join(parts)

    def number(self, index: int, default: int = 0) -> int:
        """The value of `index` as a number, `default` where there is none."""
        value = self._values.get(index)
        return default if value is None else int(value)

    def set(self, values: Mapping[int, object]) -> IndexMap:
        """A map with these values in place of the old ones."""
        return IndexMap({**self._values, **values})

    def without(self, indices: Iterable[int]) -> IndexMap:
        """A map without these indices."""
        gone = set(indices)
        return IndexMap({i: v for i, v in self._values.items() if i not in gone})

    def __getitem__(self, index: int) -> str:
        return self._values[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"IndexMap({self.text!r})"

    def _part(self, run: list[int]) -> str:
        span = str(run[0]) if run[0] == run[1] else f"{run[0]}-{run[1]}"
        return f"{span}={self._values[run[0]]}"


def _runs(indices: list[int]) -> tuple[tuple[int, int], ...]:
    return _merge([(index, index) for index in indices])


def _merge(pairs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)
