"""What may be evicted, as columns: single tasks of elastic surplus, and whole jobs.

Columns follow from rows alone. Jobs that changed in the decision at hand are left out by `alive`, and
offered anew by `units_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.schedule.core.state import WHOLE, JobState
from shoal.schedule.cycle.rows import Task

__all__ = ["Unit", "Units", "units_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Unit:
    """What is taken at once."""

    job: JobState
    tasks: tuple[Task, ...]
    surplus: bool
    position: int
    """Of surplus, the first to go first."""


@dataclass(frozen=True)
class _Part:
    """The columns of one job."""

    role: Ints
    node: Ints
    position: Ints
    """By task: its position as surplus; -1: it is none."""
    gpu_task: Ints
    gpu: Ints
    extra: Floats
    whole: bool
    """It may be evicted whole."""


def units_of(job: JobState, tasks: list[Task]) -> Iterator[Unit]:
    """Of a job that holds these tasks."""
    row = job.row
    if not row.tasks or not row.preemptible or not tasks:
        return
    fixed = [task for task in tasks if not task.preemptible]
    if fixed and len(tasks) == 1:
        return
    for at, task in enumerate(job.loose(tasks)):
        yield Unit(job, (task,), True, at)
    if not fixed:
        yield Unit(job, tuple(tasks), False, 0)


def _part(job: JobState, index: Mapping[str, int]) -> _Part:
    tasks = job.present
    roles = [job.roles[task.role] for task in tasks]
    position = {id(unit.tasks[0]): unit.position for unit in units_of(job, tasks) if unit.surplus}
    gpus = [(at, gpu) for at, task in enumerate(tasks) for gpu in task.gpus]
    extra = [max(0, there - least) for there, least in zip(job.counts(), job.gang(), strict=True)]
    return _Part(
        role=np.array(roles, np.int64),
        node=np.array([index.get(task.node, -1) for task in tasks], np.int64),
        position=np.array([position.get(id(task), -1) for task in tasks], np.int64),
        gpu_task=np.array([at for at, _ in gpus], np.int64),
        gpu=np.array([gpu for _, gpu in gpus], np.int64),
        extra=np.asarray(extra, np.float64) @ job.loads,
        whole=job.row.preemptible and all(task.preemptible for task in tasks),
    )


class Units:
    """Columns of all running jobs."""

    def __init__(
        self, jobs: Mapping[str, JobState], index: Mapping[str, int], nodes: int, width: int
    ) -> None:
        self.jobs = [job for job in jobs.values() if job.present]
        self.nodes = nodes
        parts: list[_Part] = []
        for job in self.jobs:
            if job.part is None:
                job.part = _part(job, index)
            parts.append(job.part)
        self.number = {job.name: at for at, job in enumerate(self.jobs)}
        count = len(self.jobs)
        self.queue = _ints(job.queue for job in self.jobs)
        self.priority = _ints(job.row.priority for job in self.jobs)
        self.since = np.array([job.row.since for job in self.jobs], np.float64)
        self.gpus = _ints(sum(len(task.gpus) or 1 for task in job.present) for job in self.jobs)
        self.whole = np.array([part.whole for part in parts], np.bool_)
        self.extra = np.array([part.extra for part in parts], np.float64).reshape(count, width)
        loads = [job.load(job.counts(), new=True) for job in self.jobs]
        sizes = _ints(len(part.node) for part in parts)
        first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        self.first = first
        self.task_job = np.repeat(np.arange(count), sizes)
        self.task_node = _joined([part.node for part in parts])
        position = _joined([part.position for part in parts])
        shapes: dict[int, int] = {}
        kinds = _ints(shapes.setdefault(job.shape.key, len(shapes)) for job in self.jobs)
        most = max((len(job.requests) for job in self.jobs), default=1)
        task_kind = np.repeat(kinds, sizes) * most + _joined([part.role for part in parts])
        amounts = np.zeros((len(shapes) * most, max(0, width - 2)), np.int64)
        parted = np.zeros(len(shapes) * most, np.int64)
        per_task = np.zeros((len(shapes) * most, width))
        for job in self.jobs:
            at = shapes[job.shape.key] * most
            for role, request in enumerate(job.requests):
                amounts[at + role] = request.amounts
                parted[at + role] = request.share or WHOLE
                per_task[at + role] = job.loads[role]
        self.task_amounts = amounts[task_kind]
        gpu_sizes = _ints(len(part.gpu) for part in parts)
        self.gpu_task = _joined([part.gpu_task for part in parts]) + np.repeat(first[:-1], gpu_sizes)
        self.gpu = _joined([part.gpu for part in parts])
        self.gpu_part = parted[task_kind[self.gpu_task]]
        # units: surplus first, then whole jobs
        self.task_of = np.flatnonzero(position >= 0)
        """Of each unit of surplus: its task."""
        surplus = len(self.task_of)
        wholes = np.flatnonzero(self.whole)
        self.surplus = surplus
        self.job = np.concatenate([self.task_job[self.task_of], wholes])
        self.position = np.concatenate([position[self.task_of], np.zeros(len(wholes), np.int64)])
        whole_loads = np.array(loads, np.float64).reshape(count, width)[wholes]
        self.load: Floats = np.concatenate([per_task[task_kind[self.task_of]], whole_loads])
        self.unit_of_task = np.full(len(position), -1)
        self.unit_of_task[self.task_of] = np.arange(surplus)
        self.unit_of_job = np.full(count, -1)
        self.unit_of_job[wholes] = surplus + np.arange(len(wholes))
        self.unit_queue, self.unit_priority = self.queue[self.job], self.priority[self.job]
        self.unit_since = self.since[self.job]

    @cached_property
    def _by_node(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.task_node, kind="stable")
        return order, np.searchsorted(self.task_node[order], np.arange(self.nodes + 1))

    def on_node(self, node: int) -> Ints:
        """Tasks on a node."""
        order, starts = self._by_node
        return order[starts[node] : starts[node + 1]]

    def unit(self, at: int) -> Unit:
        """One, as an object."""
        number = int(self.job[at])
        job = self.jobs[number]
        if at >= self.surplus:
            return Unit(job, tuple(job.present), False, 0)
        task = job.present[int(self.task_of[at] - self.first[number])]
        return Unit(job, (task,), True, int(self.position[at]))

    def tasks(self, mask: Bools) -> Bools:
        """Tasks of units of the mask."""
        units = np.append(mask, False)
        return units[self.unit_of_task] | units[self.unit_of_job][self.task_job]


def _ints(values: Iterator[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
