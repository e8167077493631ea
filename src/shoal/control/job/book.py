"""The per-index facts of a job, opened from its status, changed by a pass, and written back.

Mutable on purpose and private to one pass: `ends`, `members`, `verdict` and `starts` write into it in
turn, and `fields` then says what of the status has changed.

Of an index, the *current* incarnation is the number of the start that counts. A task of an older
incarnation, or of an index whose outcome is recorded, is *stale*: whatever it does changes nothing.
A *member* is an index whose current incarnation was given to a node: it runs there, or is about to.
"""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.control.job.seen import Seen, Slot
from shoal.objects import codec
from shoal.objects.job import Job, JobStatus, Phase, RoleStatus
from shoal.objects.meta import Condition
from shoal.objects.ranges import IndexMap, IndexSet

__all__ = ["LONGEST_BACKOFF_SECONDS", "Book"]

LONGEST_BACKOFF_SECONDS = 300.0


class Book:
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
        self.node_time = status.node_time
        self.conditions = {condition.type: condition for condition in status.conditions}
        self.running: dict[str, int] = {}
        self.incarnations: dict[Slot, int] = {}
        self.outcomes: dict[Slot, str] = {}
        self.exit_codes: dict[Slot, int] = {}
        self.index_failures: dict[Slot, int] = {}
        self.nodes: dict[Slot, str] = {}
        self.role_restart_after: dict[str, float] = {}
        for role in status.roles:
            self._open(role)

    def correct_stamps(self, now: float) -> None:
        """Bring back what lies in the future: an earlier controller wrote it, and the wall clock was
        set back since. A limit then counts from now, and a backoff that cannot be is over."""
        self.started = min(self.started, now)
        self.finished = min(self.finished, now)
        if self.node_time.since > now:
            self.node_time = msgspec.structs.replace(self.node_time, since=now)
        longest = max(LONGEST_BACKOFF_SECONDS, float(self.job.spec.restart.backoff))
        if self.restart_after - now > longest:
            self.restart_after = now
        for role, at in self.role_restart_after.items():
            if at - now > longest:
                self.role_restart_after[role] = now

    def current(self, slot: Slot) -> int:
        """The number of the start that counts; the first is 1."""
        return self.incarnations.get(slot, 1)

    def members(self) -> dict[Slot, str]:
        """Slots whose current incarnation was given to a node and has not ended, with that node."""
        return {slot: node for slot, node in self.nodes.items() if slot not in self.outcomes}

    def waits_for(self, seen: Seen) -> str:
        """A node of which nothing is known and that holds a member; empty when there is none."""
        return next((node for node in self.members().values() if seen.unknown(node)), "")

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

    def settle(self, slot: Slot, outcome: str) -> None:
        """Record the index's final outcome."""
        self.outcomes[slot] = outcome
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
            infrastructure_failures=self.infrastructure_failures,
            roles=self._close_all(),
            exit_code=self.exit_code,
            decided_by=self.decided_by,
            refusal=self.refusal,
            started=self.started,
            finished=self.finished,
            restart_after=self.restart_after,
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
        if role.restart_after:
            self.role_restart_after[role.name] = role.restart_after

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
            restart_after=self.role_restart_after.get(role, 0.0),
        )


def indices_of(slots: dict[Slot, Any], role: str) -> IndexSet:
    """The indices of one role among slots."""
    return IndexSet(index for name, index in slots if name == role)
