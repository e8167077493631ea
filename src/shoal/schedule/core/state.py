"""Nodes, capacity and jobs as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.schedule.cycle.rows import Cluster, Job, Node, Role, Task
from shoal.schedule.taints import tolerates

__all__ = ["GPU", "JOBS", "WHOLE", "Capacity", "JobState", "Nodes", "Request", "Shape", "Shapes", "Slot"]

GPU, JOBS = "gpu", "jobs"
WHOLE = 1000
"""Thousandths of one GPU."""
_UNBOUNDED = 1 << 30
_LONGEST_LOG = 50_000
_MOST_COMPOSITIONS = 32

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """What one task takes of its node."""

    amounts: tuple[int, ...]
    gpus: int
    share: int

    @property
    def empty(self) -> bool:
        """It takes nothing at all."""
        return not (self.gpus or self.share or any(self.amounts))


@dataclass(frozen=True)
class Slot:
    """A task on a node: role by position, GPUs by position on the node."""

    role: int
    node: int
    gpus: tuple[int, ...]


class Nodes:
    """Rows of nodes as columns, in the order of their names."""

    def __init__(self, cluster: Cluster) -> None:
        self.rows: list[Node] = sorted(cluster.nodes, key=lambda node: node.name)
        self.index = {node.name: at for at, node in enumerate(self.rows)}
        names = {name for node in self.rows for name in node.amounts}
        names |= {name for job in cluster.jobs for role in job.roles for name in role.amounts}
        self.resources = sorted(names)
        count = len(self.rows)
        self.width = max((node.gpus for node in self.rows), default=0)
        self.amounts: Ints = np.zeros((count, len(self.resources)), np.int64)
        self.slots: Ints = np.zeros((count, self.width), np.int64)
        for at, node in enumerate(self.rows):
            for column, name in enumerate(self.resources):
                self.amounts[at, column] = node.amounts.get(name, 0)
            self.slots[at, : node.gpus] = WHOLE
        self.ready: Bools = np.array([node.ready for node in self.rows], np.bool_)
        self.open: Bools = self.ready & np.array([node.schedulable for node in self.rows], np.bool_)
        self.levels = cluster.levels
        self._domains: dict[str, Ints] = {}
        self._masks: dict[Any, Bools] = {}
        self._suits: dict[int, tuple[Role, Bools]] = {}

    def domains(self, level: str) -> Ints:
        """The domain of each node at a level of the topology; -1 where its labels do not name one."""
        if level not in self._domains:
            if level not in self.levels:
                found = np.arange(len(self.rows))
            else:
                path = self.levels[: self.levels.index(level) + 1]
                known: dict[tuple[str, ...], int] = {}
                found = np.full(len(self.rows), -1)
                for at, node in enumerate(self.rows):
                    if all(name in node.labels for name in path):
                        key = tuple(node.labels[name] for name in path)
                        found[at] = known.setdefault(key, len(known))
            self._domains[level] = found
        return self._domains[level]

    def suits(self, role: Role) -> Bools:
        """Nodes whose labels and taints admit the role, open or not."""
        known = self._suits.get(id(role))
        if known is not None and known[0] is role:
            return known[1]
        key = (tuple(sorted(role.selector.items())), role.tolerations, role.avoid)
        if key not in self._masks:
            self._masks[key] = np.array(
                [
                    all(node.labels.get(name) == value for name, value in role.selector.items())
                    and all(tolerates(role.tolerations, taint) for taint in node.taints)
                    and node.name not in role.avoid
                    for node in self.rows
                ],
                np.bool_,
            )
        if len(self._suits) > _LONGEST_LOG:
            self._suits.clear()
        self._suits[id(role)] = (role, self._masks[key])
        return self._masks[key]


class Capacity:
    """Free amounts and thousandths of GPUs by node, with an undo log and counts of tasks that fit."""

    def __init__(self, amounts: Ints, slots: Ints) -> None:
        self.amounts, self.slots = amounts, slots
        self._undo: list[tuple[int, Ints, Ints]] = []
        self._changed: list[int] = []
        self._counts: dict[Request, tuple[Ints, int]] = {}

    def copy(self) -> Capacity:
        """An independent one, without a log."""
        return Capacity(self.amounts.copy(), self.slots.copy())

    def mark(self) -> int:
        """For `rollback`."""
        return len(self._undo)

    def settle(self) -> None:
        """Forget the undo log: nothing before this is rolled back."""
        self._undo.clear()
        if len(self._changed) > _LONGEST_LOG:
            for request in list(self._counts):
                self.counts(request)
            self._counts = {request: (found, 0) for request, (found, _) in self._counts.items()}
            self._changed.clear()

    def rollback(self, mark: int) -> None:
        """Undo all changes since the mark."""
        while len(self._undo) > mark:
            node, amounts, slots = self._undo.pop()
            self.amounts[node], self.slots[node] = amounts, slots
            self._changed.append(node)

    def change(self, node: int, request: Request, gpus: Iterable[int], sign: int) -> None:
        """`sign` -1 takes, +1 releases."""
        self._undo.append((node, self.amounts[node].copy(), self.slots[node].copy()))
        if request.amounts:
            self.amounts[node] += sign * np.asarray(request.amounts)
        part = request.share or WHOLE
        for gpu in gpus:
            self.slots[node, gpu] += sign * part
        self._changed.append(node)

    def put(self, node: int, amounts: Ints, slots: Ints) -> None:
        """Replace a node's row."""
        self._undo.append((node, self.amounts[node].copy(), self.slots[node].copy()))
        self.amounts[node], self.slots[node] = amounts, slots
        self._changed.append(node)

    def counts(self, request: Request) -> Ints:
        """How many tasks fit on each node; not to be changed by the caller."""
        known = self._counts.get(request)
        if known is None:
            found = fitting(request, self.amounts, self.slots)
        else:
            found, seen = known
            if seen < len(self._changed):
                rows = np.array(sorted(set(self._changed[seen:])))
                found[rows] = fitting(request, self.amounts[rows], self.slots[rows])
        self._counts[request] = (found, len(self._changed))
        return found

    def fits(self, node: int, request: Request, gpus: Sequence[int]) -> bool:
        """Whether a task fits on these GPUs."""
        if any(self.amounts[node, at] < ask for at, ask in enumerate(request.amounts) if ask):
            return False
        part = request.share or WHOLE
        return all(self.slots[node, gpu] >= part for gpu in gpus)

    def choose_gpus(self, node: int, request: Request) -> tuple[int, ...]:
        """GPUs for one task: whole ones from the first on, a share where least is left over."""
        row = self.slots[node]
        if request.share:
            free = [(int(left), at) for at, left in enumerate(row) if left >= request.share]
            return (min(free)[1],)
        return tuple(np.flatnonzero(row >= WHOLE)[: request.gpus].tolist())


def fitting(request: Request, amounts: Ints, slots: Ints) -> Ints:
    """How many tasks fit on each of these rows."""
    found = np.full(len(amounts), _UNBOUNDED, np.int64)
    for column, ask in enumerate(request.amounts):
        if ask:
            np.minimum(found, amounts[:, column] // ask, out=found)
    if request.gpus:
        np.minimum(found, (slots >= WHOLE).sum(axis=1) // request.gpus, out=found)
    elif request.share:
        np.minimum(found, (slots // request.share).sum(axis=1), out=found)
    return np.maximum(found, 0)


@dataclass(frozen=True, eq=False)
class Shape:
    """What jobs with equal roles and the same minimum have in common."""

    key: int
    requests: tuple[Request, ...]
    loads: Floats
    """By role: what one task counts for in its queue, by resource."""
    minimums: tuple[int, ...]
    maximums: tuple[int, ...]
    roles: dict[str, int]
    """Positions by name."""
    gang: tuple[int, ...]
    """Tasks by role with which it may start; roles beyond their own minimum come in order."""
    whole: tuple[Floats, Floats, Floats]
    """The load of the gang: without the job itself, with it, with it where it does not count."""


class Shapes:
    """Shapes and kinds by value, numbered, so that equal jobs are found by comparing one number."""

    def __init__(self, nodes: Nodes, resources: Sequence[str]) -> None:
        self._nodes, self._resources = nodes, resources
        self._roles: dict[tuple[int, ...], tuple[tuple[Role, ...], dict[int, Shape]]] = {}
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._kinds: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return max(len(self._kinds), len(self._roles))

    def shape(self, row: Job) -> Shape:
        """Of a job. Rows that share their roles cost one look."""
        ids = tuple(map(id, row.roles))
        known = self._roles.get(ids)
        if known is None:
            known = self._roles[ids] = (row.roles, {})
        found = known[1].get(row.minimum)
        if found is None:
            key = (row.minimum, *map(_kind, row.roles))
            found = self._shapes.get(key)
            if found is None:
                found = self._shapes[key] = self._made(row, len(self._shapes))
            known[1][row.minimum] = found
        return found

    def kind(self, row: Job, shape: Shape) -> int:
        """Equal for jobs that differ in name and age alone."""
        key = (
            *(row.queue, row.namespace, row.priority, row.user, row.preemptible, row.wall_seconds),
            *(row.grace_seconds, row.required, row.preferred, row.spread, row.counts),
            shape.key,
            *(sorted(row.shared.items()) if row.shared else ()),
        )
        return self._kinds.setdefault(key, len(self._kinds))

    def _made(self, row: Job, key: int) -> Shape:
        nodes = self._nodes
        requests = tuple(
            Request(tuple(role.amounts.get(name, 0) for name in nodes.resources), role.gpus, role.share)
            for role in row.roles
        )
        loads = np.zeros((len(row.roles), len(self._resources)))
        for at, role in enumerate(row.roles):
            for column, name in enumerate(nodes.resources):
                loads[at, column] = role.amounts.get(name, 0)
            loads[at, -2] = role.gpus + role.share / WHOLE
        maximums = tuple(role.maximum for role in row.roles)
        minimums = tuple(min(role.minimum, role.maximum) for role in row.roles)
        gang = list(minimums)
        lacking = row.minimum - sum(gang)
        for at, most in enumerate(maximums):
            more = max(0, min(lacking, most - gang[at]))
            gang[at] += more
            lacking -= more
        load: Floats = np.asarray(gang, np.float64) @ loads
        whole = load.copy()
        whole[-1] += 1.0
        return Shape(
            key=key,
            requests=requests,
            loads=loads,
            minimums=minimums,
            maximums=maximums,
            roles={role.name: at for at, role in enumerate(row.roles)},
            gang=tuple(gang),
            whole=(load, whole, load),
        )


@dataclass(eq=False)
class JobState:
    """A job's row with what follows from it."""

    row: Job
    queue: int
    shape: Shape
    kind: int
    """Equal for jobs that differ in name and age alone."""
    present: list[Task] = field(default_factory=list[Task])
    requests: tuple[Request, ...] = ()
    loads: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    minimums: tuple[int, ...] = ()
    maximums: tuple[int, ...] = ()
    roles: dict[str, int] = field(default_factory=dict[str, int])
    part: Any = None
    """Columns of its units, once they were needed."""

    @property
    def name(self) -> str:
        """Of the row."""
        return self.row.name

    def counts(self) -> list[int]:
        """Tasks by role that are there to stay."""
        found = [0] * len(self.row.roles)
        for task in self.present:
            found[self.roles[task.role]] += 1
        return found

    def role(self, name: str) -> int:
        """Position of a role."""
        return self.roles[name]

    def gang(self) -> list[int]:
        """Tasks by role with which it may start."""
        return list(self.shape.gang)

    def gang_load(self, *, new: bool) -> Floats:
        """What its gang counts for; not to be changed by the caller."""
        return self.shape.whole[0 if not new else 1 if self.row.counts else 2]

    def compositions(self) -> list[list[int]]:
        """Gangs that it may start as: tasks beyond each role's minimum may be of any role."""
        first = self.gang()
        lacking = self.row.minimum - sum(self.minimums)
        if lacking <= 0 or len(first) < 2:
            return [first]
        found = [first]
        for a in range(len(first)):
            for b in range(len(first)):
                for more in range(lacking + 1) if a != b else ():
                    counts = list(self.minimums)
                    counts[a] += lacking - more
                    counts[b] += more
                    fits = all(n <= most for n, most in zip(counts, self.maximums, strict=True))
                    if fits and counts not in found and len(found) < _MOST_COMPOSITIONS:
                        found.append(counts)
        return found

    def missing(self, counts: Sequence[int] | None = None) -> list[int]:
        """Tasks by role that it lacks to run."""
        have = list(self.counts() if counts is None else counts)
        lacks = [max(0, least - there) for least, there in zip(self.minimums, have, strict=True)]
        short = self.row.minimum - sum(have) - sum(lacks)
        for at, most in enumerate(self.maximums):
            more = max(0, min(short, most - have[at] - lacks[at]))
            lacks[at] += more
            short -= more
        return lacks

    def load(self, counts: Sequence[int], *, new: bool) -> Floats:
        """What so many tasks count for in its queue; `new`: and the job itself."""
        if tuple(counts) == self.shape.gang:
            return self.gang_load(new=new).copy()
        found: Floats = np.asarray(counts, np.float64) @ self.loads
        if new and self.row.counts:
            found[-1] += 1.0
        return found

    def loose(self, tasks: Sequence[Task]) -> list[Task]:
        """Of the tasks that are there: each that may go while the others stay, highest index first."""
        if len(tasks) <= self.row.minimum:
            return []
        counts = [0] * len(self.requests)
        for task in tasks:
            counts[self.role(task.role)] += 1
        free = [at for at, count in enumerate(counts) if count > self.minimums[at]]
        names = {self.row.roles[at].name for at in free}
        mine = [task for task in tasks if task.preemptible and task.role in names]
        return sorted(mine, key=lambda task: (-self.role(task.role), -task.index))

    def surplus(self) -> list[Task]:
        """Tasks beyond its minimum, the first to go first: highest index of the last elastic role."""
        counts, found = self.counts(), list[Task]()
        total = sum(counts)
        for at in reversed(range(len(counts))):
            mine = sorted((t for t in self.present if t.role == self.row.roles[at].name), key=_index)
            while counts[at] > self.minimums[at] and total > self.row.minimum:
                found.append(mine.pop())
                counts[at] -= 1
                total -= 1
        return found

    @property
    def length(self) -> float:
        """Longest run in seconds."""
        return self.row.longest_seconds


def _position(task: Task) -> tuple[str, int]:
    return task.role, task.index


def _index(task: Task) -> int:
    return task.index


def job_state(row: Job, queue: int, shapes: Shapes) -> JobState:
    """Columns of one row."""
    shape = shapes.shape(row)
    return JobState(
        row=row,
        queue=queue,
        shape=shape,
        kind=shapes.kind(row, shape),
        present=sorted(row.present, key=_position) if row.tasks else [],
        requests=shape.requests,
        loads=shape.loads,
        minimums=shape.minimums,
        maximums=shape.maximums,
        roles=shape.roles,
    )


def _kind(role: Role) -> tuple[Any, ...]:
    return (
        *(role.name, role.minimum, role.maximum, role.gpus, role.share),
        *(role.required, role.preferred, role.tolerations, role.avoid),
        tuple(sorted(role.amounts.items())),
        tuple(sorted(role.selector.items())),
    )
