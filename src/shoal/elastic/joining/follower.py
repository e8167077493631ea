"""The joiner's side: a snapshot, then step after step, in the order in which the donor applied them."""

from __future__ import annotations

import pickle
import queue
import threading
from dataclasses import dataclass
from typing import Any

import torch

from shoal.elastic import wire
from shoal.elastic.blocks import Blocks
from shoal.elastic.state import Packed, unpack
from shoal.elastic.view import Cursor

__all__ = ["Applied", "Follower", "InUse", "Lost", "Snapshot", "Switch", "Update"]

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
