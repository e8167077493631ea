"""What a coordinator does to the world: plain data, carried out in the order in which they are listed.

A `Save` must have succeeded before anything after it is done; if it is refused nothing after it ever is.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.elastic import wire
from shoal.elastic.coordinator.record import Record

__all__ = ["Close", "Effect", "End", "Grant", "Report", "Save", "Tell", "Wake"]


@dataclass(frozen=True)
class Save:
    """Keep this record durably. `why` names the act (`view`, `plan`, `join` ...)."""

    record: Record
    why: str


@dataclass(frozen=True)
class Tell:
    """Send a message over a connection."""

    connection: int
    message: wire.Message


@dataclass(frozen=True)
class Close:
    """Close a connection, after the messages that were sent to it."""

    connection: int


@dataclass(frozen=True)
class Wake:
    """Give a `Tick` at this moment (monotonic seconds); earlier wishes are void. None: no wish."""

    at: float | None


@dataclass(frozen=True)
class Report:
    """Something changed that people want to see soon; `message` is one sentence."""

    message: str


@dataclass(frozen=True)
class Grant:
    """Ask the platform, which gives and takes workers, for so many."""

    size: int


@dataclass(frozen=True)
class End:
    """The job is over; all workers have been sent that."""

    reason: str
    failed: bool


Effect = Save | Tell | Close | Wake | Report | Grant | End
