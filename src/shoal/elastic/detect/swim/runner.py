"""A node on its transport, run by a thread of its own or turned by the caller's loop."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from shoal.elastic.detect.swim.members import Change
from shoal.elastic.detect.swim.node import Event, Expel, Join, Leave, Node, Request, Tick
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import Keys, Transport

__all__ = ["Runner"]


class Runner:
    """One member on real sockets. `changed` is called with every change, on the thread that turns.

    Raises:
        OSError: nothing can be bound at that host.
    """

    def __init__(
        self,
        name: str,
        host: str,
        keys: Keys,
        settings: Settings,
        randomness: random.Random,
        changed: Callable[[Change], None],
        outdated: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self.transport = Transport(host, keys, settings)
        self.address = self.transport.address
        self.node = Node(
            name,
            self.address,
            time.monotonic(),
            settings=settings,
            randomness=randomness,
            outdated=outdated,
        )
        self._changed = changed

    @property
    def next_at(self) -> float:
        """When (monotonic) `turn` is due though nothing has come."""
        return min(self.node.next_at, self.transport.next_at)

    def join(self, addresses: Sequence[str]) -> None:
        """Join the members that are reached there; `changed` is called with each."""
        self._step(Join(tuple(addresses)))

    def expel(self, name: str) -> None:
        """Announce that another is no member any more, as is known from elsewhere."""
        self._step(Expel(name))

    def leave(self) -> None:
        """Announce from now on that this member leaves: until `left`, or as long as there is time."""
        self._step(Leave())

    @property
    def left(self) -> bool:
        """Nothing is left to announce, or no member to announce it to."""
        return self.node.quiet or not len(self.node.members)

    def turn(self, until: float) -> None:
        """Wait until then (monotonic) at most, take in all that has come, then look at the timers."""
        timeout = min(until, self.next_at) - time.monotonic()
        for event in self.transport.turn(timeout):
            self._step(event)
        if time.monotonic() >= self.node.next_at:
            self._step(Tick())

    def run(self, stop: threading.Event, look_seconds: float = 0.05) -> None:
        """Turn until `stop` is set, which is looked at that often."""
        while not stop.is_set():
            self.turn(time.monotonic() + look_seconds)

    def close(self) -> None:
        """Close the sockets."""
        self.transport.close()

    def _step(self, event: Event) -> None:
        pending = [event]
        while pending:
            following = pending.pop(0)
            output = self.node.step(following, time.monotonic())
            pending += self.transport.carry(output)
            if isinstance(following, Request) and not output.responses:
                self.transport.refuse(following.token)
            for change in output.changes:
                self._changed(change)
