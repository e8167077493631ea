"""Queues as a tree: what must hold between them, and in what order people read them.

What children have of their own is also their parent's, so a number counts where it is larger than
theirs together (see docs/design/shares.md). Pure: a queue beside all the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Amounts, Queue
from shoal.objects.queue_rules import RESOURCES, spelt

__all__ = ["check_place", "children_of", "circles", "own_of", "parents_of", "path_of", "walk"]
_ROUNDING = 1 + 1e-12
"""Parts of devices are no whole numbers, and their sums are not exact."""


def check_place(queue: Queue, others: Iterable[Queue]) -> list[Finding]:
    """What is wrong with the queue where it stands among the others, one of which it may replace."""
    there = {other.metadata.name: other for other in others}
    name, parent = queue.metadata.name, queue.spec.parent
    there[name] = queue
    if parent:
        above = there.get(parent)
        if above is None:
            near = did_you_mean(parent, there)
            return [Finding(("spec", "parent"), f"there is no queue {parent}{near}")]
        if above.metadata.deleted:
            return [Finding(("spec", "parent"), f"queue {parent} is being deleted")]
        if circle := _circle(name, there):
            return [Finding(("spec", "parent"), _said(circle))]
    return list(_beyond_quota(queue, there))


def parents_of(queues: Iterable[Queue]) -> dict[str, str]:
    """Queue to the one above it; empty for whoever is topmost, names a queue that is not there, or
    stands in a circle with it. Admission lets no such thing in, and two servers at once may make it."""
    there = {queue.metadata.name: queue for queue in queues}
    return {
        name: "" if queue.spec.parent not in there or name in _circle(name, there) else queue.spec.parent
        for name, queue in there.items()
    }


def circles(queues: Iterable[Queue]) -> dict[str, str]:
    """A queue that stands above itself, the first by name of each circle, to a sentence about it."""
    there = {queue.metadata.name: queue for queue in queues}
    found = {name: _circle(name, there) for name in sorted(there)}
    return {name: _said(circle) for name, circle in found.items() if circle and name == min(circle)}


def path_of(name: str, parents: Mapping[str, str]) -> list[str]:
    """The queue, the one above it, and so on up to the top."""
    path = [name]
    while parents.get(path[-1]):
        path.append(parents[path[-1]])
    return path


def children_of(name: str, queues: Iterable[Queue]) -> list[str]:
    """The queues just below one (of the topmost for an empty name), in the order of their names."""
    return sorted(below for below, parent in parents_of(queues).items() if parent == name)


def walk(queues: Iterable[Queue]) -> list[tuple[int, Queue]]:
    """Each queue with its depth: a parent before its children, siblings in the order of their names."""
    there = {queue.metadata.name: queue for queue in queues}
    below: dict[str, list[str]] = {}
    for name, parent in sorted(parents_of(there.values()).items(), reverse=True):
        below.setdefault(parent, []).append(name)
    left, order = [(0, name) for name in below.get("", ())], list[tuple[int, Queue]]()
    while left:
        depth, name = left.pop()
        order.append((depth, there[name]))
        left += [(depth + 1, child) for child in below.get(name, ())]
    return order


def own_of(queues: Iterable[Queue], field: str) -> dict[str, Amounts]:
    """Queue to its `nominal` or `guaranteed` amounts as they count: what is stated, or what the queues
    below have together where that is more. Absent: nothing."""
    order = walk(queues)
    parents = parents_of(queue for _, queue in order)
    totals: dict[str, Amounts] = {}
    sums: dict[str, dict[str, float]] = {}
    for _, queue in reversed(order):  # whoever is below comes first
        name = queue.metadata.name
        stated, below = getattr(queue.spec, field), sums.get(name, {})
        made = {
            resource: max(getattr(stated, resource) or 0, below.get(resource, 0))
            for resource in RESOURCES
        }
        totals[name] = _amounts(made)
        above = sums.setdefault(parents[name], dict.fromkeys(RESOURCES, 0.0))
        for resource, amount in made.items():
            above[resource] += amount
    return totals


def _said(circle: list[str]) -> str:
    return f"the queues would be above themselves: {' -> '.join(circle)}"


def _beyond_quota(queue: Queue, there: Mapping[str, Queue]) -> Iterator[Finding]:
    """What is a queue's own must fit into its quota, and into those of all above it."""
    own = own_of(there.values(), "nominal")
    for name in path_of(queue.metadata.name, parents_of(there.values())):
        quota = there[name].spec.quota
        for resource in RESOURCES:
            total, bound = getattr(own[name], resource), getattr(quota, resource)
            if total is None or bound is None or total <= bound * _ROUNDING:
                continue
            if name == queue.metadata.name:
                if (getattr(queue.spec.nominal, resource) or 0) > bound:
                    continue  # a rule of the queue alone, and reported by it
                message = f"{spelt(bound)} is less than what the queues below have of their own: "
                yield Finding(("spec", "quota", resource), message + spelt(total))
            else:
                message = f"with it, queue {name} has {spelt(total)} of its own, and a quota of "
                yield Finding(("spec", "nominal", resource), message + spelt(bound))


def _amounts(numbers: Mapping[str, float]) -> Amounts:
    """0 is left out."""
    cpu, memory, gpu = (numbers.get(resource, 0) for resource in RESOURCES)
    return Amounts(
        cpu=CpuMillis(cpu) if cpu else None,
        memory=Bytes(memory) if memory else None,
        gpu=float(gpu) if gpu else None,
    )


def _circle(name: str, there: Mapping[str, Queue]) -> list[str]:
    """The way from the queue up to itself; empty where it leads to the top, or into another circle."""
    path = [name]
    while (queue := there.get(path[-1])) is not None and queue.spec.parent:
        path.append(queue.spec.parent)
        if path[-1] == name:
            return path
        if len(path) > len(there):
            return []
    return []
