"""What is free and in use, in two tenses: now, and once those who were told to go are gone.

Something starts on what is free now; it may be kept a place among what comes free later. What is kept
for somebody counts as in use in both. Each is capacity on nodes (`Room`), amounts of queues (`Ledger`),
caps of users, and what the cluster shares out.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.gangs import Asked
from shoal.schedule.cycle.rows import Cluster
from shoal.schedule.placing.asks import Placement
from shoal.schedule.placing.room import Room
from shoal.schedule.shares.ledger import Ledger, Refusal
from shoal.schedule.shares.users import UserCaps

__all__ = ["Books"]


class Books:
    """Of one tense. Mutable."""

    def __init__(self, cluster: Cluster, columns: Columns) -> None:
        self._columns = columns
        self.room = Room(columns.nodes)
        zeros = columns.quotas.nominal * 0.0
        self.ledger = Ledger(columns.quotas, zeros, columns.capacity)
        self.users = UserCaps(columns.tree, columns.user_caps)
        self.shared = dict(cluster.shared)
        """What is left of each."""
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
        queue = self._columns.queue_at[job.queue]
        self.ledger.charge(queue, amounts, sign)
        self.users.charge(queue, job.user, amounts, sign)
        if amounts[-1]:
            for name, amount in job.shared.items():
                self.shared[name] = self.shared.get(name, 0) - sign * amount

    def refusal(self, asked: Asked, amounts: Sequence[float]) -> Refusal | None:
        """Of the user's caps, then of the queue."""
        queue = self._columns.queue_at[asked.job.queue]
        found = self.users.refusal(queue, asked.job.user, amounts)
        if found is not None:
            return found
        aside = self._aside.get(queue)
        if aside is not None:
            amounts = [ask + kept for ask, kept in zip(amounts, aside, strict=True)]
        return self.ledger.refusal(queue, amounts)

    def set_aside(self, queue: int, amounts: tuple[float, ...]) -> None:
        """Others of the queue are to leave so much, for the first who asked for it. It is in no use, so
        shares are as they were."""
        self._aside.setdefault(queue, amounts)

    def lacks(self, asked: Asked) -> str | None:
        """A shared amount of which there is not enough left for it; who is there has what it asks
        for."""
        if asked.job.present:
            return None
        return next(
            (name for name, ask in asked.job.shared.items() if ask > self.shared.get(name, 0)), None
        )
