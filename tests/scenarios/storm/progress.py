"""How far a job has come, as its status says: what the counters are about, without what only reads
well. Two runs that agree on this will go on alike."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.objects.job import Job
from shoal.objects.ranges import IndexMap, IndexSet

__all__ = ["Progress", "Slot", "final", "is_gang", "settled_members", "slots_of"]

Slot = tuple[str, int]
"""(role, index)."""

_COMPARED = (
    "attempt", "failures", "infrastructure_failures", "incarnations", "outcomes", "exit_codes",
)  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """Counters and per-index facts."""

    attempt: int
    failures: int
    infrastructure_failures: int
    incarnations: dict[Slot, int]
    outcomes: dict[Slot, str]
    exit_codes: dict[Slot, int]
    nodes: dict[Slot, str]
    """Slots whose current incarnation was given to a node, with that node."""

    @classmethod
    def of(cls, job: Job) -> Progress:
        """What the job's status says."""
        status = job.status

        def read(field: str) -> dict[Slot, str]:
            return {
                (role.name, index): value
                for role in status.roles
                for index, value in IndexMap.parse(getattr(role, field)).items()
            }

        outcomes = read("outcomes")
        return cls(
            attempt=status.attempt,
            failures=status.failures,
            infrastructure_failures=status.infrastructure_failures,
            incarnations={slot: int(v) for slot, v in read("incarnations").items() if int(v) > 1},
            outcomes=outcomes,
            exit_codes={slot: int(value) for slot, value in read("exit_codes").items()},
            nodes={slot: node for slot, node in read("nodes").items() if slot not in outcomes},
        )

    @property
    def members(self) -> frozenset[Slot]:
        """Those slots."""
        return frozenset(self.nodes)

    def incarnation(self, slot: Slot) -> int:
        """Of the start that counts."""
        return self.incarnations.get(slot, 1)

    def differs(self, other: Progress, members: frozenset[Slot] | None = None) -> list[str]:
        """The names of the fields in which the two differ. `members`: of membership only these count,
        and others must be members here if they are there."""
        found = [name for name in _COMPARED if getattr(self, name) != getattr(other, name)]
        if members is None:
            same = self.members == other.members
        else:
            same = self.members & members == other.members & members and self.members >= other.members
        return found if same else [*found, "members"]


def slots_of(job: Job) -> dict[Slot, str]:
    """What the job's allocation lists: slots, each with its node."""
    return {
        (slots.role, index): slots.node
        for slots in job.status.allocation.slots
        for index in IndexSet.parse(slots.indices)
    }


def settled_members(job: Job) -> bool:
    """Whether every slot that should have a task has been given to its node, or none has."""
    progress = Progress.of(job)
    if job.spec.suspend or job.spec.cancelled:
        return True
    wanted = slots_of(job).keys() - progress.outcomes.keys()
    return not progress.members or wanted <= progress.members


def is_gang(job: Job) -> bool:
    """Whether its tasks start again together."""
    return job.spec.restart.scope == "Gang" and job.spec.array is None


def final(job: Job) -> dict[str, object]:
    """What must be the same of two runs once they are over."""
    status, progress = job.status, Progress.of(job)
    failed = status.phase == "Failed"
    return {
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message if failed else "",
        "attempt": progress.attempt,
        "failures": progress.failures,
        "infrastructure failures": progress.infrastructure_failures,
        "incarnations": progress.incarnations,
        "outcomes": progress.outcomes,
        "exit codes": progress.exit_codes,
        "exit code": status.exit_code,
        "decided by": status.decided_by[len(job.metadata.name) + 10 :] if failed else "",
        "per index": [(role.name, role.succeeded, role.failed, role.failures) for role in status.roles],
        "tasks": sum(role.running for role in status.roles),
    }
