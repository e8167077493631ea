"""Hours that a queue's budgets have cost: what its jobs, and those of queues below, hold over time.

What is held is known at each change, so between two looks it was what it was at the first of them. Over
a restart nobody looked, and what is held now is taken to have been held all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shoal.control.shares import Totals
from shoal.objects.meta import Stamp
from shoal.objects.queue import Queue

__all__ = ["Spending", "below"]

Rates = dict[str, float]
"""Resource to what is in use of it, in the units of budgets."""

_HOUR = 3600.0
_GIB = 2.0**30


def below(queue: str, queues: Iterable[Queue]) -> set[str]:
    """The queue and all that hang from it."""
    children: dict[str, list[str]] = {}
    for each in queues:
        children.setdefault(each.spec.parent, []).append(each.metadata.name)
    found, left = {queue}, [queue]
    while left:
        new = [name for name in children.get(left.pop(), ()) if name not in found]
        found.update(new)
        left += new
    return found


class Spending:
    """Remembers what was in use when it was asked last."""

    def __init__(self) -> None:
        self._rates: dict[str, Rates] = {}

    def look(
        self, queue: Queue, queues: Iterable[Queue], of: Callable[[str], Totals], now: Stamp
    ) -> tuple[dict[str, float], Stamp]:
        """Budget to hours spent up to now, and since when the next are counted."""
        name, status = queue.metadata.name, queue.status
        if not queue.spec.budgets:
            self._rates.pop(name, None)
            return {}, 0.0
        rates = _rates([of(each) for each in sorted(below(name, queues))])
        before = self._rates.get(name, rates)
        self._rates[name] = rates
        hours = max(0.0, now - status.accounted) / _HOUR if status.accounted else 0.0
        spent = {
            budget.name: status.spent.get(budget.name, 0.0) + hours * before[budget.resource]
            for budget in queue.spec.budgets
        }
        return spent, now


def _rates(totals: Iterable[Totals]) -> Rates:
    numbers: list[Mapping[str, int]] = [each.numbers for each in totals]

    def total(resource: str) -> int:
        return sum(each.get(resource, 0) for each in numbers)

    return {
        "cpu": total("cpu") / 1000,
        "memory": total("memory") / _GIB,
        "gpu": total("gpu") + total("share") / 1000,
        "node": float(total("nodes")),
    }
