"""How a process becomes a member: with the first view, or behind a donor while the others train."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from shoal import faults
from shoal.elastic.errors import Fenced
from shoal.elastic.joining.follower import Applied, Follower, InUse, Lost, Snapshot, Switch, Update
from shoal.elastic.leaving import leave
from shoal.elastic.wire import Closed

if TYPE_CHECKING:
    from shoal.elastic.membership import Donor, Membership
    from shoal.elastic.training import Training

__all__ = ["join"]

_LOOK_SECONDS = 0.05
_TAKE_SECONDS = 10.0


def join(training: Training, membership: Membership) -> None:
    """Return as a member, with the state that the others have. Below the minimum it waits here.

    Raises:
        Stopped: the job has ended.
        SystemExit: it got a notice to leave before it was in.
    """
    if training.has_to_rejoin:
        membership.rejoin()
    while True:
        try:
            if _joined(training, membership):
                return
        except Fenced:
            membership.rejoin()


def _joined(training: Training, membership: Membership) -> bool:
    membership.wait_until(
        lambda: membership.donor is not None or membership.includes_me(membership.view), 0.5
    )
    membership.explain()
    if membership.leaving:
        leave()
    if membership.includes_me(membership.view):
        began = time.monotonic()
        group = membership.next_group(membership.epoch)
        if group.view.kind == "first":
            training.before_first()
        if training.recovery.enter(group, began, newcomer=True):
            training.settle()
            return True
        return False
    donor = membership.donor
    return donor is not None and _follow(training, membership, donor)


def _follow(training: Training, membership: Membership, donor: Donor) -> bool:
    """Whether this led into a view. If not (the donor has gone, say), the coordinator knows another."""
    try:
        follower = Follower(donor.address, membership.key)
    except (Closed, TimeoutError):
        membership.wait_until(lambda: membership.donor is not donor, _LOOK_SECONDS)
        return False
    try:
        return _keep_level(training, membership, follower)
    finally:
        follower.close()
        membership.settle("caught_up")


def _keep_level(training: Training, membership: Membership, follower: Follower) -> bool:
    told = has_state = False
    while True:
        event = follower.next(_LOOK_SECONDS)
        match event:
            case InUse(epoch) if membership.includes_me(membership.plans.get(epoch)):
                raise Fenced  # they wait for it already, and it is behind
            case Snapshot():
                has_state = True
                training.given.check(event.tree["terms"])
                training.adopt(event.tree, event.step, event.cursor)
                if training.parameters_digest() != event.digest:
                    return False
                faults.point("elastic.snapshot.adopted")
            case Update():
                _apply(training, event)
            case Applied():
                _install_rest(training, event)
            case Switch(epoch) if membership.includes_me(membership.plans.get(epoch)):
                if not has_state:
                    raise Fenced
                _switch(training, membership, event)
                return True
            case Lost():
                return False
            case InUse() | Switch() | None:
                pass
        membership.wait_until(lambda: True, 0.0)
        view = membership.view
        if view is not None and view.kind != "switch" and membership.includes_me(view):
            return False  # the loss of another has made it a member; the view says so
        if membership.leaving:
            leave()
        if not told and follower.level and isinstance(event, Snapshot | Applied):
            told = True
            membership.insist({"type": "caught_up", "step": training.applied})


def _apply(training: Training, update: Update) -> None:
    optimizer = training.objects.optimizers[update.optimizer]
    training.objects.set_options(update.optimizer, update.groups)
    gradients = iter(update.gradients)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = next(gradients)
            parameter.grad = gradient.to(parameter.device) if gradient is not None else None
    training.objects.apply(update.optimizer)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@torch.no_grad()
def _install_rest(training: Training, event: Applied) -> None:
    for buffer, value in zip(training.objects.buffers(), event.rest["buffers"], strict=True):
        buffer.copy_(value)
    training.objects.install_others(event.rest["others"])
    for number, options in enumerate(event.rest["options"]):
        training.objects.set_options(number, options)
    training.follow_to(event.step, event.cursor)


def _switch(training: Training, membership: Membership, event: Switch) -> None:
    """Take part in the epoch that the others have switched to.

    Raises:
        Fenced: this process cannot, though the others count on it: it has to begin anew, as another.
    """
    group = membership.groups.take(event.epoch, _TAKE_SECONDS)
    if group is None or (training.applied != event.step and not training.is_local):
        raise Fenced
    training.heard_of_loop(event.loop)
    training.switched_to(group)
