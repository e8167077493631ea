"""How far each queue has come with what is its own: what it holds with those below, and what of it is
borrowed. From the objects alone, so whoever has read the queues can say it.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.objects.meta import Part
from shoal.objects.queue import Queue
from shoal.objects.queue_rules import RESOURCES
from shoal.objects.queue_tree import own_of, parents_of, path_of, walk

__all__ = ["Standing", "standings"]

Numbers = dict[str, float]
"""`cpu` in thousandths of a core, `memory` in bytes, `gpu` in devices."""


class Standing(Part, frozen=True, kw_only=True):
    """A queue with all below it."""

    path: tuple[str, ...]
    """From the top down to itself."""
    pending: int = 0
    running: int = 0
    used: Numbers = {}
    guaranteed: Numbers = {}
    own: Numbers = {}
    """What is nominally its own: stated, or what those below have together where that is more."""
    borrowed: Numbers = {}
    """Used beyond its own, of resources of which any queue has something of its own."""

    @property
    def depth(self) -> int:
        """0 at the top."""
        return len(self.path) - 1


def standings(queues: Iterable[Queue]) -> dict[str, Standing]:
    """Each queue's, in the order in which the tree is read."""
    order = walk(queues)
    there = [queue for _, queue in order]
    parents = parents_of(there)
    own, kept = own_of(there, "nominal"), own_of(there, "guaranteed")
    shared_out = {r for r in RESOURCES if any(getattr(amounts, r) for amounts in own.values())}
    sums = {queue.metadata.name: _held(queue) for queue in there}
    for queue in reversed(there):  # whoever is below comes first
        name = queue.metadata.name
        if parents[name]:
            above = sums[parents[name]]
            for key, value in sums[name].items():
                above[key] += value
    made: dict[str, Standing] = {}
    for name, total in sums.items():
        used = {resource: total[resource] for resource in RESOURCES}
        mine = {resource: float(getattr(own[name], resource) or 0) for resource in RESOURCES}
        made[name] = Standing(
            path=tuple(reversed(path_of(name, parents))),
            pending=int(total["pending"]),
            running=int(total["running"]),
            used=used,
            guaranteed={r: float(getattr(kept[name], r) or 0) for r in RESOURCES},
            own=mine,
            borrowed={r: max(0.0, used[r] - mine[r]) if r in shared_out else 0.0 for r in RESOURCES},
        )
    return made


def _held(queue: Queue) -> Numbers:
    status = queue.status
    return {
        "pending": status.pending,
        "running": status.running,
        "cpu": float(status.usage.cpu),
        "memory": float(status.usage.memory),
        "gpu": float(status.usage.gpu),
    }
