"""Sets of indices and maps from index to value, written as ranges.

A status must stay small at ten thousand tasks, so per-index facts are kept as text such as
`0-4,7` (an `IndexSet`) or `0-99=2,100=3` (an `IndexMap`): structural in the schema (a string), short
because neighbours mostly share a value, and cheap to compare. Both are immutable and hold runs, not
indices: their cost is that of their text, whatever the number of indices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping

_LARGEST_INDEX = 10_000_000

Range = tuple[int, int]
"""First and last index."""
Run = tuple[int, int, str]
"""First and last index, and the value that they share."""


class IndexSet:
    """An immutable set of task indices."""

    __slots__ = ("_count", "_ranges")

    def __init__(self, indices: Iterable[int] = ()) -> None:
        self._ranges = _ranges_of(indices)
        self._count = sum(high - low + 1 for low, high in self._ranges)

    @classmethod
    def parse(cls, text: str) -> IndexSet:
        """Read `0-4,7`; the empty string is the empty set.

        Raises:
            ValueError: the text is no list of indices and ranges.
        """
        return cls._of([_parse_range(part, text) for part in filter(None, text.split(","))])

    @classmethod
    def span(cls, count: int) -> IndexSet:
        """The indices 0 to count - 1."""
        return cls._of([(0, count - 1)] if count > 0 else [])

    @property
    def text(self) -> str:
        """`parse` of it gives the same set."""
        return ",".join(_spell(low, high) for low, high in self._ranges)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """(first, last) of each run of neighbours, ascending."""
        return self._ranges

    def __iter__(self) -> Iterator[int]:
        for low, high in self._ranges:
            yield from range(low, high + 1)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        at = bisect_right(self._ranges, (index, _LARGEST_INDEX + 1)) - 1
        return at >= 0 and index <= self._ranges[at][1]

    def __len__(self) -> int:
        return self._count

    def __or__(self, other: Iterable[int]) -> IndexSet:
        return self._of([*self._ranges, *_ranges_of(other)])

    def __and__(self, other: Iterable[int]) -> IndexSet:
        return self - (self - other)

    def __sub__(self, other: Iterable[int]) -> IndexSet:
        return self._of(_subtract(self._ranges, _ranges_of(other)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexSet) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(self._ranges)

    def __repr__(self) -> str:
        return f"IndexSet({self.text!r})"

    @classmethod
    def _of(cls, ranges: list[Range]) -> IndexSet:
        made = cls()
        made._ranges = _merge(ranges)
        made._count = sum(high - low + 1 for low, high in made._ranges)
        return made


class IndexMap(Mapping[int, str]):
    """An immutable map from task index to a short word or number, kept as text.

    Values hold no comma and no equals sign. Numbers are read with `number`.
    """

    __slots__ = ("_runs",)

    def __init__(self, values: Mapping[int, object] | None = None) -> None:
        self._runs = _runs_of(values or {})

    @classmethod
    def parse(cls, text: str) -> IndexMap:
        """Read `0-99=2,100=3`; of values given twice the last holds.

        Raises:
            ValueError: the text is no such map.
        """
        made = cls()
        runs: list[Run] = []
        for part in filter(None, text.split(",")):
            indices, equals, value = part.partition("=")
            if not equals:
                raise ValueError(f"{text!r} is not a map such as 0-99=2,100=3")
            low, high = _parse_range(indices, text)
            if runs and low <= runs[-1][1]:
                made._runs = _overlay(made._runs, tuple(runs))
                runs = []
            runs.append((low, high, value))
        made._runs = _overlay(made._runs, tuple(runs))
        return made

    @classmethod
    def filled(cls, indices: Iterable[int], value: object) -> IndexMap:
        """A map that gives every one of `indices` the same value."""
        made = cls()
        made._runs = tuple((low, high, str(value)) for low, high in _ranges_of(indices))
        return made

    @property
    def text(self) -> str:
        """`parse` of it gives the same map."""
        return ",".join(f"{_spell(low, high)}={value}" for low, high, value in self._runs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """(first, last, value) of each run of neighbours that share a value, ascending."""
        return self._runs

    @property
    def indices(self) -> IndexSet:
        """Every index that has a value."""
        return IndexSet._of([(low, high) for low, high, _ in self._runs])  # pyright: ignore[reportPrivateUsage]

    def where(self, value: object) -> IndexSet:
        """The indices that have this value."""
        text = str(value)
        return IndexSet._of([run[:2] for run in self._runs if run[2] == text])  # pyright: ignore[reportPrivateUsage]

    def number(self, index: int, default: int = 0) -> int:
        """The value of `index` as a number, `default` where there is none."""
        value = self._find(index)
        return default if value is None else int(value)

    def set(self, values: Mapping[int, object]) -> IndexMap:
        """A map with these values in place of the old ones."""
        return self._with(_overlay(self._runs, _runs_of(values)))

    def without(self, indices: Iterable[int]) -> IndexMap:
        """A map without these indices."""
        return self._with(_cut(self._runs, _ranges_of(indices)))

    def items(self) -> ItemsView[int, str]:
        """As of any map, run by run."""
        return _Items(self)

    def __getitem__(self, index: int) -> str:
        value = self._find(index)
        if value is None:
            raise KeyError(index)
        return value

    def __iter__(self) -> Iterator[int]:
        for low, high, _ in self._runs:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high, _ in self._runs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IndexMap):
            return self._runs == other._runs
        return NotImplemented if not isinstance(other, Mapping) else dict(self) == other

    def __hash__(self) -> int:
        return hash(self._runs)

    def __repr__(self) -> str:
        return f"IndexMap({self.text!r})"

    def _find(self, index: int) -> str | None:
        at = bisect_right(self._runs, index, key=_first) - 1
        return self._runs[at][2] if at >= 0 and index <= self._runs[at][1] else None

    def _with(self, runs: tuple[Run, ...]) -> IndexMap:
        made = IndexMap()
        made._runs = runs
        return made


class _Items(ItemsView[int, str]):
    """(index, value) pairs without a search for each."""

    def __init__(self, values: IndexMap) -> None:
        super().__init__(values)
        self._runs = values.runs

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for low, high, value in self._runs:
            for index in range(low, high + 1):
                yield index, value


def _parse_range(part: str, text: str) -> Range:
    first, dash, last = part.strip().partition("-")
    if not _is_number(first) or (dash and not _is_number(last)):
        raise ValueError(f"{text!r} is not a list of indices such as 0-4,7")
    low, high = int(first), int(last or first)
    if high < low or high > _LARGEST_INDEX:
        raise ValueError(f"{part.strip()!r} is not a range of indices such as 0-4")
    return low, high


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


def _spell(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _ranges_of(indices: Iterable[int]) -> tuple[Range, ...]:
    if isinstance(indices, IndexSet):
        return indices.ranges
    if isinstance(indices, IndexMap):
        return indices.indices.ranges
    if isinstance(indices, range) and indices.step == 1:
        return ((indices.start, indices.stop - 1),) if indices else ()
    return _merge([(index, index) for index in indices])


def _merge(ranges: list[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def _subtract(ranges: tuple[Range, ...], gone: tuple[Range, ...]) -> list[Range]:
    return [(low, high) for low, high, _ in _cut(tuple((*r, "") for r in ranges), gone)]


def _runs_of(values: Mapping[int, object]) -> tuple[Run, ...]:
    if isinstance(values, IndexMap):
        return values.runs
    return _join((index, index, str(values[index])) for index in sorted(values))


def _join(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Ascending, disjoint runs; neighbours of equal value become one."""
    joined: list[Run] = []
    for low, high, value in runs:
        if joined and joined[-1][2] == value and low == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], high, value)
        else:
            joined.append((low, high, value))
    return tuple(joined)


def _overlay(below: tuple[Run, ...], above: tuple[Run, ...]) -> tuple[Run, ...]:
    """Both, with `above` where they meet."""
    if not below or not above:
        return _join(above or below)
    kept = _cut(below, tuple((low, high) for low, high, _ in above))
    return _join(sorted([*kept, *above]))


def _cut(runs: tuple[Run, ...], gone: tuple[Range, ...]) -> tuple[Run, ...]:
    """The runs without the indices in `gone`; one pass over both."""
    kept: list[Run] = []
    at: int = 0
    for low, high, value in runs:
        start = low
        while at < len(gone) and gone[at][1] < start:
            at += 1
        near: int = at
        while near < len(gone) and gone[near][0] <= high:
            if gone[near][0] > start:
                kept.append((start, gone[near][0] - 1, value))
            start = gone[near][1] + 1
            near += 1
        at = max(at, near - 1)
        if start <= high:
            kept.append((start, high, value))
    return tuple(kept)


def _first(run: Run) -> int:
    return run[0]
