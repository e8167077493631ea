"""The rules of a job's counters (docs/design/jobs.md, "What burns which budget"), said a second time and
as plainly as can be, sharing nothing with the job controller. It is given which ends were counted in
which order, and says what the counters must be after each status write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from shoal.objects.job import JobSpec, Role
from shoal.objects.ranges import IndexSet
from tests.scenarios.storm.moments import Allocated, Deleted, Edited, Moment, Wrote
from tests.scenarios.storm.progress import Slot
from tests.scenarios.storm.trace import End

__all__ = ["departures", "in_order"]

_ENDS = ("Succeeded", "Failed", "Cancelled")
_INFRASTRUCTURE = ("SupervisorLost", "NodeLost", "StartFailed")
_TASK_RUNTIMES = ("plain", "elastic", "tensorflow")


def departures(spec: JobSpec, moments: Iterable[Moment]) -> list[str]:
    """The first write that says something else than the rules do."""
    return _follow(spec, moments)[1]


def in_order(spec: JobSpec, moments: Iterable[Moment]) -> list[Moment]:
    """The moments in the order in which they were decided: a status write may have been decided just
    before the scheduler's last write, and have been written just after it."""
    return _follow(spec, moments)[0]


def _follow(spec: JobSpec, moments: Iterable[Moment]) -> tuple[list[Moment], list[str]]:
    job = _Job(spec)
    found: list[Moment] = []
    for moment in moments:
        found.append(moment)
        if isinstance(moment, Edited):
            job = replace(job, spec=moment.spec)
        elif isinstance(moment, Allocated):
            job = replace(job, slots=moment.slots, earlier=job.slots)
        elif isinstance(moment, Deleted):
            job = replace(job, deleted=True)
        elif job.phase or moment.after != moment.before or moment.phase in _ENDS:
            after, previous = _written(job, moment), found[-2] if len(found) > 1 else None
            if isinstance(previous, Allocated) and after.lacks(moment):
                early = _written(replace(job, slots=job.earlier), moment)
                if not early.lacks(moment):
                    after = replace(early, slots=job.slots)
                    found[-2:] = [moment, replace(previous, before=moment.after)]
            if lacks := after.lacks(moment):
                return found, [f"{moment}: {lacks}"]
            job = after
    return found, []


@dataclass(frozen=True)
class _Job:
    spec: JobSpec
    slots: dict[Slot, str] = field(default_factory=dict[Slot, str])
    earlier: dict[Slot, str] = field(default_factory=dict[Slot, str])
    """The slots before the scheduler's last write."""
    deleted: bool = False
    phase: str = ""
    """Of its end; empty before."""
    reason: str = ""
    attempt: int = 0
    failures: int = 0
    infrastructure_failures: int = 0
    incarnations: dict[Slot, int] = field(default_factory=dict[Slot, int])
    outcomes: dict[Slot, str] = field(default_factory=dict[Slot, str])
    exit_codes: dict[Slot, int] = field(default_factory=dict[Slot, int])
    index_failures: dict[Slot, int] = field(default_factory=dict[Slot, int])
    nodes: dict[Slot, str] = field(default_factory=dict[Slot, str])
    """Of the members."""

    @property
    def ending(self) -> bool:
        """Nothing starts again."""
        return self.spec.cancelled or self.deleted

    def lacks(self, moment: Wrote) -> list[str]:
        """In what the write departs from this."""
        said = moment.after
        rules = {
            "attempt": (said.attempt, self.attempt),
            "failures": (said.failures, self.failures),
            "infrastructure failures": (said.infrastructure_failures, self.infrastructure_failures),
            "incarnations": (said.incarnations, self.incarnations),
            "outcomes": (said.outcomes, self.outcomes),
            "exit codes": (said.exit_codes, self.exit_codes),
            "members": (said.nodes, self.nodes),
        }
        found = [
            f"{name}: {one} is written, {two} is right"
            for name, (one, two) in rules.items()
            if one != two
        ]
        ended = moment.phase if moment.phase in ("Succeeded", "Failed") else ""
        if ended != (self.phase if self.phase != "Cancelled" else ""):
            found.append(f"phase {moment.phase} is written, {self.phase or 'no end'} is right")
        elif ended and moment.reason != self.reason:
            found.append(f"reason {moment.reason} is written, {self.reason} is right")
        if moment.phase == "Cancelled" and not self.spec.cancelled:
            found.append("nobody cancelled it")
        return found


def _written(job: _Job, moment: Wrote) -> _Job:
    """The job after a write that counts these ends and joins these slots."""
    if job.phase:
        return job
    if moment.refusal is not None:
        return replace(job, infrastructure_failures=job.infrastructure_failures + 1)
    job = _bereft(job, moment.lost)
    if job.phase:
        return job
    for end in moment.ended:
        job = _counted(job, end)
        if job.phase:
            return job
    job = _decided(job)
    if job.phase or job.ending:
        return job
    return _joined(_kept(job), moment)


def _bereft(job: _Job, lost: frozenset[str]) -> _Job:
    """Members on a lost node start again: one failure of the infrastructure for all of them."""
    gone = [slot for slot, node in job.nodes.items() if node in lost]
    if not gone:
        return job
    count = job.infrastructure_failures + (not job.ending)
    if _gang(job) and not job.ending:
        job = _whole_again(job)
    else:
        for slot in gone:
            job = _one_again(job, slot)
    job = replace(job, infrastructure_failures=count)
    too_often = count > job.spec.restart.infrastructure_limit and not job.ending
    return replace(job, phase="Failed", reason="InfrastructureLimit") if too_often else job


def _joined(job: _Job, moment: Wrote) -> _Job:
    if not moment.joined:
        return job
    wanted = _wanted(job)
    slots = {slot for slot, _ in moment.joined}
    right = all(job.incarnations.get(slot, 1) == number for slot, number in moment.joined)
    right = (
        right
        and slots <= wanted.keys()
        and (not _gang(job) or slots | job.nodes.keys() == wanted.keys())
    )
    if not right:
        return job
    nodes = {**job.nodes, **{slot: wanted[slot] for slot in slots}}
    return replace(job, nodes=nodes, attempt=max(1, job.attempt))


def _counted(job: _Job, end: End) -> _Job:
    outcome, slot = end.outcome, end.slot
    assert outcome is not None
    assert job.incarnations.get(slot, 1) == end.incarnation
    job = replace(job, exit_codes={**job.exit_codes, slot: outcome.exit_code})
    restart, role = job.spec.restart, _role(job, slot)
    if outcome.stop_reason is not None:
        return _again(job, slot)
    if outcome.reason in _INFRASTRUCTURE:
        job = replace(job, infrastructure_failures=job.infrastructure_failures + 1)
        if job.infrastructure_failures > restart.infrastructure_limit:
            return replace(_settled(job, slot, "Failed"), phase="Failed", reason="InfrastructureLimit")
        return _again(job, slot)
    if outcome.exit_code == 0:
        return _again(job, slot) if _always(job, slot) else _settled(job, slot, "Succeeded")
    if slot not in _wanted(job):
        return _again(job, slot)
    rules = (*role.restart_rules, *restart.rules)
    action = next((rule.action for rule in rules if outcome.exit_code in rule.exit_codes), "")
    if action == "Ignore":
        return _again(job, slot)
    hopeless = restart.policy == "Never" or outcome.reason == "CommandNotFound"
    burnt = 1 + (job.index_failures.get(slot, 0) if job.spec.array else job.failures)
    job = replace(job, failures=job.failures + 1)
    if job.spec.array:
        job = replace(job, index_failures={**job.index_failures, slot: burnt})
    fatal = action == "Fail" or (hopeless and not action)
    if not fatal and burnt <= restart.limit:
        return _again(job, slot)
    job = _settled(job, slot, "Failed")
    if job.spec.array:
        return job
    reason = "TaskFailed" if fatal or burnt == 1 else "RestartLimit"
    if outcome.reason in ("CommandNotFound", "OutOfMemory"):
        reason = outcome.reason
    return replace(job, phase="Failed", reason=reason)


def _decided(job: _Job) -> _Job:
    success = job.spec.success
    roles = [role for role in job.spec.roles if success.role in ("", role.name)]
    settled = {slot for slot in job.outcomes if slot[0] in {role.name for role in roles}}
    if success.policy == "Any":
        done = any(job.outcomes[slot] == "Succeeded" for slot in settled)
    elif success.policy == "First":
        done = any(job.outcomes.get((role.name, 0)) == "Succeeded" for role in roles)
    else:
        done = all(_all_settled(job, role) for role in roles)
    if not done:
        return job
    if success.policy == "All" and any(job.outcomes[slot] == "Failed" for slot in settled):
        return replace(job, phase="Failed", reason="IndicesFailed")
    return replace(job, phase="Succeeded", reason="Completed")


def _all_settled(job: _Job, role: Role) -> bool:
    if all((role.name, index) in job.outcomes for index in _indices(job, role)):
        return True
    held = [slot for slot in job.slots if slot[0] == role.name]
    return _gang(job) and bool(held) and all(slot in job.outcomes for slot in held)


def _kept(job: _Job) -> _Job:
    """Members whose slot is gone or elsewhere start again; a gang whose slots differ from its members
    does whole."""
    wanted = _wanted(job)
    gone = [slot for slot, node in job.nodes.items() if wanted.get(slot) != node]
    if not job.nodes or not (gone or (_gang(job) and wanted.keys() - job.nodes.keys())):
        return job
    if _gang(job):
        return _whole_again(job)
    for slot in gone:
        job = _one_again(job, slot)
    return job if job.nodes or wanted else replace(job, attempt=job.attempt + 1)


def _again(job: _Job, slot: Slot) -> _Job:
    return _whole_again(job) if _gang(job) and not job.ending else _one_again(job, slot)


def _one_again(job: _Job, slot: Slot) -> _Job:
    number = job.incarnations.get(slot, 1) + 1
    return replace(job, incarnations={**job.incarnations, slot: number}, nodes=_without(job, slot))


def _whole_again(job: _Job) -> _Job:
    for slot in {*job.nodes, *job.outcomes}:
        job = _one_again(job, slot)
    return replace(job, outcomes={}, nodes={}, attempt=job.attempt + 1)


def _settled(job: _Job, slot: Slot, outcome: str) -> _Job:
    return replace(job, outcomes={**job.outcomes, slot: outcome}, nodes=_without(job, slot))


def _without(job: _Job, slot: Slot) -> dict[Slot, str]:
    return {other: node for other, node in job.nodes.items() if other != slot}


def _wanted(job: _Job) -> dict[Slot, str]:
    if job.spec.suspend or job.ending:
        return {}
    return {slot: node for slot, node in job.slots.items() if slot not in job.outcomes}


def _always(job: _Job, slot: Slot) -> bool:
    success = job.spec.success
    decides = success.policy == "Any" or (success.policy == "First" and slot[1] == 0)
    return job.spec.restart.policy == "Always" and not (decides and success.role in ("", slot[0]))


def _gang(job: _Job) -> bool:
    scope = job.spec.restart.scope
    if scope is None:
        return job.spec.array is None and job.spec.runtime not in _TASK_RUNTIMES
    return scope == "Gang"


def _role(job: _Job, slot: Slot) -> Role:
    return next(role for role in job.spec.roles if role.name == slot[0])


def _indices(job: _Job, role: Role) -> Iterable[int]:
    return IndexSet.parse(job.spec.array.indices) if job.spec.array else range(role.replicas)
