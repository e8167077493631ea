"""Between two steps: joiners are served, a planned view is switched to, a worker with a notice leaves,
and a rank with wrong parameters takes those of the others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn

from shoal import faults
from shoal.elastic.errors import GroupFailed
from shoal.elastic.giving import Giving
from shoal.elastic.leaving import leave
from shoal.elastic.membership import LEAVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.elastic.allreduce.control import Sum
    from shoal.elastic.joining.donor import Donor
    from shoal.elastic.membership import Membership
    from shoal.elastic.training import Training

__all__ = ["Boundary"]


class Boundary:
    """Of one process. `calls` are made at each boundary, before the members change."""

    def __init__(self, training: Training, membership: Membership | None, donor: Donor | None) -> None:
        self.calls: list[Callable[[], None]] = []
        self._training = training
        self._membership = membership
        self._donor = donor
        self.giving = Giving(training, donor) if donor is not None else None
        self._switch_to = 0
        self._unequal = False
        self._asked_to_leave = 0.0

    def heard(self, total: Sum, said_ready: int) -> None:
        """What all said with a step; `said_ready` is the epoch that this rank said it had built."""
        if total.ready and said_ready:
            self._switch_to = said_ready
        if total.same is False:
            self._unequal = True

    def unplan(self) -> None:
        """What was planned before a loss is void."""
        self._switch_to = 0

    def forget(self) -> None:
        """The group is broken: so is what is planned, and what joiners follow."""
        self.unplan()
        if self.giving is not None:
            self.giving.cancel()
        if self._donor is not None:
            self._donor.drop()

    def notice(self) -> None:
        """At a step boundary at which members cannot change: what has to be asked for is asked."""
        membership = self._membership
        if membership is not None and membership.leaving and self._asked_to_leave == 0.0:
            self._asked_to_leave = time.monotonic()
            membership.leave()

    def pass_over(self) -> None:
        """Do what there is to do.

        Raises:
            SystemExit: this process has left.
        """
        membership = self._membership
        if membership is not None and self._unequal:
            self._equalise(membership)
        if self.giving is not None:
            self.giving.serve()
        for call in self.calls:
            call()
        if membership is None:
            return
        if self._switch_to:
            self._switch(membership)
        elif membership.leaving:
            self._leave(membership)

    def _equalise(self, membership: Membership) -> None:
        training = self._training
        self._unequal = False
        try:
            differs = training.recovery.equalise(training.current_group, training.parameters_digest())
        except GroupFailed:
            self._unequal = True
            training.recover()
            return
        if differs:
            membership.send({"type": "diverged", "step": training.applied})
            training.recovery.install()

    def _switch(self, membership: Membership) -> None:
        epoch, self._switch_to = self._switch_to, 0
        if self._donor is not None:
            training = self._training
            self._donor.switched(epoch, training.applied, training.given.loop)
        if not membership.includes_me(membership.plans.get(epoch)):
            self._go(membership)
        group = membership.groups.take(epoch, 0.0)
        if group is None:  # a loss has made it void
            self._training.recover()
            return
        self._training.switched_to(group)
        faults.point("elastic.switched")

    def _leave(self, membership: Membership) -> None:
        """Asked for until the next view is without it; alone it goes at once."""
        self.notice()
        waited = time.monotonic() - self._asked_to_leave
        if self._training.size == 1 or waited > LEAVE_SECONDS:
            self._go(membership)

    def _go(self, membership: Membership) -> NoReturn:
        membership.send({"type": "left", "step": self._training.applied})
        leave()
