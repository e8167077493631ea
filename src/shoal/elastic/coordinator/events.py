"""What may happen to a coordinator: plain data, in the words of the protocol's messages.

`connection` is a number that the server gives to each connection, never twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from shoal.elastic.view import Cursor

__all__ = [
    "Beat",
    "Blob",
    "CaughtUp",
    "Done",
    "Dropped",
    "Event",
    "Failed",
    "Gossips",
    "Heard",
    "Leaving",
    "Left",
    "Publish",
    "Recovered",
    "Report",
    "Resize",
    "SidecarHello",
    "SidecarSaid",
    "Silent",
    "Started",
    "Switched",
    "Tick",
    "Unbuilt",
    "Wanted",
    "WorkerHello",
]


@dataclass(frozen=True)
class Started:
    """The coordinator has loaded its record and listens at `address`."""

    address: str


@dataclass(frozen=True)
class Tick:
    """A moment that was asked for has come."""


@dataclass(frozen=True)
class Wanted:
    """The platform says how many workers to expect, and how few and how many there may be."""

    expect: int | None
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True)
class Dropped:
    """A connection is gone."""

    connection: int


@dataclass(frozen=True)
class WorkerHello:
    """See the protocol. `incarnation` 0: new; `epoch` 0: in no group."""

    connection: int
    name: str
    incarnation: int
    address: str
    epoch: int
    step: int


@dataclass(frozen=True)
class SidecarHello:
    """A sidecar speaks for this incarnation."""

    connection: int
    name: str
    incarnation: int


@dataclass(frozen=True)
class Beat:
    """A sidecar is alive; its own timer was late by so much."""

    connection: int
    late_seconds: float


@dataclass(frozen=True)
class SidecarSaid:
    """A sidecar has seen something. `seconds` belongs to `stalled`."""

    connection: int
    what: Literal["gone", "stopped", "continued", "stalled", "notice"]
    seconds: float = 0.0


@dataclass(frozen=True)
class Gossips:
    """A sidecar gossips with others: by that word they know it, it is reached there, it knows so many
    (itself included), and says so again after so long."""

    connection: int
    sidecar: str
    address: str
    members: int
    again_seconds: float


@dataclass(frozen=True)
class Silent:
    """Those that gossip have no answer from the sidecar of that incarnation, which they know as that."""

    connection: int
    incarnation: int
    sidecar: str


@dataclass(frozen=True)
class Heard:
    """A sidecar that was silent has answered them."""

    connection: int
    incarnation: int
    sidecar: str


@dataclass(frozen=True)
class Blob:
    """The address of an end of a group, opaque here."""

    connection: int
    epoch: int
    rank: int
    data: str


@dataclass(frozen=True)
class CaughtUp:
    """A joiner has the state of `step`."""

    connection: int
    step: int


@dataclass(frozen=True)
class Switched:
    """A planned epoch is in use after `step`."""

    connection: int
    epoch: int
    step: int
    cursor: Cursor


@dataclass(frozen=True)
class Recovered:
    """A view after a loss is in use."""

    connection: int
    epoch: int
    step: int
    cursor: Cursor
    seconds: float
    how: str


@dataclass(frozen=True)
class Unbuilt:
    """The group of that epoch could not be built; the members that the sender reaches."""

    connection: int
    epoch: int
    reached: tuple[str, ...]


@dataclass(frozen=True)
class Leaving:
    """The sender got a notice to leave."""

    connection: int


@dataclass(frozen=True)
class Left:
    """The sender has gone out after `step`."""

    connection: int
    step: int


@dataclass(frozen=True)
class Failed:
    """The user's code raised at these samples."""

    connection: int
    step: int
    samples: tuple[tuple[int, int], ...]
    epoch_of_data: int
    error: str


@dataclass(frozen=True)
class Done:
    """All epochs are over at the sender."""

    connection: int
    step: int
    cursor: Cursor


@dataclass(frozen=True)
class Report:
    """The state of a worker, sent again on each connection and twice a second: the newest counts.

    `epoch`: of the group that it uses; 0: none. `broken`: the epoch in which its operations fail, or do
    not end; 0: none. `step` -1: nothing is known yet of this epoch.
    """

    connection: int
    step: int
    cursor: Cursor
    step_seconds: float
    samples: int
    world: int
    epoch: int = 0
    broken: int = 0


@dataclass(frozen=True)
class Resize:
    """The script asks for so many workers."""

    connection: int
    size: int


@dataclass(frozen=True)
class Publish:
    """A checkpoint is complete; its manifest is to be the newest."""

    connection: int
    epoch: int
    manifest: dict[str, Any]


Event = (
    Started
    | Tick
    | Wanted
    | Dropped
    | WorkerHello
    | SidecarHello
    | Beat
    | SidecarSaid
    | Gossips
    | Silent
    | Heard
    | Blob
    | CaughtUp
    | Switched
    | Recovered
    | Unbuilt
    | Leaving
    | Left
    | Failed
    | Done
    | Report
    | Resize
    | Publish
)
