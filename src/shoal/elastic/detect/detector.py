"""How it is found that a whole machine is silent: one interface, a star or a gossip behind it.

What the sidecar itself sees of its worker (`findings`) goes to the coordinator in any case. A detector
is for what no sidecar can say of itself: that it and its machine send nothing any more.
"""

from __future__ import annotations

from typing import Protocol

from shoal.elastic.wire import Message

__all__ = ["BEAT_SECONDS", "Detector", "Star"]

BEAT_SECONDS = 0.1


class Detector(Protocol):
    """Evidence in (its own sockets and the time), suspicions out (messages for the coordinator).

    Driven by the sidecar's loop, on one thread; nothing in it blocks. Messages may be lost with a
    connection: after `restate` everything that still holds is said once more. It owns its sockets.
    """

    @property
    def descriptor(self) -> int | None:
        """What to poll for reading; None when it only needs the time."""
        ...

    @property
    def next_at(self) -> float:
        """When (monotonic) `turn` is due at the latest."""
        ...

    @property
    def over(self) -> bool:
        """It has left those that it watched, and is to be closed."""
        ...

    def turn(self, now: float) -> list[Message]:
        """Go on; returns messages for the coordinator."""
        ...

    def restate(self) -> list[Message]:
        """Messages that a coordinator needs first, since it may have got none of the earlier ones."""
        ...

    def leave(self, now: float) -> None:
        """It is not wanted any more: beat, send a farewell to those that watch it, and then be
        `over`."""

    def close(self) -> None:
        """Close its sockets. Without `leave` before, others find it silent."""


class Star:
    """Every sidecar beats to the coordinator, which misses the beats of a silent one.

    `late_seconds` says by how much this process was late with the beat: a coordinator that gets late
    beats from everybody knows that the machine is slow and not the worker (Lifeguard).
    """

    descriptor: int | None = None
    over = False

    def __init__(self, interval_seconds: float, now: float) -> None:
        self._interval = interval_seconds
        self._sequence = 0
        self.next_at = now

    def turn(self, now: float) -> list[Message]:
        """One beat when it is due, none to make up for those that were missed."""
        if now < self.next_at:
            return []
        late = now - self.next_at
        self._sequence += 1
        self.next_at = now + self._interval if late > self._interval else self.next_at + self._interval
        return [{"type": "beat", "seq": self._sequence, "late_seconds": round(late, 4)}]

    def restate(self) -> list[Message]:
        """The next beat says it."""
        return []

    def leave(self, now: float) -> None:
        """It beats already."""

    def close(self) -> None:
        """The end of the connection is its end."""
