"""What is stated about each queue, checked, and what follows from it for the queues above.

| word | means |
| --- | --- |
| guaranteed | kept for the queue: lent to nobody, taken by nobody |
| nominal | its own: lent while it does not need it, and given back when it does |
| limit | never more than this, whatever is free |
| borrowing | at most so much beyond nominal |
| lending | at most so much of nominal is lent: the rest is as good as guaranteed |

A number stated for a queue with children is for all of them together. What children have of their own
is also their parent's, so its number counts where it is larger than their sum; the difference belongs
to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.shares.tree import Tree

__all__ = ["Quotas", "overcommitted", "quotas"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Quotas:
    """Of `q` queues over `r` resources, made by `quotas`; numbers are for a queue and all below it."""

    tree: Tree
    weight: Floats
    """(q,): its share of what is lent, against its siblings; 0: lends and takes back, never borrows by
    right."""
    priority: Ints
    """(q,): of siblings that borrow, the higher come first."""
    kept: Floats
    """(q, r): guaranteed, and what lending leaves."""
    nominal: Floats
    """(q, r): at least `kept`."""
    ceiling: Floats
    """(q, r): limit, and nominal plus borrowing, whichever is less."""
    limit: Floats
    """(q, r), inf where there is none."""
    fenced: NDArray[np.bool_]
    """(q,): who is inside takes nothing back from outside; the reverse is allowed."""


def quotas(
    tree: Tree,
    *,
    nominal: Floats,
    guaranteed: Floats | None = None,
    limit: Floats | None = None,
    borrowing: Floats | None = None,
    lending: Floats | None = None,
    weight: Floats | None = None,
    priority: Ints | None = None,
    fenced: Sequence[int] = (),
) -> Quotas:
    """Amounts are (q, r); left out, nothing is guaranteed and nothing else limited, weights are 1.

    Raises ValueError for numbers that are not amounts, weights that are not finite or below 0,
    guarantees that are more than nominal, and a limit below nominal (also below that of all children
    together).
    """
    shape = nominal.shape
    open_ended = np.full(shape, np.inf)
    own_kept = np.zeros(shape) if guaranteed is None else guaranteed.astype(np.float64)
    own = nominal.astype(np.float64)
    limit = open_ended if limit is None else limit.astype(np.float64)
    borrowing = open_ended if borrowing is None else borrowing.astype(np.float64)
    lending = open_ended if lending is None else lending.astype(np.float64)
    count = len(tree.parent)
    weight = np.ones(count) if weight is None else weight.astype(np.float64)
    named = {"nominal": own, "guaranteed": own_kept, "limit": limit, "borrowing": borrowing}
    for name, values in {**named, "lending": lending}.items():
        _amounts(name, values, (count, shape[1]), finite=name in ("nominal", "guaranteed"))
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if len(bad):
        raise ValueError(
            f"queue {bad[0]} has weight {weight[bad[0]]}; a weight is a finite number from 0 up"
        )
    total = _upwards(tree, own)
    _ordered("guaranteed", own_kept, "nominal", total)
    _ordered("nominal", total, "limit", limit)
    kept = _upwards(tree, np.maximum(own_kept, total - np.minimum(lending, total)))
    inside = np.zeros(count, dtype=np.bool_)
    inside[list(fenced)] = True
    return Quotas(
        tree=tree,
        weight=weight,
        priority=np.zeros(count, dtype=np.int64) if priority is None else priority.astype(np.int64),
        kept=kept,
        nominal=total,
        ceiling=np.minimum(limit, total + borrowing),
        limit=limit,
        fenced=inside,
    )


def overcommitted(rules: Quotas, capacity: Floats) -> tuple[int, float, float] | None:
    """Resource, sum and capacity (r,) where queues are promised more nominal than there is; None if
    nowhere. No error by itself: nodes get lost, and then everybody has a part of what they are promised.
    """
    top = rules.tree.members[-1]
    promised: Floats = rules.nominal[top].sum(axis=0)
    worst = int(np.argmax(np.where(np.isfinite(capacity), promised - capacity, -np.inf)))
    if promised[worst] <= capacity[worst]:
        return None
    return worst, float(promised[worst]), float(capacity[worst])


def _upwards(tree: Tree, own: Floats) -> Floats:
    """What is stated, or what children have together where that is more."""
    total = own.copy()
    for queue in tree.bottom_up:
        total[queue] = np.maximum(total[queue], total[tree.members[queue]].sum(axis=0))
    return total


def _amounts(name: str, values: Floats, shape: tuple[int, int], *, finite: bool) -> None:
    if values.shape != shape:
        raise ValueError(f"{name} is {values.shape}, expected {shape}")
    wrong = np.isnan(values) | (values < 0) | (finite & np.isinf(values))
    if wrong.any():
        queue, resource = np.argwhere(wrong)[0]
        kind = "a finite amount" if finite else "an amount"
        raise ValueError(
            f"queue {queue} has {name} {values[queue, resource]} of resource {resource}; "
            f"{kind} from 0 up is expected"
        )


def _ordered(less: str, low: Floats, more: str, high: Floats) -> None:
    wrong = low > high * (1 + 1e-12)
    if wrong.any():
        queue, resource = np.argwhere(wrong)[0]
        raise ValueError(
            f"queue {queue} has {less} {low[queue, resource]:g} of resource {resource}, "
            f"above its {more} {high[queue, resource]:g}"
        )
