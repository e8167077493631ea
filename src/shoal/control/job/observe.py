"""What one pass knows of a job, and the draft of the status that it writes.

`Observed` is the input: the job, its tasks, and which nodes are unreachable or lost. `StatusDraft` holds
the per-index facts, opened from the status, changed by `completion` and `reconcile`, and written back;
mutable on purpose and private to one pass.

Of an index, the *current* incarnation is the number of the start that counts. A task of an older
incarnation, or of an index with a recorded outcome, is *stale*: whatever it does changes nothing.
A *member* is an index with a current incarnation that was given to a node: it runs there, or will.

Node hours are kept in the status, so that no restart of the server loses them. A node counts for as long
as a task of the job is on it, however many there are and however small. The number of nodes changes only
when a task comes or goes, so the status says how many there have been since when, and what was before.
An unreachable node counts on: of its tasks nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from shoal.cluster.base import Task
from shoal.objects import codec
from shoal.objects.job import Job, JobStatus, NodeTime, Phase, RoleStatus, restart_scope, share_of
from shoal.objects.job_rules import FIXED_RUNTIMES
from shoal.objects.meta import Condition
from shoal.objects.ranges import IndexMap, IndexSet
from shoal.objects.task import Placement

FINALIZER = "shoal.dev/tasks"
"""On a Job while tasks of it may exist."""

LONGEST_BACKOFF_SECONDS = 300.0

Slot = tuple[str, int]
"""(role, index)."""

_HOUR = 3600.0


@dataclass(frozen=True)
class Observed:
    """A job, its tasks (matched by the job's uid), and what is not known.

    `unreachable` are nodes that do not answer: of their tasks nothing is known. `lost` are nodes that a
    person has declared gone. `ends` says how jobs that it waits for ended (`dependencies`), and
    `awaited` that another job has not recorded yet how this one did.
    """

    job: Job
    tasks: tuple[Task, ...]
    unreachable: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    ends: Mapping[str, str] = field(default_factory=dict[str, str])
    awaited: bool = False

    @cached_property
    def assignments(self) -> dict[Slot, Placement]:
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
        return node in self.unreachable and node not in self.lost


def expand(job: Job) -> dict[Slot, Placement]:
    """The allocation's slots, one by one, with each task's own share of the devices."""
    assignments: dict[Slot, Placement] = {}
    shares = {role.name: share_of(role.resources) for role in job.spec.roles}
    for slots in job.status.allocation.slots:
        indices = list(IndexSet.parse(slots.indices))
        each = len(slots.devices) // max(1, len(indices))
        for position, index in enumerate(indices):
            assignments[slots.role, index] = Placement(
                node=slots.node,
                devices=slots.devices[position * each : (position + 1) * each],
                share=shares.get(slots.role, 0),
            )
    return assignments


def role_indices(job: Job, role: str) -> IndexSet:
    """The indices that the role may have."""
    if job.spec.array is not None:
        return IndexSet.parse(job.spec.array.indices)
    return next((IndexSet.span(r.replicas) for r in job.spec.roles if r.name == role), IndexSet())


def fixed_membership(job: Job) -> bool:
    """Each task gets the endpoints of all others once, at its start."""
    elastic = any(role.min_replicas is not None for role in job.spec.roles)
    return job.spec.runtime in FIXED_RUNTIMES and job.spec.array is None and not elastic


class StatusDraft:
    """See the module's docstring. Slots are (role, index)."""

    def __init__(self, job: Job) -> None:
        status = job.status
        self.job = job
        self.phase: Phase = status.phase
        self.reason = status.reason
        self.message = status.message
        self.attempt = status.attempt
        self.failures = status.failures
        self.infrastructure_failures = status.infrastructure_failures
        self.exit_code = status.exit_code
        self.decided_by = status.decided_by
        self.refusal = status.refusal
        self.started = status.started
        self.finished = status.finished
        self.restart_after = status.restart_after
        self.dependencies_met = status.dependencies_met
        self.eligible = status.eligible
        self.node_time = status.node_time
        self.conditions = {condition.type: condition for condition in status.conditions}
        self.running: dict[str, int] = {}
        self.incarnations: dict[Slot, int] = {}
        self.outcomes: dict[Slot, str] = {}
        self.exit_codes: dict[Slot, int] = {}
        self.index_failures: dict[Slot, int] = {}
        self.nodes: dict[Slot, str] = {}
        self.restarts = status.restarts
        self.crashes: dict[Slot, int] = {}
        """The user's failures in a row, without progress between them."""
        self.retry_after: dict[Slot, float] = {}
        """When an index that starts again by itself may do so."""
        for role in status.roles:
            self._open(role)

    def correct_stamps(self, now: float) -> None:
        """Bring back what lies in the future: an earlier controller wrote it, and the wall clock was
        set back since. A limit then counts from now, and a backoff that cannot be is over."""
        self.started = min(self.started, now)
        self.finished = min(self.finished, now)
        self.eligible = min(self.eligible, now)
        if self.node_time.since > now:
            self.node_time = msgspec.structs.replace(self.node_time, since=now)
        longest = max(LONGEST_BACKOFF_SECONDS, float(self.job.spec.restart.backoff))
        if self.restart_after - now > longest:
            self.restart_after = now
        for slot, at in self.retry_after.items():
            if at - now > longest:
                self.retry_after[slot] = now

    def current(self, slot: Slot) -> int:
        """The number of the start that counts; the first is 1."""
        return self.incarnations.get(slot, 1)

    def members(self) -> dict[Slot, str]:
        """Slots with a current incarnation that has a node and has not ended, with that node."""
        return {slot: node for slot, node in self.nodes.items() if slot not in self.outcomes}

    def waits_for(self, observed: Observed) -> str:
        """A node of which nothing is known and that holds a member; empty when there is none."""
        return next((node for node in self.members().values() if observed.unknown(node)), "")

    def next_incarnation(self, slot: Slot) -> None:
        """Make whatever runs for the slot now stale."""
        self.incarnations[slot] = self.current(slot) + 1
        self.nodes.pop(slot, None)

    def next_attempt(self) -> None:
        """Make the whole gang stale: every member, and those that had already ended well."""
        for slot in [*self.members(), *self.outcomes]:
            self.next_incarnation(slot)
        self.outcomes.clear()
        self.attempt += 1

    def delay(self, slot: Slot, seconds: float, now: float) -> None:
        """The next start of the slot, or of its gang, waits so long. Where tasks restart one by one, the
        wait of one does not hold back another."""
        if restart_scope(self.job.spec) == "Gang":
            self.restart_after = now + seconds
        else:
            self.retry_after[slot] = now + seconds

    def settle(self, slot: Slot, outcome: str) -> None:
        """Record the index's final outcome."""
        self.outcomes[slot] = outcome
        self.crashes.pop(slot, None)
        self.nodes.pop(slot, None)

    def condition(self, kind: str, holds: bool, reason: str, message: str, now: float) -> None:
        """Set a condition; its stamp moves only when its status or reason does."""
        old = self.conditions.get(kind)
        status = "True" if holds else "False"
        if old is None and not holds:
            return
        same = old is not None and old.status == status and old.reason == reason
        self.conditions[kind] = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            changed=old.changed if old is not None and same else now,
            observed_generation=self.job.metadata.generation,
        )

    def fields(self) -> dict[str, Any]:
        """The status fields (wire names) that differ from the job's status as it was opened."""
        new = JobStatus(
            phase=self.phase,
            reason=self.reason,
            message=self.message,
            conditions=tuple(self.conditions.values()),
            attempt=self.attempt,
            failures=self.failures,
            restarts=self.restarts,
            infrastructure_failures=self.infrastructure_failures,
            roles=self._close_all(),
            exit_code=self.exit_code,
            decided_by=self.decided_by,
            refusal=self.refusal,
            started=self.started,
            finished=self.finished,
            restart_after=self.restart_after,
            dependencies_met=self.dependencies_met,
            eligible=self.eligible,
            node_time=self.node_time,
            observed_generation=self.job.metadata.generation,
        )
        before, after = codec.builtins(self.job.status), codec.builtins(new)
        for foreign in ("allocation", "scheduling", "elastic", "writers"):
            before.pop(foreign, None)
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        changed.update({name: None for name in before if name not in after})
        return changed

    def _open(self, role: RoleStatus) -> None:
        def read(text: str) -> list[tuple[Slot, str]]:
            return [((role.name, index), value) for index, value in IndexMap.parse(text).items()]

        self.incarnations.update((slot, int(value)) for slot, value in read(role.incarnations))
        self.outcomes.update(read(role.outcomes))
        self.exit_codes.update((slot, int(value)) for slot, value in read(role.exit_codes))
        self.index_failures.update((slot, int(value)) for slot, value in read(role.failures))
        self.nodes.update(read(role.nodes))
        self.crashes.update((slot, int(value)) for slot, value in read(role.crashes))
        self.retry_after.update((slot, float(value)) for slot, value in read(role.retry_after))

    def _close_all(self) -> tuple[RoleStatus, ...]:
        roles = tuple(self._close(role.name) for role in self.job.spec.roles)
        untouched = tuple(RoleStatus(name=role.name) for role in self.job.spec.roles)
        return () if roles == untouched else roles

    def _close(self, role: str) -> RoleStatus:
        def write(values: dict[Slot, Any]) -> str:
            return IndexMap({i: v for (name, i), v in values.items() if name == role}).text

        outcomes = [value for (name, _), value in self.outcomes.items() if name == role]
        return RoleStatus(
            name=role,
            running=self.running.get(role, 0),
            succeeded=outcomes.count("Succeeded"),
            failed=outcomes.count("Failed"),
            incarnations=write(self.incarnations),
            outcomes=write(self.outcomes),
            exit_codes=write(self.exit_codes),
            failures=write(self.index_failures),
            nodes=write(self.nodes),
            crashes=write(self.crashes),
            retry_after=write({slot: f"{at:.3f}" for slot, at in self.retry_after.items()}),
        )


def indices_of(slots: dict[Slot, Any], role: str) -> IndexSet:
    """The indices of one role among slots."""
    return IndexSet(index for name, index in slots if name == role)


def slot_of(task: Task) -> Slot:
    """The task's role and index."""
    return (task.spec.role, task.spec.index)


def wanted_slots(observed: Observed, draft: StatusDraft) -> dict[Slot, Placement]:
    """Where a task is to run now: the allocation, less what has its outcome; nothing while the job is
    decided, deleted, cancelled or suspended."""
    spec = observed.job.spec
    if draft.finished or observed.deleted or spec.cancelled or spec.suspend:
        return {}
    return {slot: place for slot, place in observed.assignments.items() if slot not in draft.outcomes}


def count_nodes(observed: Observed, draft: StatusDraft, now: float) -> None:
    """Write into the draft on how many nodes tasks are now."""
    before = draft.node_time
    nodes = {task.spec.placement.node for task in observed.tasks if task.phase != "Ended"}
    nodes |= {node for node in draft.members().values() if observed.unknown(node)}
    if len(nodes) == before.nodes:
        return
    at = now
    if len(nodes) < before.nodes:  # while no server was up, tasks may have ended long ago
        at = min(now, max((task.ended for task in observed.tasks if task.ended), default=now))
    used = before.node_seconds + before.nodes * max(0.0, at - before.since)
    draft.node_time = NodeTime(node_seconds=used, nodes=len(nodes), since=at if nodes else 0.0)


def hours_at(used: NodeTime, now: float) -> float:
    """Node hours used by then."""
    return (used.node_seconds + used.nodes * max(0.0, now - used.since)) / _HOUR


def seconds_until(used: NodeTime, hours: float, now: float) -> float | None:
    """How long until so many node hours are used; None while nothing uses any."""
    if not used.nodes:
        return None
    return max(0.0, (hours - hours_at(used, now)) * _HOUR / used.nodes)
