"""What a job holds on its nodes, and the service that it has attained: the scheduler, quotas, budgets
and queue status all count with this.

An index holds its node's capacity while the allocation names it there, while the job controller has
given it to that node (it says so in the status before it starts anything), or while a task of it is
there that has not ended. A slot that was taken back is thus free only once its task has gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shoal.cluster.base import Task
from shoal.objects.elastic import own_roles
from shoal.objects.job import Job, Resources, share_of
from shoal.objects.job_rules import LARGEST_JOB
from shoal.objects.meta import Stamp
from shoal.objects.quantities import CpuMillis
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.schedule.snapshot import Hold

__all__ = ["attained_service", "holds_of", "release_reason", "service_rate", "task_holds"]


def holds_of(job: Job, tasks: Iterable[Task]) -> tuple[Hold, ...]:
    """Everything that the job holds, by role, index and node."""
    there: dict[tuple[str, int, str], _Held] = {}
    resources = {role.name: role.resources for role in job.spec.roles}
    for slots in job.status.allocation.slots:
        indices = _listed(IndexSet.parse(slots.indices))
        share = len(slots.devices) // max(1, len(indices))
        for position, index in enumerate(indices):
            held = there[slots.role, index, slots.node] = _Held(slot=True)
            held.ask(resources.get(slots.role, _NOTHING))
            held.devices = list(slots.devices[position * share : (position + 1) * share])
    if job.status.phase not in ("Succeeded", "Failed", "Cancelled"):
        for role in job.status.roles:
            outcomes, nodes = IndexMap.parse(role.outcomes), IndexMap.parse(role.nodes)
            for index in _listed(nodes.indices):
                node = nodes[index]
                if index not in outcomes:
                    held = there.setdefault((role.name, index, node), _Held())
                    held.claimed = True
                    held.ask(resources.get(role.name, _NOTHING))
    for task in tasks:
        if task.phase != "Ended":
            spec = task.spec
            held = there.setdefault((spec.role, spec.index, spec.placement.node), _Held())
            held.add(task)
    return tuple(held.row(*key) for key, held in sorted(there.items()))


def _listed(indices: IndexSet) -> list[int]:
    """The indices one by one; a status may claim more of them than memory can hold.

    Raises:
        ValueError: there are more than any job may have.
    """
    if len(indices) > LARGEST_JOB:
        raise ValueError(f"a status names {len(indices)} indices; a job has {LARGEST_JOB} at most")
    return list(indices)


def task_holds(tasks: Iterable[Task]) -> tuple[Hold, ...]:
    """What tasks of jobs that are gone hold."""
    there: dict[tuple[str, int, str], _Held] = {}
    for task in tasks:
        if task.phase != "Ended":
            key = (task.spec.name, task.spec.index, task.spec.placement.node)
            there.setdefault(key, _Held()).add(task)
    return tuple(held.row(*key) for key, held in sorted(there.items()))


def release_reason(job: Job) -> str:
    """Why the job is to hold nothing; empty while it may."""
    if job.metadata.deleted:
        return "Deleted"
    if job.status.phase in ("Succeeded", "Failed", "Cancelled"):
        return "Finished"
    if job.spec.cancelled:
        return "Cancelled"
    return "Suspended" if job.spec.suspend else ""


def attained_service(job: Job, now: Stamp) -> float:
    """Up to now, over all of its attempts."""
    held = job.status.allocation
    return held.served + service_rate(job) * max(0.0, now - held.changed)


def service_rate(job: Job) -> float:
    """So much more each second, with the slots that it has."""
    own = own_roles(job.spec)
    gpus = {role.name: role.resources.gpu + share_of(role.resources) / 1000 for role in own}
    each = gpus if any(gpus.values()) else dict.fromkeys(gpus, 1.0)
    return sum(
        each.get(slots.role, 0.0) * len(IndexSet.parse(slots.indices))
        for slots in job.status.allocation.slots
    )


_NOTHING = Resources(cpu=CpuMillis(0))
"""Of a role that is no longer there."""


@dataclass
class _Held:
    slot: bool = False
    claimed: bool = False
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    share: int = 0
    devices: list[str] = field(default_factory=list[str])
    live_cpu: int = 0
    live_memory: int = 0
    live: bool = False

    def ask(self, resources: Resources) -> None:
        self.cpu = max(self.cpu, int(resources.cpu))
        self.memory = max(self.memory, int(resources.memory or 0))
        self.gpu = max(self.gpu, resources.gpu)
        self.share = share_of(resources)

    def add(self, task: Task) -> None:
        spec = task.spec
        self.live = True
        self.live_cpu += int(spec.cpu)
        self.live_memory += int(spec.memory or 0)
        self.cpu = max(self.cpu, self.live_cpu)
        self.memory = max(self.memory, self.live_memory)
        self.devices += [each for each in spec.placement.devices if each not in self.devices]
        self.share = max(self.share, spec.placement.share)
        if not self.share:
            self.gpu = max(self.gpu, len(self.devices))

    def row(self, role: str, index: int, node: str) -> Hold:
        return Hold(
            role=role,
            index=index,
            node=node,
            devices=tuple(self.devices),
            cpu=self.cpu,
            memory=self.memory,
            gpu=self.gpu,
            share=self.share,
            slot=self.slot,
            live=self.live,
            claimed=self.claimed,
        )
