"""The tree of queues: what each holds, may hold, and is entitled to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.state import GPU, JOBS, Nodes
from shoal.schedule.cycle.rows import Queue

__all__ = ["Queues", "Refusal"]

Floats = npt.NDArray[np.float64]
_SLACK = 1e-9


@dataclass(frozen=True)
class Refusal:
    """A limit that a start would exceed."""

    code: str
    queue: int
    """-1: the cluster."""
    resource: int
    bound: float
    used: float
    asked: float


class Queues:
    """Columns by queue, and usage: `held` counts what is there, `stays` what remains after stops."""

    def __init__(self, rows: Sequence[Queue], nodes: Nodes) -> None:
        self.rows = sorted(rows, key=lambda queue: queue.name)
        self.index = {queue.name: at for at, queue in enumerate(self.rows)}
        self.resources = [*nodes.resources, GPU, JOBS]
        count, width = len(self.rows), len(self.resources)
        self.capacity: Floats = np.zeros(width)
        self.capacity[: width - 2] = nodes.amounts[nodes.ready].sum(axis=0)
        self.capacity[-2] = (nodes.slots[nodes.ready] > 0).sum()
        self.capacity[-1] = math.inf
        self.parent = [self.index.get(queue.parent, -1) for queue in self.rows]
        self.paths = [self._path(at) for at in range(count)]
        self.children: dict[int, list[int]] = {}
        for at, parent in enumerate(self.parent):
            self.children.setdefault(parent, []).append(at)
        self.own_nominal = self._column("nominal", 0.0)
        self.limit = self._column("limit", math.inf)
        self.borrow = self._column("borrowing", math.inf)
        self.guaranteed = self._column("guaranteed", 0.0)
        for at, queue in enumerate(self.rows):
            if queue.jobs is not None:
                self.limit[at, -1] = min(self.limit[at, -1], queue.jobs)
        self.nominal = self._summed(self.own_nominal)
        lending = self._column("lending", math.inf)
        self.guaranteed = np.maximum(
            self.guaranteed, np.where(np.isinf(lending), 0.0, self.nominal - lending)
        )
        self.guaranteed = self._summed(self.guaranteed)
        self.most_lent: Floats = self.nominal + self.borrow
        self.held: Floats = np.zeros((count, width))
        self.stays: Floats = np.zeros((count, width))
        self.users: dict[tuple[int, str], Floats] = {}
        self._capped = [
            [q for q in path if self.rows[q].user_limit or self.rows[q].user_jobs is not None]
            for path in self.paths
        ]
        self._keeps = bool((self.guaranteed > 0).any())
        self._bounded = [
            not np.isinf(np.minimum(self.limit[path], self.most_lent[path])).all() for path in self.paths
        ]
        self.binding = [
            self._keeps or bool(self._capped[at]) or self._bounded[at] for at in range(count)
        ]
        """By queue: whether any limit, cap or guarantee could refuse a job of it."""
        depths = sorted({len(self.paths[at]) for at in self.children if at >= 0}, reverse=True)
        self._bottom_up: list[tuple[list[int], list[int], list[int]]] = []
        """By depth, the deepest first: queues with children, these, and the parent of each."""
        for depth in depths:
            parents = [at for at in sorted(self.children) if at >= 0 and len(self.paths[at]) == depth]
            below = [child for at in parents for child in self.children[at]]
            self._bottom_up.append((parents, below, [self.parent[child] for child in below]))
        self.changes = 0
        """Grows whenever usage that stays changes."""
        count_of = self.nominal.sum(axis=0)
        self._matters = [bool(each > 0) for each in count_of[:-1]] + [False]
        self._nominal_rows: list[list[float]] = self.nominal.tolist()
        self._capacity_row: list[float] = self.capacity.tolist()
        self._holds: tuple[bytes, list[list[float]], list[list[float]], list[float]] | None = None
        self._common: dict[tuple[int, int], tuple[int, int]] = {}
        self.leaves = np.array([at not in self.children for at in range(count)], np.bool_)

    def _path(self, at: int) -> list[int]:
        found: list[int] = []
        while at >= 0 and at not in found:
            found.append(at)
            at = self.index.get(self.rows[at].parent, -1)
        return found

    def _column(self, key: str, default: float) -> Floats:
        found = np.full((len(self.rows), len(self.resources)), default)
        for at, queue in enumerate(self.rows):
            named: dict[str, float] = getattr(queue, key)
            for column, name in enumerate(self.resources):
                if name in named:
                    found[at, column] = named[name]
        return found

    def _summed(self, own: Floats) -> Floats:
        """By queue: its own amount, or that of its children together where that is more."""
        found = own.copy()
        for at in sorted(range(len(self.rows)), key=lambda each: -len(self.paths[each])):
            below = self.children.get(at, [])
            if below:
                found[at] = np.maximum(found[at], found[below].sum(axis=0))
        return found

    def reset(self) -> None:
        """Before usage is counted again."""
        self.held[:] = 0.0
        self.stays[:] = 0.0
        self.users.clear()

    def add(
        self, queue: int, user: str, load: Floats, *, held: bool = False, stays: bool = False
    ) -> None:
        """Count a load (negative: less of it) in the queue and those above it."""
        path = self.paths[queue]
        if held:
            for each in path:
                self.held[each] += load
            for each in self._capped[queue]:
                key = (each, user)
                self.users[key] = self.users[key] + load if key in self.users else load.copy()
        if stays:
            self.changes += 1
            for each in path:
                self.stays[each] += load

    # limits

    def refusals(self, queue: int, user: str, load: Floats, *, now: bool) -> Iterator[Refusal]:
        """Limits that the load would exceed; `now`: with what is still stopping."""
        if not self.binding[queue]:
            return
        use = np.maximum(self.held, self.stays) if now else self.stays
        asks = load > _SLACK
        for each in self.paths[queue] if self._bounded[queue] else ():
            for code, bound in (("Limit", self.limit[each]), ("Borrowing", self.most_lent[each])):
                yield from self._over(code, each, bound, use[each], load, asks)
        for each in self._capped[queue]:
            row = self.rows[each]
            bound = np.full(len(load), math.inf)
            for column, name in enumerate(self.resources):
                bound[column] = row.user_limit.get(name, math.inf)
            if row.user_jobs is not None:
                bound[-1] = min(bound[-1], row.user_jobs)
            held = self.users.get((each, user))
            yield from self._over(
                "UserCap", each, bound, np.zeros(len(load)) if held is None else held, load, asks
            )
        if self._keeps:
            yield from self.kept(queue, load, use)

    def _over(
        self,
        code: str,
        queue: int,
        bound: Floats,
        used: Floats,
        load: Floats,
        asks: npt.NDArray[np.bool_],
    ) -> Iterator[Refusal]:
        over = asks & (used + load > bound + _SLACK * np.maximum(1.0, np.abs(load)))
        for column in np.flatnonzero(over).tolist():
            yield Refusal(
                code, queue, column, float(bound[column]), float(used[column]), float(load[column])
            )

    def kept(self, queue: int, load: Floats, use: Floats) -> Iterator[Refusal]:
        """Guaranteed capacity of others that the load would use."""
        held, inner, before = self._holding(use)
        for column, amount in enumerate(load.tolist()[:-1]):
            total = self._capacity_row[column] + 1e-6
            if amount <= _SLACK or before[column] + amount <= total:
                continue
            more = amount  # so much more of what is used or guaranteed, from the leaf to the top
            for each in self.paths[queue]:
                after = max(float(use[each, column]) + amount, float(self.guaranteed[each, column]))
                if each in self.children:
                    after = max(after, inner[each][column] + more)
                more = after - held[each][column]
            if more > _SLACK and before[column] + more > total:
                yield Refusal("Kept", -1, column, self._capacity_row[column], before[column], amount)

    def _holding(self, use: Floats) -> tuple[list[list[float]], list[list[float]], list[float]]:
        """What is used, or guaranteed to those that do not use it: by queue, that of its children and
        its own jobs, and in all."""
        mark = use.tobytes()
        if self._holds is not None and self._holds[0] == mark:
            return self._holds[1:]
        held = np.maximum(use, self.guaranteed)
        inner = np.zeros_like(held)
        for parents, below, above in self._bottom_up:
            np.add.at(inner, above, held[below] - use[below])
            inner[parents] += use[parents]
            held[parents] = np.maximum(held[parents], inner[parents])
        top = self.children.get(-1, [])
        total: Floats = held[top].sum(axis=0)
        self._holds = (mark, held.tolist(), inner.tolist(), total.tolist())
        return self._holds[1:]

    # shares and rights

    def shortfall(self, use: Floats) -> Floats:
        """What leaf queues use less than their nominal, in all."""
        return np.maximum(0.0, self.nominal[self.leaves] - use[self.leaves]).sum(axis=0)

    def share(self, queue: int, use: Floats) -> float:
        """Weighted share of what it uses beyond its nominal, of the cluster's capacity."""
        top = 0.0
        for each, nominal, capacity in zip(
            use.tolist()[:-1], self._nominal_rows[queue], self._capacity_row, strict=False
        ):
            if each > nominal and capacity > 0:
                top = max(top, (each - nominal) / capacity)
        weight = self.rows[queue].weight
        if top <= 0.0:
            return 0.0
        return round(top / weight, 12) if weight > 0 else math.inf  # sums differ in the last digit

    def within(self, queue: int, use: Floats, asks: npt.NDArray[np.bool_]) -> bool:
        """Whether a queue's use is inside its nominal, in what is asked for."""
        matters = False
        for each, nominal, ask, named in zip(
            use.tolist(), self._nominal_rows[queue], asks.tolist(), self._matters, strict=True
        ):
            if ask and named:
                if each > nominal + _SLACK:
                    return False
                matters = True
        return matters

    def claims_nominal(self, queue: int, load: Floats, use: Floats) -> int:
        """The longest part of the path whose top is within nominal with the load; 0: none. So many
        queues from the leaf on."""
        asks = load > _SLACK
        best = 0
        for depth, each in enumerate(self.paths[queue]):
            if self.within(each, use[each] + load, asks):
                best = depth + 1
        return best

    def common(self, a: int, b: int) -> tuple[int, int]:
        """How many queues of each path are below the first common one."""
        if (a, b) in self._common:
            return self._common[a, b]
        first, second = self.paths[a], self.paths[b]
        shared = set(first) & set(second)
        below_a = next((at for at, each in enumerate(first) if each in shared), len(first))
        below_b = next((at for at, each in enumerate(second) if each in shared), len(second))
        self._common[a, b] = (below_a, below_b)
        return below_a, below_b

    def fenced(self, queue: int, victim: int) -> bool:
        """Whether a fence keeps the queue from taking anything of the victim's."""
        below, _ = self.common(queue, victim)
        return any(self.rows[each].fenced for each in self.paths[queue][:below])
