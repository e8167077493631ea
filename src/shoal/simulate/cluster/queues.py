"""What queues and users hold, and what they may not: more than is theirs, or less than was guaranteed.

Amounts are in thousandths of those that rows say, GPUs as `gpu`. Each is counted in two ways: what is
held, those told to go included, may not be too much; what is to stay may not be too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shoal.schedule.cycle.rows import Job, Queue
from shoal.simulate.cluster.broken import Broken

__all__ = ["JOBS", "Queues"]

JOBS = "jobs"
"""A job that holds something counts as one of these."""

_WHOLE = 1000
_SLACK = 1e-6

Amounts = Mapping[str, int]


class Queues:
    """Books of a tree of queues, and of users in it."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = {queue.name: queue for queue in queues}
        self._own = {queue.name: _own(queue, queues) for queue in queues}
        self._held: dict[str, dict[str, int]] = {queue.name: {} for queue in queues}
        self._staying: dict[str, dict[str, int]] = {queue.name: {} for queue in queues}
        self._users: dict[tuple[str, str], dict[str, int]] = {}

    def chain(self, queue: str) -> Iterator[Queue]:
        """The queue and those above it; nothing where it is not known."""
        at = self._queues.get(queue)
        while at is not None:
            yield at
            at = self._queues.get(at.parent)

    def held(self, queue: str) -> Amounts:
        """By the queue and those under it."""
        return self._held[queue]

    def hold(self, job: Job, amounts: Amounts, sign: int) -> None:
        """The job holds so much more or less."""
        for queue in self.chain(job.queue):
            _add(self._held[queue.name], amounts, sign)
            if queue.user_limit or queue.user_jobs is not None:
                _add(self._users.setdefault((queue.name, job.user), {}), amounts, sign)

    def stay(self, job: Job, amounts: Amounts, sign: int) -> None:
        """So much more or less of what the job holds is to stay."""
        for queue in self.chain(job.queue):
            _add(self._staying[queue.name], amounts, sign)

    def check_limits(self, job: Job) -> None:
        """Raises `Broken` where the job's queue, one above it, or its user holds more than may be."""
        for queue in self.chain(job.queue):
            held, own = self._held[queue.name], self._own[queue.name]
            _check(job, f"queue {queue.name}", held, queue.limit)
            beyond = {name: own.get(name, 0.0) + most for name, most in queue.borrowing.items()}
            _check(job, f"queue {queue.name} with what it may borrow", held, beyond)
            _check(job, f"queue {queue.name}", held, _jobs(queue.jobs))
            mine = self._users.get((queue.name, job.user), {})
            _check(job, f"user {job.user} in {queue.name}", mine, queue.user_limit)
            _check(job, f"user {job.user} in {queue.name}", mine, _jobs(queue.user_jobs))

    def check_guaranteed(self, victim: Job, resources: Iterable[str], beneficiary: Job) -> None:
        """Raises `Broken` where of these resources less stays than is guaranteed to a queue that the
        victim is in and the beneficiary is not."""
        inside = {queue.name for queue in self.chain(beneficiary.queue)}
        for queue in self.chain(victim.queue):
            if queue.name in inside:
                return
            for name in resources:
                stays = self._staying[queue.name].get(name, 0) / _WHOLE
                if stays < queue.guaranteed.get(name, 0.0) - _SLACK:
                    raise Broken(
                        f"{victim.name} gives way for {beneficiary.name}, and leaves queue {queue.name} "
                        f"{stays:g} {name} of {queue.guaranteed[name]:g} that it is guaranteed"
                    )


def _own(queue: Queue, queues: Sequence[Queue]) -> dict[str, float]:
    """Nominal, or that of all under it together where that is more."""
    below: dict[str, float] = {}
    for child in queues:
        if child.parent == queue.name:
            for name, amount in _own(child, queues).items():
                below[name] = below.get(name, 0.0) + amount
    names = {**below, **queue.nominal}
    return {name: max(below.get(name, 0.0), queue.nominal.get(name, 0.0)) for name in names}


def _add(to: dict[str, int], amounts: Amounts, sign: int) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0) + sign * amount


def _check(job: Job, who: str, held: Amounts, most: Mapping[str, float]) -> None:
    for name, limit in most.items():
        used = held.get(name, 0) / _WHOLE
        if used > limit + _SLACK * max(1.0, limit):
            raise Broken(f"{job.name}: {who} has {used:g} {name}, and may have {limit:g}")


def _jobs(most: int | None) -> Mapping[str, float]:
    return {} if most is None else {JOBS: float(most)}
