"""How a process becomes a member: with the first view, or behind a donor while the others train.

The joiner takes a snapshot, then step after step, in the order in which the donor applied them.
"""

from __future__ import annotations

import pickle
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from shoal import faults
from shoal.elastic import wire
from shoal.elastic.blocks import Blocks
from shoal.elastic.errors import Fenced
from shoal.elastic.leaving import leave
from shoal.elastic.state import Packed, unpack
from shoal.elastic.view import Cursor
from shoal.elastic.wire import Closed

if TYPE_CHECKING:
    from shoal.elastic.membership import Donor, Membership
    from shoal.elastic.training import Training

__all__ = ["Applied", "Follower", "InUse", "Lost", "Snapshot", "Switch", "Update", "join"]

_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Snapshot:
    """The donor's whole state after `step`, as a tree; `digest` of its parameters."""

    tree: Any
    step: int
    cursor: Cursor
    digest: int


@dataclass(frozen=True)
class Update:
    """What an optimizer applied: the options of its groups, and a gradient (or None) a parameter."""

    optimizer: int
    groups: list[dict[str, Any]]
    gradients: list[torch.Tensor | None]


@dataclass(frozen=True)
class Applied:
    """A step is over; `rest` is what `Donor.applied` was given."""

    step: int
    cursor: Cursor
    rest: Any


@dataclass(frozen=True)
class Switch:
    """The step after `step` is that epoch's; the script's loop number `loop` is under way."""

    epoch: int
    step: int
    loop: int


@dataclass(frozen=True)
class InUse:
    """The newest epoch that the donor has switched to, as it is when one begins to follow; 0: none."""

    epoch: int


class Lost:
    """The donor has gone, or has cut us off."""


Event = InUse | Snapshot | Update | Applied | Switch | Lost


class Follower:
    """A connection to a donor. A thread reads; the training thread takes events in order."""

    def __init__(self, address: str, key: str) -> None:
        """
        Raises:
            Closed: the donor does not answer.
        """
        self._connection = wire.connect(address, _CONNECT_SECONDS)
        self._connection.send({"type": "hello", "role": "joiner", "key": key})
        self._connection.socket.settimeout(None)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._blocks = Blocks()
        threading.Thread(target=self._run, name="shoal-follower", daemon=True).start()

    def next(self, timeout_seconds: float) -> Event | None:
        """The next event; None when there is none in that time."""
        try:
            return self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    @property
    def level(self) -> bool:
        """Whether everything that has come has been taken."""
        return self._events.empty()

    def close(self) -> None:
        """Follow no more."""
        self._connection.close()

    def _run(self) -> None:
        try:
            while True:
                message = self._connection.receive()
                count = int(message.get("meta", 0))
                head, flat = bytearray(count), self._blocks.take(int(message.get("bytes", 0)) - count)
                self._connection.receive_into(memoryview(head))
                self._connection.receive_into(memoryview(flat.numpy()))  # pyright: ignore
                self._events.put(_understand(message, bytes(head), flat))
        except (wire.Closed, OSError, ValueError, KeyError):
            self._events.put(Lost())


def _understand(message: wire.Message, head: bytes, flat: torch.Tensor) -> Event:
    match message["type"]:
        case "epoch":
            return InUse(int(message["epoch"]))
        case "snapshot":
            tree = unpack(Packed(head, flat))
            return Snapshot(tree, int(message["step"]), Cursor(*message["cursor"]), message["digest"])
        case "update":
            groups, meta = pickle.loads(head)
            return Update(int(message["optimizer"]), groups, unpack(Packed(meta, flat)))
        case "applied":
            rest = unpack(Packed(head, flat))
            return Applied(int(message["step"]), Cursor(*message["cursor"]), rest)
        case "switch":
            return Switch(int(message["epoch"]), int(message["step"]), int(message["loop"]))
        case other:
            raise ValueError(other)


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
