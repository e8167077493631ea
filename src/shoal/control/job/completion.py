"""When indices and jobs are complete: ended tasks become outcomes, restarts or failures; the success
rule, the limits and cancellation complete the job.

An end counts once, because it moves the index to its next incarnation (or to its outcome) in the same
status write: from then on the ended task is stale and is only acknowledged. For a gang the first end
that counts makes the whole attempt stale, so the failures that follow from it use none of the budget.
"""

from __future__ import annotations

from shoal.cluster.base import Outcome, Task
from shoal.control.job.actions import Note
from shoal.control.job.observe import (
    LONGEST_BACKOFF_SECONDS,
    Observed,
    StatusDraft,
    hours_at,
    indices_of,
    role_indices,
    seconds_until,
    slot_of,
    wanted_slots,
)
from shoal.objects.elastic import is_coordinator, own_roles
from shoal.objects.job import Phase, Refusal, RestartRule, Role, Success, restart_scope

_INFRASTRUCTURE = ("SupervisorLost", "NodeLost", "StartFailed")
_NEVER_PLACED = ("IsolationUnavailable", "Unsupported")
"""What no node of this kind of cluster can do now, it cannot do later either."""
_PASSING = ("PortTaken", "TooManyRestarts")
"""Reasons of refusals that pass by themselves: the job waits, however often it is refused so."""
_LONGEST_WAIT_COUNT = 6
"""Counted so often, such a refusal has the scheduler wait as long as it ever does."""
_REFUSED_BACKOFF_SECONDS = 30.0
"""At most, between placements that nodes refuse."""
_TASK_BACKOFF_SECONDS = 60.0
"""At most, where tasks restart one by one: the job goes on with the others."""
_PROGRESS_SECONDS = 60.0
"""A task that ran for so long, and for longer than its last backoff, has made progress."""
_LIVED_SECONDS = 10.0
"""A coordinator that ends sooner cannot do its work: the next one is not started at once."""
_COORDINATOR_BACKOFF_SECONDS = 5.0
"""At most: until the next start the job cannot change its members."""


class Completion:
    """The job is decided: its phase, why, and which task decided."""

    def __init__(self, phase: Phase, reason: str, message: str, task: Task | None = None) -> None:
        self.phase: Phase = phase
        self.reason = reason
        self.message = message
        self.task = task


def count_ends(
    observed: Observed, draft: StatusDraft, now: float
) -> tuple[Completion | None, list[Note]]:
    """Record every end that counts; a Completion when one of them decides that the job has failed.

    The user's failures in a gang are left alone while a node that holds one of its tasks is unreachable:
    they may be no more than the echo of that node's loss.
    """
    notes: list[Note] = []
    fresh = [
        task
        for task in observed.tasks
        if task.phase == "Ended"
        and task.spec.incarnation == draft.current(slot_of(task))
        and slot_of(task) not in draft.outcomes
    ]
    gang, wanted = restart_scope(observed.job.spec) == "Gang", wanted_slots(observed, draft)
    waits = gang and draft.waits_for(observed)
    for task in sorted(fresh, key=lambda task: (task.ended, task.spec.role, task.spec.index)):
        if task.spec.incarnation != draft.current(slot_of(task)):
            continue  # an earlier end of this pass made the attempt stale
        outcome = task.outcome or Outcome(reason="SupervisorLost", exit_code=-1)
        if waits and slot_of(task) in wanted and _by_itself(outcome):
            continue
        draft.exit_codes[slot_of(task)] = outcome.exit_code
        completion = None
        if outcome.stop_reason is not None:
            _again(observed, draft, task)
        elif is_coordinator(observed.job.spec, task.spec.role):
            completion = _coordinator(observed, draft, task, outcome, notes, now)
        elif outcome.reason in _INFRASTRUCTURE:
            completion = _infrastructure(observed, draft, task, outcome, notes, now)
        elif outcome.exit_code == 0:
            _succeeded(observed, draft, task, now)
        elif slot_of(task) not in wanted:
            _again(observed, draft, task)  # it was being taken away, and fell with its peers
        else:
            completion = _failed(observed, draft, task, outcome, notes, now)
        if completion is not None:
            return completion, notes
    return None, notes


def count_refusals(
    observed: Observed, draft: StatusDraft, now: float
) -> tuple[Completion | None, list[Note]]:
    """Record placements that a node refused: one failure of the infrastructure, however many tasks the
    group has. The scheduler takes the allocation back; a name that was refused is not used again."""
    wanted = wanted_slots(observed, draft)
    refused = [
        task
        for task in observed.tasks
        if task.refusal is not None
        and task.spec.incarnation == draft.current(slot_of(task))
        and slot_of(task) not in draft.outcomes
    ]
    counted: list[Task] = []
    for task in refused:
        draft.next_incarnation(slot_of(task))
        place = wanted.get(slot_of(task))
        if place is not None and place.node == task.spec.placement.node:
            counted.append(task)
    if not counted or counted[0].refusal is None:
        return None, []
    refusal, limit = counted[0].refusal, observed.job.spec.restart.infrastructure_limit
    draft.refusal = Refusal(
        allocation=observed.job.status.allocation.id,
        node=refusal.node,
        reason=refusal.reason,
        message=refusal.message,
        at=now,
    )
    passing = refusal.reason in _PASSING
    if not passing or draft.infrastructure_failures < _LONGEST_WAIT_COUNT:
        draft.infrastructure_failures += 1
    notes = [Note("PlacementRefused", refusal.message, warning=True)]
    if refusal.reason in _NEVER_PLACED:
        return Completion("Failed", refusal.reason, refusal.message), notes
    if draft.infrastructure_failures > limit and not passing:
        message = f"nodes refused it more than {limit} times, last: {refusal.message}"
        return Completion("Failed", "InfrastructureLimit", message), notes
    if draft.infrastructure_failures > 1:
        delay = min(_REFUSED_BACKOFF_SECONDS, _backoff(observed, draft.infrastructure_failures - 1))
        for task in counted:
            draft.delay(slot_of(task), delay, now)
    return None, notes


def lost_too_often(observed: Observed, draft: StatusDraft, notes: list[Note]) -> Completion | None:
    """A Completion when the losses of nodes in `notes` were more than are forgiven."""
    limit = observed.job.spec.restart.infrastructure_limit
    if not notes or draft.infrastructure_failures <= limit:
        return None
    message = f"the infrastructure failed more than {limit} times, last: {notes[-1].message}"
    return Completion("Failed", "InfrastructureLimit", message)


def _by_itself(outcome: Outcome) -> bool:
    """A failure that is the user's, as far as anybody can see."""
    failed = outcome.exit_code != 0 and outcome.reason not in _INFRASTRUCTURE
    return failed and outcome.stop_reason is None


def _again(observed: Observed, draft: StatusDraft, task: Task) -> None:
    ending = observed.job.spec.cancelled or observed.deleted
    if restart_scope(observed.job.spec) == "Gang" and not ending:
        draft.next_attempt()
    else:
        draft.next_incarnation(slot_of(task))


def _succeeded(observed: Observed, draft: StatusDraft, task: Task, now: float) -> None:
    spec = observed.job.spec
    decides = spec.success.policy == "Any" or (spec.success.policy == "First" and task.spec.index == 0)
    decides = decides and spec.success.role in ("", task.spec.role)
    if spec.restart.policy == "Always" and not decides:
        _again(observed, draft, task)
        draft.delay(slot_of(task), float(spec.restart.backoff), now)
    else:
        draft.settle(slot_of(task), "Succeeded")


def _infrastructure(
    observed: Observed, draft: StatusDraft, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Completion | None:
    completion = _burn_infrastructure(observed, draft, task, outcome, notes, outcome.reason)
    if completion is None:
        _again(observed, draft, task)
        if draft.infrastructure_failures > 1:
            delay = min(30.0, _backoff(observed, draft.infrastructure_failures - 1))
            draft.delay(slot_of(task), delay, now)
    return completion


def _coordinator(
    observed: Observed, draft: StatusDraft, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Completion | None:
    """The platform's own process: its deaths are never the user's, and it starts again by itself until
    the job is decided. The others' backoff does not hold it back, nor its own them."""
    if outcome.reason == "CommandNotFound":
        draft.settle(slot_of(task), "Failed")
        return Completion("Failed", "CommandNotFound", f"{_task_text(task)}: {_what(outcome)}", task)
    if outcome.exit_code == 0:
        said = observed.job.status.elastic
        if said is not None and said.state == "ended" and said.attempt == draft.attempt:
            draft.settle(slot_of(task), "Succeeded")  # its record has the outcome of the members
            return None
        draft.delay(slot_of(task), _backoff(observed, 1), now)
        draft.next_incarnation(slot_of(task))
        return None
    reason = outcome.reason if outcome.reason in _INFRASTRUCTURE else "CoordinatorLost"
    completion = _burn_infrastructure(observed, draft, task, outcome, notes, reason)
    if completion is None:
        draft.next_incarnation(slot_of(task))
        if task.started and task.ended - task.started < _LIVED_SECONDS:
            delay = min(_COORDINATOR_BACKOFF_SECONDS, _backoff(observed, draft.infrastructure_failures))
            draft.delay(slot_of(task), delay, now)
    return completion


def _burn_infrastructure(
    observed: Observed, draft: StatusDraft, task: Task, outcome: Outcome, notes: list[Note], reason: str
) -> Completion | None:
    limit = observed.job.spec.restart.infrastructure_limit
    draft.infrastructure_failures += 1
    notes.append(Note(reason, f"{_task_text(task)}: {_what(outcome)}", warning=True))
    if draft.infrastructure_failures <= limit:
        return None
    draft.settle(slot_of(task), "Failed")
    message = (
        f"the infrastructure failed more than {limit} times, last {_task_text(task)}: {_what(outcome)}"
    )
    return Completion("Failed", "InfrastructureLimit", message, task)


def _failed(
    observed: Observed, draft: StatusDraft, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Completion | None:
    spec, slot = observed.job.spec, slot_of(task)
    action = _action(observed, task, outcome)
    said = f"{_task_text(task)} {_what(outcome)}"
    if action == "Ignore":
        notes.append(Note("FailureIgnored", f"{said}; a restart rule ignores it"))
        _again(observed, draft, task)
        draft.delay(slot, float(spec.restart.backoff), now)
        return None
    array = spec.array is not None
    burnt = 1 + (draft.index_failures.get(slot, 0) if array else draft.failures)
    final = action == "Fail" or burnt > spec.restart.limit
    if array:
        draft.index_failures[slot] = burnt
    draft.failures += 1
    if not final:
        delay = _task_backoff(observed, draft, task, burnt)
        _again(observed, draft, task)
        draft.delay(slot, delay, now)
        restarts = "the job" if restart_scope(observed.job.spec) == "Gang" else _task_text(task)
        used = f"{burnt} of {spec.restart.limit} restarts used"
        message = f"{said}; {restarts} restarts in {delay:g} s ({used})"
        notes.append(Note("Restarting", message, warning=True))
        return None
    draft.settle(slot, "Failed")
    if array:
        notes.append(Note("IndexFailed", said, warning=True))
        return None
    return Completion("Failed", _final_reason(outcome, action, burnt), said, task)


def _final_reason(outcome: Outcome, action: str, burnt: int) -> str:
    if outcome.reason in ("CommandNotFound", "OutOfMemory"):
        return outcome.reason
    return "TaskFailed" if action == "Fail" or burnt == 1 else "RestartLimit"


def _action(observed: Observed, task: Task, outcome: Outcome) -> str:
    spec = observed.job.spec
    role = next((role for role in spec.roles if role.name == task.spec.role), Role())
    rules: tuple[RestartRule, ...] = (*role.restart_rules, *spec.restart.rules)
    for rule in rules:
        if outcome.exit_code in rule.exit_codes:
            return rule.action
    if spec.restart.policy == "Never" or outcome.reason == "CommandNotFound":
        return "Fail"  # a command that is not there will not be there in a second either
    return "Restart"


def _backoff(observed: Observed, failures: int) -> float:
    first = float(observed.job.spec.restart.backoff)
    return min(LONGEST_BACKOFF_SECONDS, first * 2.0 ** min(failures - 1, 20))


def _task_backoff(observed: Observed, draft: StatusDraft, task: Task, burnt: int) -> float:
    """The wait before the next start. Where tasks restart one by one it counts the failures of this one
    in a row, and begins anew after progress."""
    if restart_scope(observed.job.spec) == "Gang":
        return _backoff(observed, burnt)
    slot, ran = slot_of(task), max(0.0, task.ended - task.started) if task.started else 0.0
    crashes = draft.crashes.get(slot, 0)
    last = min(_TASK_BACKOFF_SECONDS, _backoff(observed, crashes)) if crashes else 0.0
    crashes = 1 if ran >= max(_PROGRESS_SECONDS, last) else crashes + 1
    draft.crashes[slot] = crashes
    return min(_TASK_BACKOFF_SECONDS, _backoff(observed, crashes))


def _task_text(task: Task) -> str:
    return f"{task.spec.role} {task.spec.index}"


def _what(outcome: Outcome) -> str:
    if outcome.message:
        return outcome.message
    if outcome.reason == "OutOfMemory":
        return "ran out of its memory limit"
    if outcome.signal:
        return f"was ended by signal {outcome.signal}"
    return f"exited with code {outcome.exit_code}"


_ROUNDING = 1 - 1e-9
"""A sum of stretches of time may fall short of the moment that was waited for."""


def evaluate_completion(observed: Observed, draft: StatusDraft, now: float) -> Completion | None:
    """The job's outcome, if it has one now. Success comes before cancellation and limits."""
    completion = _by_success_rule(observed, draft) or _by_its_own_word(observed, draft)
    if completion is not None:
        return completion
    if observed.job.spec.cancelled:
        if observed.tasks or draft.waits_for(observed):
            return None
        return Completion("Cancelled", "Cancelled", "cancelled by its owner")
    return _by_limits(observed, draft, now)


def seconds_until_limit(observed: Observed, draft: StatusDraft, now: float) -> float | None:
    """When a limit may be reached next, None where none can."""
    limits, waits = observed.job.spec.limits, list[float]()
    if limits.wall_time is not None and draft.started:
        waits.append(draft.started + float(limits.wall_time) - now)
    if limits.node_hours is not None:
        wait = seconds_until(draft.node_time, limits.node_hours, now)
        waits += [] if wait is None else [wait]
    idle = _idle_since(observed)
    if limits.idle_timeout is not None and idle:
        waits.append(idle + float(limits.idle_timeout) - now)
    return max(0.0, min(waits)) if waits else None


def _by_success_rule(observed: Observed, draft: StatusDraft) -> Completion | None:
    success = _rule(observed)
    roles = [r for r in own_roles(observed.job.spec) if success.role in ("", r.name)]
    if success.policy == "Any":
        won = any(draft.outcomes.get(slot) == "Succeeded" for slot in draft.outcomes if _in(slot, roles))
    elif success.policy == "First":
        won = any(draft.outcomes.get((role.name, 0)) == "Succeeded" for role in roles)
    else:
        won = all(_all_settled(observed, draft, role) for role in roles)
        failed = sorted(slot for slot, outcome in draft.outcomes.items() if outcome == "Failed")
        if won and failed:
            return _array_failed(observed, draft, failed)
    if not won:
        return None
    ended = [task for task in observed.tasks if _in(slot_of(task), roles) and task.phase == "Ended"]
    decider = max(ended, key=lambda task: (task.ended, task.spec.name), default=None)
    return Completion("Succeeded", "Completed", "", decider)


def _by_its_own_word(observed: Observed, draft: StatusDraft) -> Completion | None:
    """An elastic job's coordinator says when it cannot go on, such as for samples on which every worker
    crashes: starting workers again would only eat the budget."""
    said = observed.job.status.elastic
    if said is None or said.state != "failed" or said.attempt != draft.attempt:
        return None
    return Completion("Failed", "TrainingFailed", said.message)


def _rule(observed: Observed) -> Success:
    """The job's own rule; by default mpirun's exit decides an MPI job, because its workers only wait."""
    spec = observed.job.spec
    if spec.runtime != "mpi" or spec.success != Success():
        return spec.success
    launcher = any(role.name == "launcher" for role in spec.roles)
    return Success(role="launcher" if launcher else spec.roles[0].name, policy="First")


def _array_failed(observed: Observed, draft: StatusDraft, failed: list[tuple[str, int]]) -> Completion:
    total = len(role_indices(observed.job, failed[0][0]))
    draft.exit_code = draft.exit_codes.get(failed[0])
    which = indices_of(dict.fromkeys(failed), failed[0][0]).text
    message = f"{len(failed)} of {total} indices failed: {which}"
    return Completion("Failed", "IndicesFailed", message)


def _all_settled(observed: Observed, draft: StatusDraft, role: Role) -> bool:
    """Every index has its outcome. Of an elastic role, and of a gang, those that were given out will do:
    one that comes to its end gets no more, even if its size was raised before."""
    settled = {index for name, index in draft.outcomes if name == role.name}
    if settled.issuperset(role_indices(observed.job, role.name)):
        return True
    if role.min_replicas is None and restart_scope(observed.job.spec) == "Task":
        return False
    held = {index for name, index in observed.assignments if name == role.name}
    return bool(held) and settled.issuperset(held)


def _by_limits(observed: Observed, draft: StatusDraft, now: float) -> Completion | None:
    limits = observed.job.spec.limits
    if limits.wall_time is not None and draft.started and now - draft.started >= limits.wall_time:
        return Completion(
            "Failed", "WallTimeExceeded", f"it ran for its wall time of {limits.wall_time.text()}"
        )
    hours = limits.node_hours
    if hours is not None and hours_at(draft.node_time, now) >= hours * _ROUNDING:
        return Completion("Failed", "NodeHoursExceeded", f"it used its budget of {hours:g} node hours")
    idle = _idle_since(observed)
    if limits.idle_timeout is not None and idle and now - idle >= limits.idle_timeout:
        return Completion(
            "Failed", "IdleTimeout", f"its tasks did nothing for {limits.idle_timeout.text()}"
        )
    return None


def _idle_since(observed: Observed) -> float:
    spec = observed.job.spec
    running = [
        task
        for task in observed.tasks
        if task.phase == "Running" and not is_coordinator(spec, task.spec.role)
    ]
    if not running or any(not task.idle_since for task in running):
        return 0.0
    return max(task.idle_since for task in running)


def _in(slot: tuple[str, int], roles: list[Role]) -> bool:
    return any(slot[0] == role.name for role in roles)
