"""When a job is decided: its success rule, its limits, and what people ask for."""

from __future__ import annotations

from shoal.control.job.book import Book, indices_of
from shoal.control.job.ends import Verdict, slot_of
from shoal.control.job.nodehours import hours_at, seconds_until
from shoal.control.job.seen import Seen, role_indices, scope_of
from shoal.objects.elastic import is_coordinator, own_roles
from shoal.objects.job import Role, Success

__all__ = ["decided", "seconds_until_limit"]
_ROUNDING = 1 - 1e-9
"""A sum of stretches of time may fall short of the moment that was waited for."""


def decided(seen: Seen, book: Book, now: float) -> Verdict | None:
    """The job's outcome, if it has one now. Success comes before cancellation and limits."""
    verdict = _by_success_rule(seen, book) or _by_its_own_word(seen, book)
    if verdict is not None:
        return verdict
    if seen.job.spec.cancelled:
        if seen.tasks or book.waits_for(seen):
            return None
        return Verdict("Cancelled", "Cancelled", "cancelled by its owner")
    return _by_limits(seen, book, now)


def seconds_until_limit(seen: Seen, book: Book, now: float) -> float | None:
    """When a limit may be reached next, None where none can."""
    limits, waits = seen.job.spec.limits, list[float]()
    if limits.wall_time is not None and book.started:
        waits.append(book.started + float(limits.wall_time) - now)
    if limits.node_hours is not None:
        wait = seconds_until(book.node_time, limits.node_hours, now)
        waits += [] if wait is None else [wait]
    idle = _idle_since(seen)
    if limits.idle_timeout is not None and idle:
        waits.append(idle + float(limits.idle_timeout) - now)
    return max(0.0, min(waits)) if waits else None


def _by_success_rule(seen: Seen, book: Book) -> Verdict | None:
    success = _rule(seen)
    roles = [r for r in own_roles(seen.job.spec) if success.role in ("", r.name)]
    if success.policy == "Any":
        won = any(book.outcomes.get(slot) == "Succeeded" for slot in book.outcomes if _in(slot, roles))
    elif success.policy == "First":
        won = any(book.outcomes.get((role.name, 0)) == "Succeeded" for role in roles)
    else:
        won = all(_all_settled(seen, book, role) for role in roles)
        failed = sorted(slot for slot, outcome in book.outcomes.items() if outcome == "Failed")
        if won and failed:
            return _array_failed(seen, book, failed)
    if not won:
        return None
    ended = [task for task in seen.tasks if _in(slot_of(task), roles) and task.phase == "Ended"]
    decider = max(ended, key=lambda task: (task.ended, task.spec.name), default=None)
    return Verdict("Succeeded", "Completed", "", decider)


def _by_its_own_word(seen: Seen, book: Book) -> Verdict | None:
    """An elastic job's coordinator says when it cannot go on, such as for samples on which every worker
    crashes: starting workers again would only eat the budget."""
    said = seen.job.status.elastic
    if said is None or said.state != "failed" or said.attempt != book.attempt:
        return None
    return Verdict("Failed", "TrainingFailed", said.message)


def _rule(seen: Seen) -> Success:
    """The job's own rule; by default mpirun's exit decides an MPI job, whose workers only wait."""
    spec = seen.job.spec
    if spec.runtime != "mpi" or spec.success != Success():
        return spec.success
    launcher = any(role.name == "launcher" for role in spec.roles)
    return Success(role="launcher" if launcher else spec.roles[0].name, policy="First")


def _array_failed(seen: Seen, book: Book, failed: list[tuple[str, int]]) -> Verdict:
    total = len(role_indices(seen.job, failed[0][0]))
    book.exit_code = book.exit_codes.get(failed[0])
    which = indices_of(dict.fromkeys(failed), failed[0][0]).text
    message = f"{len(failed)} of {total} indices failed: {which}"
    return Verdict("Failed", "IndicesFailed", message)


def _all_settled(seen: Seen, book: Book, role: Role) -> bool:
    """Every index has its outcome. Of an elastic role, and of a gang, those that were given out will do:
    one that comes to its end gets no more, whatever was asked for meanwhile."""
    settled = {index for name, index in book.outcomes if name == role.name}
    if settled.issuperset(role_indices(seen.job, role.name)):
        return True
    if role.min_replicas is None and scope_of(seen.job) == "Task":
        return False
    held = {index for name, index in seen.placed if name == role.name}
    return bool(held) and settled.issuperset(held)


def _by_limits(seen: Seen, book: Book, now: float) -> Verdict | None:
    limits = seen.job.spec.limits
    if limits.wall_time is not None and book.started and now - book.started >= limits.wall_time:
        return Verdict(
            "Failed", "WallTimeExceeded", f"it ran for its wall time of {limits.wall_time.text()}"
        )
    hours = limits.node_hours
    if hours is not None and hours_at(book.node_time, now) >= hours * _ROUNDING:
        return Verdict("Failed", "NodeHoursExceeded", f"it used its budget of {hours:g} node hours")
    idle = _idle_since(seen)
    if limits.idle_timeout is not None and idle and now - idle >= limits.idle_timeout:
        return Verdict(
            "Failed", "IdleTimeout", f"its tasks did nothing for {limits.idle_timeout.text()}"
        )
    return None


def _idle_since(seen: Seen) -> float:
    spec = seen.job.spec
    running = [
        task
        for task in seen.tasks
        if task.phase == "Running" and not is_coordinator(spec, task.spec.role)
    ]
    if not running or any(not task.idle_since for task in running):
        return 0.0
    return max(task.idle_since for task in running)


def _in(slot: tuple[str, int], roles: list[Role]) -> bool:
    return any(slot[0] == role.name for role in roles)
