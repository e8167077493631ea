"""Which domain of each level each node is in: blocks hold racks, racks hold nodes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.placing.asks import Domain, Ints

__all__ = ["Topology"]


class Topology:
    """Immutable. Levels count from the widest; the level behind the last is the node itself.

    `domains` (levels, n) has the id of each node's domain, from 0 up, or -1 where it is in none; (0, n)
    where nothing is known. Raises ValueError where a domain lies in two of the level above.
    """

    def __init__(self, domains: NDArray[np.signedinteger[Any]]) -> None:
        levels, self.nodes = domains.shape
        self.node_level: int = levels
        self.domain: Ints = np.vstack((domains.astype(np.int64), np.arange(self.nodes, dtype=np.int64)))
        self.domain.setflags(write=False)
        if self.domain.min(initial=0) < -1:
            raise ValueError("a domain's id is from 0 up, or -1 for none")
        self.sizes: list[int] = [int(row.max(initial=-1)) + 1 for row in self.domain]
        self._parents = [self._parents_of(level) for level in range(1, levels + 1)]
        self._above: dict[tuple[int, int], Ints] = {}

    def above(self, level: int, upper: int) -> Ints:
        """(d,): for each domain of `level`, its domain at `upper`, the same level or wider; -1 none."""
        found = self._above.get((level, upper))
        if found is None:
            found = np.arange(self.sizes[level], dtype=np.int64)
            for each in range(level, upper, -1):
                found = self._parents[each - 1][found]
            self._above[level, upper] = found
        return found

    def inside(self, level: int, scope: Domain | None) -> Ints:
        """Ids of the domains of `level` that lie in `scope`, which is of the same or a wider level."""
        if scope is None:
            return np.arange(self.sizes[level], dtype=np.int64)
        if level == self.node_level:
            return self.members(scope)
        return np.flatnonzero(self.above(level, scope.level) == scope.index)

    def members(self, scope: Domain | None) -> Ints:
        """The nodes in the domain, or all, ascending."""
        if scope is None:
            return self.domain[self.node_level]
        if scope.level == self.node_level:
            return np.array([scope.index], dtype=np.int64)
        order, starts = self._lists[scope.level]
        return order[starts[scope.index + 1] : starts[scope.index + 2]]

    def widened(self, domain: Domain, level: int) -> Domain | None:
        """The domain of a wider level that it lies in."""
        index = int(self.above(domain.level, level)[domain.index])
        return Domain(level, index) if index >= 0 else None

    def holds(self, scope: Domain | None, domain: Domain) -> bool:
        """Whether `domain` lies in `scope`, or is it."""
        if scope is None:
            return True
        return scope.level <= domain.level and self.widened(domain, scope.level) == scope

    def check(self, domain: Domain | None) -> None:
        """Raises ValueError for a domain that there is not."""
        if domain is None:
            return
        if not (0 <= domain.level <= self.node_level and 0 <= domain.index < self.sizes[domain.level]):
            raise ValueError(f"there is no domain {domain.index} at level {domain.level}")

    def check_level(self, level: int | None) -> None:
        """Raises ValueError for a level that there is not."""
        if level is not None and level > self.node_level:
            raise ValueError(f"the topology has no level {level}; a node is level {self.node_level}")

    @cached_property
    def _lists(self) -> list[tuple[Ints, Ints]]:
        """Per level: nodes sorted by domain, and where each domain's begin, that of none first."""
        lists: list[tuple[Ints, Ints]] = []
        for row, size in zip(self.domain[:-1], self.sizes[:-1], strict=True):
            order = np.argsort(row, kind="stable")
            lists.append((order, np.searchsorted(row[order], np.arange(-1, size + 1))))
        return lists

    def _parents_of(self, level: int) -> Ints:
        """(d + 1,): of each domain of `level`, the one of the level above; last, -1 for none of them."""
        row, upper = self.domain[level], self.domain[level - 1]
        parents = np.full(self.sizes[level] + 1, -1, dtype=np.int64)
        known = row >= 0
        parents[row[known]] = upper[known]
        torn = np.flatnonzero(parents[row[known]] != upper[known])
        if torn.size:
            index = int(row[known][torn[0]])
            raise ValueError(
                f"domain {index} of level {level} lies in more than one of level {level - 1}"
            )
        return parents
