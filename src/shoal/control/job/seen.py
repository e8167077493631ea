"""What one pass knows, and the questions it asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from shoal.cluster.base import Task
from shoal.objects.job import Job, share_of
from shoal.objects.job_rules import FIXED_RUNTIMES
from shoal.objects.ranges import IndexSet
from shoal.objects.task import Placement

__all__ = ["FINALIZER", "Seen", "Slot", "fixed_membership", "role_indices", "scope_of"]

FINALIZER = "shoal.dev/tasks"
"""On a Job while tasks of it may exist."""

Slot = tuple[str, int]
"""(role, index)."""

_TASK_SCOPE_RUNTIMES = ("plain", "elastic", "tensorflow")


@dataclass(frozen=True)
class Seen:
    """A job, its tasks (matched by the job's uid), and what is not known.

    `silent` are nodes that do not answer: of their tasks nothing is known. `lost` are nodes that a
    person has declared gone.
    """

    job: Job
    tasks: tuple[Task, ...]
    silent: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    @cached_property
    def placed(self) -> dict[Slot, Placement]:
        """Where the scheduler lets each index run now."""
        return expand(self.job)

    @property
    def terminal(self) -> bool:
        """The outcome is decided and recorded."""
        return self.job.status.phase in ("Succeeded", "Failed", "Cancelled")

    @property
    def deleted(self) -> bool:
        """Deletion was asked for."""
        return self.job.metadata.deleted > 0

    def unknown(self, node: str) -> bool:
        """The node neither answers nor is declared lost, so nothing may be concluded about it."""
        return node in self.silent and node not in self.lost


def expand(job: Job) -> dict[Slot, Placement]:
    """The allocation's slots, one by one, with each task's own share of the devices."""
    placed: dict[Slot, Placement] = {}
    shares = {role.name: share_of(role.resources) for role in job.spec.roles}
    for slots in job.status.allocation.slots:
        indices = list(IndexSet.parse(slots.indices))
        each = len(slots.devices) // max(1, len(indices))
        for position, index in enumerate(indices):
            placed[slots.role, index] = Placement(
                node=slots.node,
                devices=slots.devices[position * each : (position + 1) * each],
                share=shares.get(slots.role, 0),
            )
    return placed


def role_indices(job: Job, role: str) -> IndexSet:
    """The indices that the role may have."""
    if job.spec.array is not None:
        return IndexSet.parse(job.spec.array.indices)
    return next((IndexSet.span(r.replicas) for r in job.spec.roles if r.name == role), IndexSet())


def scope_of(job: Job) -> str:
    """What starts again together: `Gang` or `Task`."""
    if job.spec.restart.scope is not None:
        return job.spec.restart.scope
    single = job.spec.array is not None or job.spec.runtime in _TASK_SCOPE_RUNTIMES
    return "Task" if single else "Gang"


def fixed_membership(job: Job) -> bool:
    """Each task is told once, at its start, who all the others are and where."""
    elastic = any(role.min_replicas is not None for role in job.spec.roles)
    return job.spec.runtime in FIXED_RUNTIMES and job.spec.array is None and not elastic
