"""Ended tasks become outcomes, restarts or failures, and budgets are burnt exactly.

An end counts once, because it moves the index to its next incarnation (or to its outcome) in the same
status write: from then on the ended task is stale and is only acknowledged. For a gang the first end
that counts makes the whole attempt stale, so the failures that follow from it burn nothing.
"""

from __future__ import annotations

from shoal.cluster.base import Outcome, Task
from shoal.control.job.actions import Note
from shoal.control.job.book import LONGEST_BACKOFF_SECONDS, Book
from shoal.control.job.members import wanted_slots
from shoal.control.job.seen import Seen, Slot, scope_of
from shoal.objects.elastic import is_coordinator
from shoal.objects.job import Phase, RestartRule, Role

__all__ = ["Verdict", "count_ends", "lost_too_often", "slot_of"]

_INFRASTRUCTURE = ("SupervisorLost", "NodeLost", "StartFailed")
_LIVED_SECONDS = 10.0
"""A coordinator that ends sooner cannot do its work: the next one is not started at once."""
_COORDINATOR_BACKOFF_SECONDS = 5.0
"""At most: the job cannot change its members meanwhile."""


class Verdict:
    """The job is decided: its phase, why, and which task decided."""

    def __init__(self, phase: Phase, reason: str, message: str, task: Task | None = None) -> None:
        self.phase: Phase = phase
        self.reason = reason
        self.message = message
        self.task = task


def slot_of(task: Task) -> Slot:
    """The task's role and index."""
    return (task.spec.role, task.spec.index)


def count_ends(seen: Seen, book: Book, now: float) -> tuple[Verdict | None, list[Note]]:
    """Record every end that counts; a Verdict when one of them decides that the job has failed.

    The user's failures in a gang are left alone while a node that holds one of its tasks is silent:
    they may be no more than the echo of that node's loss.
    """
    notes: list[Note] = []
    fresh = [
        task
        for task in seen.tasks
        if task.phase == "Ended"
        and task.spec.incarnation == book.current(slot_of(task))
        and slot_of(task) not in book.outcomes
    ]
    gang, wanted = scope_of(seen.job) == "Gang", wanted_slots(seen, book)
    waits = gang and book.waits_for(seen)
    for task in sorted(fresh, key=lambda task: (task.ended, task.spec.role, task.spec.index)):
        if task.spec.incarnation != book.current(slot_of(task)):
            continue  # an earlier end of this pass made the attempt stale
        outcome = task.outcome or Outcome(reason="SupervisorLost", exit_code=-1)
        if waits and slot_of(task) in wanted and _by_itself(outcome):
            continue
        book.exit_codes[slot_of(task)] = outcome.exit_code
        verdict = None
        if outcome.stop_reason is not None:
            _again(seen, book, task)
        elif is_coordinator(seen.job.spec, task.spec.role):
            verdict = _coordinator(seen, book, task, outcome, notes, now)
        elif outcome.reason in _INFRASTRUCTURE:
            verdict = _infrastructure(seen, book, task, outcome, notes, now)
        elif outcome.exit_code == 0:
            _succeeded(seen, book, task, now)
        elif slot_of(task) not in wanted:
            _again(seen, book, task)  # it was being taken away, and fell with its peers
        else:
            verdict = _failed(seen, book, task, outcome, notes, now)
        if verdict is not None:
            return verdict, notes
    return None, notes


def lost_too_often(seen: Seen, book: Book, notes: list[Note]) -> Verdict | None:
    """A Verdict when the losses of nodes that `notes` tell of were more than are forgiven."""
    limit = seen.job.spec.restart.infrastructure_limit
    if not notes or book.infrastructure_failures <= limit:
        return None
    message = f"the infrastructure failed more than {limit} times, last: {notes[-1].message}"
    return Verdict("Failed", "InfrastructureLimit", message)


def _by_itself(outcome: Outcome) -> bool:
    """A failure that is the user's, as far as anybody can see."""
    failed = outcome.exit_code != 0 and outcome.reason not in _INFRASTRUCTURE
    return failed and outcome.stop_reason is None


def _again(seen: Seen, book: Book, task: Task) -> None:
    ending = seen.job.spec.cancelled or seen.deleted
    if scope_of(seen.job) == "Gang" and not ending:
        book.next_attempt()
    else:
        book.next_incarnation(slot_of(task))


def _succeeded(seen: Seen, book: Book, task: Task, now: float) -> None:
    spec = seen.job.spec
    decides = spec.success.policy == "Any" or (spec.success.policy == "First" and task.spec.index == 0)
    decides = decides and spec.success.role in ("", task.spec.role)
    if spec.restart.policy == "Always" and not decides:
        _again(seen, book, task)
        book.restart_after = now + float(spec.restart.backoff)
    else:
        book.settle(slot_of(task), "Succeeded")


def _infrastructure(
    seen: Seen, book: Book, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Verdict | None:
    verdict = _burn_infrastructure(seen, book, task, outcome, notes, outcome.reason)
    if verdict is None:
        _again(seen, book, task)
        if book.infrastructure_failures > 1:
            book.restart_after = now + min(30.0, _backoff(seen, book.infrastructure_failures - 1))
    return verdict


def _coordinator(
    seen: Seen, book: Book, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Verdict | None:
    """The platform's own process: its deaths are never the user's, and it starts again by itself until
    the job is decided. The others' backoff does not hold it back, nor its own them."""
    if outcome.reason == "CommandNotFound":
        book.settle(slot_of(task), "Failed")
        return Verdict("Failed", "CommandNotFound", f"{_who(task)}: {_what(outcome)}", task)
    if outcome.exit_code == 0:
        said = seen.job.status.elastic
        if said is not None and said.state == "ended" and said.attempt == book.attempt:
            book.settle(slot_of(task), "Succeeded")  # its record tells the rest of them
            return None
        book.role_restart_after[task.spec.role] = now + _backoff(seen, 1)
        book.next_incarnation(slot_of(task))
        return None
    reason = outcome.reason if outcome.reason in _INFRASTRUCTURE else "CoordinatorLost"
    verdict = _burn_infrastructure(seen, book, task, outcome, notes, reason)
    if verdict is None:
        book.next_incarnation(slot_of(task))
        if task.started and task.ended - task.started < _LIVED_SECONDS:
            delay = min(_COORDINATOR_BACKOFF_SECONDS, _backoff(seen, book.infrastructure_failures))
            book.role_restart_after[task.spec.role] = now + delay
    return verdict


def _burn_infrastructure(
    seen: Seen, book: Book, task: Task, outcome: Outcome, notes: list[Note], reason: str
) -> Verdict | None:
    limit = seen.job.spec.restart.infrastructure_limit
    book.infrastructure_failures += 1
    notes.append(Note(reason, f"{_who(task)}: {_what(outcome)}", warning=True))
    if book.infrastructure_failures <= limit:
        return None
    book.settle(slot_of(task), "Failed")
    message = f"the infrastructure failed more than {limit} times, last {_who(task)}: {_what(outcome)}"
    return Verdict("Failed", "InfrastructureLimit", message, task)


def _failed(
    seen: Seen, book: Book, task: Task, outcome: Outcome, notes: list[Note], now: float
) -> Verdict | None:
    spec, slot = seen.job.spec, slot_of(task)
    action = _action(seen, task, outcome)
    said = f"{_who(task)} {_what(outcome)}"
    if action == "Ignore":
        notes.append(Note("FailureIgnored", f"{said}; a restart rule ignores it"))
        _again(seen, book, task)
        book.restart_after = now + float(spec.restart.backoff)
        return None
    array = spec.array is not None
    burnt = 1 + (book.index_failures.get(slot, 0) if array else book.failures)
    final = action == "Fail" or burnt > spec.restart.limit
    if array:
        book.index_failures[slot] = burnt
    book.failures += 1
    if not final:
        _again(seen, book, task)
        delay = _backoff(seen, burnt)
        book.restart_after = now + delay
        notes.append(
            Note(
                "Restarting",
                f"{said}; restart {burnt} of {spec.restart.limit} in {delay:g} s",
                warning=True,
            )
        )
        return None
    book.settle(slot, "Failed")
    if array:
        notes.append(Note("IndexFailed", said, warning=True))
        return None
    return Verdict("Failed", _final_reason(outcome, action, burnt), said, task)


def _final_reason(outcome: Outcome, action: str, burnt: int) -> str:
    if outcome.reason in ("CommandNotFound", "OutOfMemory"):
        return outcome.reason
    return "TaskFailed" if action == "Fail" or burnt == 1 else "RestartLimit"


def _action(seen: Seen, task: Task, outcome: Outcome) -> str:
    spec = seen.job.spec
    role = next((role for role in spec.roles if role.name == task.spec.role), Role())
    rules: tuple[RestartRule, ...] = (*role.restart_rules, *spec.restart.rules)
    for rule in rules:
        if outcome.exit_code in rule.exit_codes:
            return rule.action
    if spec.restart.policy == "Never" or outcome.reason == "CommandNotFound":
        return "Fail"  # a command that is not there will not be there in a second either
    return "Restart"


def _backoff(seen: Seen, failures: int) -> float:
    first = float(seen.job.spec.restart.backoff)
    return min(LONGEST_BACKOFF_SECONDS, first * 2.0 ** min(failures - 1, 20))


def _who(task: Task) -> str:
    return f"{task.spec.role} {task.spec.index}"


def _what(outcome: Outcome) -> str:
    if outcome.message:
        return outcome.message
    if outcome.reason == "OutOfMemory":
        return "ran out of its memory limit"
    if outcome.signal:
        return f"was ended by signal {outcome.signal}"
    return f"exited with code {outcome.exit_code}"
