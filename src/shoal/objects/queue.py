"""Where jobs wait: a Queue, with what it may use and which namespaces may use it. Cluster-wide.

Queues form a tree. What children have of their own is also their parent's, so a number counts where it
is larger than theirs together (see docs/design/shares.md). The Structs come first, then the rules of a
queue alone, the rules between queues, the summary of each queue with all below it, and the declaration
of the kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from shoal.objects.columns import AGE, NAME, Column, age, rounded_bytes
from shoal.objects.job import priority_problem
from shoal.objects.kind import Description, Kind, Reference, Section, State
from shoal.objects.meta import Condition, Name, Namespace, Object, Part, is_name
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path
from shoal.objects.quantities import Bytes, CpuMillis, Quantity, Seconds

__all__ = [
    "QUEUE",
    "RESOURCES",
    "Amounts",
    "Queue",
    "QueueBudget",
    "QueueSpec",
    "QueueStatus",
    "QueueSummary",
    "QueueUsage",
    "Quota",
    "check_place",
    "children_of",
    "own_of",
    "parents_of",
    "path_of",
    "summaries",
    "walk",
]

RESOURCES = ("cpu", "memory", "gpu")


class Quota(Part, frozen=True, kw_only=True):
    """The most that the running jobs of a queue may ask for together; absent fields are unlimited."""

    cpu: CpuMillis | None = None
    """Sum of what the running tasks request."""
    memory: Bytes | None = None
    """Sum of the running tasks' limits."""
    gpu: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Whole devices."""
    jobs: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Jobs that run at once."""


class Amounts(Part, frozen=True, kw_only=True):
    """So much of each resource; what an absent field means is said where amounts are used."""

    cpu: CpuMillis | None = None
    memory: Bytes | None = None
    gpu: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Devices; parts of one count too."""


class QueueBudget(Part, frozen=True, kw_only=True):
    """Hours of a resource that the jobs of a queue may use in all."""

    name: Name
    """Its name in messages to the jobs that it holds back."""
    resource: Literal["cpu", "memory", "gpu", "node"]
    """An hour of it is an hour of one core, one GiB, one device, or one node."""
    hours: float
    """More than 0."""


class QueueSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    parent: Namespace = ""
    """The queue above this one; absent: none is. What is stated of a queue with others below it counts
    for all of them together."""
    quota: Quota = Quota()
    nominal: Amounts = Amounts()
    """The queue's own: lent while it does not need it, given back when it does. Absent: nothing."""
    guaranteed: Amounts = Amounts()
    """Of nominal, what is kept for the queue: never lent, never reclaimed. Absent: nothing."""
    borrowing: Amounts = Amounts()
    """So much beyond nominal at most. Absent: no bound."""
    lending: Amounts = Amounts()
    """So much of nominal is lent at most. Absent: all but what is guaranteed."""
    weight: float = 1.0
    """Share of what no queue owns, among the queues that want it: more than 0."""
    priority: int = 0
    """Of the queues below one parent that borrow, the higher come first."""
    fenced: bool = False
    """True: jobs inside the queue take nothing back from outside of it."""
    user_limit: Quota = Quota()
    """The most that the running jobs of one user may ask for together."""
    min_runtime: Seconds | None = None
    """A job that has run for less is not taken from for jobs of other queues. Absent: at once."""
    budgets: tuple[QueueBudget, ...] = ()
    """What is used up for good: then nothing starts until there is more."""
    namespaces: tuple[Name, ...] = ()
    """Which may use the queue; empty: all."""
    highest_priority: dict[str, int | str] = {}
    """Namespace (or `*`) to the highest priority that its jobs may have here; absent: any."""


class QueueUsage(Part, frozen=True, kw_only=True):
    """What the queue's jobs hold now."""

    cpu: CpuMillis = CpuMillis(0)
    memory: Bytes = Bytes(0)
    gpu: float = 0
    """Devices; parts of one count too."""


class QueueStatus(Part, frozen=True, kw_only=True):
    """Written by the queue controller."""

    pending: int = 0
    running: int = 0
    usage: QueueUsage = QueueUsage()
    oldest_pending: float = 0.0
    """When the oldest waiting job was created; 0: none waits."""
    spent: dict[str, float] = {}
    """Budget to the hours of it that are used up, by `accounted`."""
    accounted: float = 0.0
    decayed_usage: dict[str, float] = {}
    """User to what its jobs have used, by `decayed_at`: seconds of GPUs (of tasks, for jobs without),
    which count half after each half-life. It orders jobs inside the queue."""
    decayed_at: float = 0.0
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Queue(Object, frozen=True, kw_only=True):
    """A line of jobs with a quota."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
    kind: str = "Queue"

    @property
    def key(self) -> tuple[str, str]:
        """See `Object.key`: no namespace, whatever the metadata says."""
        return ("", self.metadata.name)


def _check(queue: Queue) -> Iterable[Finding]:
    name, spec = queue.metadata.name, queue.spec
    if spec.parent and spec.parent == name:
        yield Finding(("spec", "parent"), f"{name} cannot be above itself", (("metadata", "name"),))
    yield from _amounts(spec)
    if not (math.isfinite(spec.weight) and spec.weight > 0):
        message = f"a weight is a number above 0; found {spec.weight:g}"
        yield Finding(("spec", "weight"), message)
    if not -(2**31) <= spec.priority < 2**31:
        message = f"a priority lies between {-(2**31)} and {2**31 - 1}"
        yield Finding(("spec", "priority"), message)
    yield from _budgets(spec)
    yield from _namespaces(spec)


def _spelt(amount: Quantity | float) -> str:
    return amount.text() if isinstance(amount, Quantity) else f"{amount:g}"


def _amounts(spec: QueueSpec) -> Iterable[Finding]:
    """Guaranteed is a part of nominal, nominal of the quota, and lending of nominal."""
    kinds: Sequence[tuple[str, Amounts | Quota, str, Amounts | Quota]] = (
        ("guaranteed", spec.guaranteed, "nominal", spec.nominal),
        ("lending", spec.lending, "nominal", spec.nominal),
        ("nominal", spec.nominal, "quota", spec.quota),
    )
    for less, low, more, high in kinds:
        for resource in RESOURCES:
            path: Path = ("spec", less, resource)
            amount, bound = getattr(low, resource), getattr(high, resource)
            if amount is not None and not math.isfinite(amount):
                yield Finding(path, "an amount is a finite number")
            elif amount is None or (bound is None and (more == "quota" or not amount)):
                continue
            elif bound is None:
                message = f"{_spelt(amount)} is more than {more}, which names no {resource}"
                yield Finding(path, message, (("spec", more, resource),))
            elif amount > bound:
                message = f"{_spelt(amount)} is more than {more}, which is {_spelt(bound)}"
                yield Finding(path, message, (("spec", more, resource),))


def _budgets(spec: QueueSpec) -> Iterable[Finding]:
    names: set[str] = set()
    for at, budget in enumerate(spec.budgets):
        path: Path = ("spec", "budgets", at)
        if budget.name in names:
            yield Finding((*path, "name"), f"two budgets are called {budget.name}")
        names.add(budget.name)
        if not (math.isfinite(budget.hours) and budget.hours > 0):
            message = f"a budget is a number of hours above 0; found {budget.hours:g}"
            yield Finding((*path, "hours"), message)


def _namespaces(spec: QueueSpec) -> Iterable[Finding]:
    for at, namespace in enumerate(spec.namespaces):
        if namespace in spec.namespaces[:at]:
            yield Finding(("spec", "namespaces", at), f"{namespace} is listed already")
    for namespace, priority in spec.highest_priority.items():
        path: Path = ("spec", "highestPriority", namespace)
        if problem := priority_problem(priority):
            yield Finding(path, problem)
        if namespace == "*":
            continue
        if not is_name(namespace):
            yield Finding(path, f"{namespace!r} is neither a namespace nor *")
        elif spec.namespaces and namespace not in spec.namespaces:
            message = f"namespace {namespace} may not use this queue: it is not in spec.namespaces"
            yield Finding(path, message, (("spec", "namespaces"),))


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
    """Queue to the one above it; empty for one that is topmost, names a queue that is not there, or
    stands in a circle with it. Admission lets no such thing in, and two servers at once may make it."""
    there = {queue.metadata.name: queue for queue in queues}
    return {
        name: "" if queue.spec.parent not in there or name in _circle(name, there) else queue.spec.parent
        for name, queue in there.items()
    }


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
    for _, queue in reversed(order):  # the queues below come first
        name = queue.metadata.name
        stated, below = getattr(queue.spec, field), sums.get(name, {})
        made = {
            resource: max(getattr(stated, resource) or 0, below.get(resource, 0))
            for resource in RESOURCES
        }
        totals[name] = _nonzero(made)
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
                message = f"{_spelt(bound)} is less than what the queues below have of their own: "
                yield Finding(("spec", "quota", resource), message + _spelt(total))
            else:
                message = f"with it, queue {name} has {_spelt(total)} of its own, and a quota of "
                yield Finding(("spec", "nominal", resource), message + _spelt(bound))


def _nonzero(numbers: Mapping[str, float]) -> Amounts:
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


Numbers = dict[str, float]
"""`cpu` in thousandths of a core, `memory` in bytes, `gpu` in devices."""


class QueueSummary(Part, frozen=True, kw_only=True):
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


def summaries(queues: Iterable[Queue]) -> dict[str, QueueSummary]:
    """Each queue's, in the order in which the tree is read."""
    order = walk(queues)
    there = [queue for _, queue in order]
    parents = parents_of(there)
    own, kept = own_of(there, "nominal"), own_of(there, "guaranteed")
    shared_out = {r for r in RESOURCES if any(getattr(amounts, r) for amounts in own.values())}
    sums = {queue.metadata.name: _held(queue) for queue in there}
    for queue in reversed(there):  # the queues below come first
        name = queue.metadata.name
        if parents[name]:
            above = sums[parents[name]]
            for key, value in sums[name].items():
                above[key] += value
    made: dict[str, QueueSummary] = {}
    for name, total in sums.items():
        used = {resource: total[resource] for resource in RESOURCES}
        mine = {resource: float(getattr(own[name], resource) or 0) for resource in RESOURCES}
        made[name] = QueueSummary(
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


def _references(queue: Queue) -> Iterator[Reference]:
    if queue.spec.parent:
        yield Reference(("spec", "parent"), "Queue", queue.spec.parent)


def _describe(queue: Queue, queues: Sequence[Queue], now: float) -> Description:
    from shoal.objects.queue_text import describe  # only where a queue is shown

    return describe(queue, queues, now)


def _table(shown: Sequence[Queue], queues: Sequence[Queue], now: float, wide: bool) -> Section:
    from shoal.objects.queue_text import queue_table

    return queue_table(shown, queues, now, wide)


def _state(queue: Queue) -> State:
    status = queue.status
    message = f"{status.running} running, {status.pending} pending"
    return State(message=message, since=status.oldest_pending)


def _used(used: Quantity | float, quota: Quantity | float | None) -> str:
    return _text(used) if quota is None else f"{_text(used)}/{_text(quota)}"


def _text(value: Quantity | float) -> str:
    if isinstance(value, Bytes):
        return rounded_bytes(value)
    return value.text() if isinstance(value, Quantity) else f"{value:.10g}"


def _running(queue: Queue, _now: float) -> str:
    return _used(queue.status.running, queue.spec.quota.jobs)


QUEUE = Kind(
    name="Queue",
    plural="queues",
    aliases=("q",),
    namespaced=False,
    struct=Queue,
    status_writers={"queue": ("*",)},
    check=_check,
    references=_references,
    columns=(
        NAME,
        Column("PENDING", lambda queue, now: str(queue.status.pending)),
        Column("RUNNING", _running),
        Column("CPU", lambda queue, now: _used(queue.status.usage.cpu, queue.spec.quota.cpu)),
        Column("MEMORY", lambda queue, now: _used(queue.status.usage.memory, queue.spec.quota.memory)),
        Column("GPU", lambda queue, now: _used(queue.status.usage.gpu, queue.spec.quota.gpu)),
        AGE,
        Column("PARENT", lambda queue, now: queue.spec.parent or "-", wide=True),
        Column("WEIGHT", lambda queue, now: f"{queue.spec.weight:g}", wide=True),
        Column("OLDEST", lambda queue, now: age(queue.status.oldest_pending, now), wide=True),
        Column("NAMESPACES", lambda queue, now: ",".join(queue.spec.namespaces) or "*", wide=True),
    ),
    table=_table,
    describe=_describe,
    state=_state,
)
