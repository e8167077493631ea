"""What is free and in use, in two tenses: now, and once those who were told to go are gone.

Something starts on what is free now; it may be kept a place among what comes free later. What is kept
for somebody counts as in use in both. Each is capacity on nodes (`Room`), amounts of queues (`Ledger`),
caps of users, and what the cluster shares out.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.room import Room
from shoal.schedule.shares.ledger import Ledger, Refusal
from shoal.schedule.shares.users import UserCaps

__all__ = ["Books"]


class Books:
    """Of one tense. Mutable."""

    def __init__(self, room: Room, ledger: Ledger, users: UserCaps, shared: dict[str, int]) -> None:
        self.room, self.ledger, self.users = room, ledger, users
        self.shared = shared
        """What is left of each."""
        self.version = 0
        """Another whenever what is in use or set aside is."""
        self._aside: dict[int, tuple[float, ...]] = {}

    def occupy(self, placement: Placement) -> None:
        """On nodes alone."""
        for tasks in placement:
            self.room.occupy(tasks)

    def take(self, placement: Placement) -> bool:
        """Exactly these places, or nothing."""
        mark = self.room.mark()
        for tasks in placement:
            if len(tasks) and not self.room.holds(tasks):
                self.room.rollback(mark)
                return False
            self.room.occupy(tasks)
        return True

    def charge(self, asked: Asked, amounts: Sequence[float], sign: int = 1) -> None:
        """To the queue and the user; with the job itself what it takes of shared amounts."""
        job = asked.job
        queue = asked.queue
        self.version += 1
        self.ledger.charge(queue, amounts, sign)
        self.users.charge(queue, job.user, amounts, sign)
        if amounts[-1]:
            for name, amount in job.shared.items():
                self.shared[name] = self.shared.get(name, 0) - sign * amount

    def times(self, asked: Asked, most: int) -> int:
        """How many jobs like this one, which has nothing yet, may be charged one after the other; 0
        where they have to be looked at one by one."""
        if self.users.capped or asked.job.shared or asked.queue in self._aside:
            return 0
        return self.ledger.times(asked.queue, asked.lacks, most)

    def charge_times(self, asked: Asked, times: int) -> None:
        """So many of them (`times`), at once."""
        self.version += times
        self.ledger.charge(asked.queue, [times * amount for amount in asked.lacks])

    def refusal(self, asked: Asked, amounts: Sequence[float]) -> Refusal | None:
        """Of the user's caps, then of the queue."""
        queue = asked.queue
        found = self.users.refusal(queue, asked.job.user, amounts)
        if found is not None:
            return found
        return self.ledger.refusal(queue, self._with_aside(queue, amounts))

    def allows(self, asked: Asked, amounts: Sequence[float]) -> bool:
        """Whether there is no `refusal`, and no shared amount `lacks`."""
        return (
            self.ledger.allows(asked.queue, self._with_aside(asked.queue, amounts))
            and (not self.users.capped or self.refusal(asked, amounts) is None)
            and self.lacks(asked) is None
        )

    def set_aside(self, queue: int, amounts: tuple[float, ...]) -> None:
        """Others of the queue are to leave so much, for the first who asked for it. It is in no use, so
        shares are as they were."""
        self.version += 1
        self._aside.setdefault(queue, amounts)

    def lacks(self, asked: Asked) -> str | None:
        """A shared amount of which there is not enough left for it; who is there has what it asks
        for."""
        if asked.present:
            return None
        return next(
            (name for name, ask in asked.job.shared.items() if ask > self.shared.get(name, 0)), None
        )

    def _with_aside(self, queue: int, amounts: Sequence[float]) -> Sequence[float]:
        aside = self._aside.get(queue)
        if aside is None:
            return amounts
        return [ask + kept for ask, kept in zip(amounts, aside, strict=True)]
