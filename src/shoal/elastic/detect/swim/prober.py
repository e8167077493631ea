"""One probe after another: directly, then through others and over TCP, then a suspicion.

Everybody is probed once in every round, in a random order that changes each round, so that a dead
member is found after at most 2n - 1 probes of one prober, and after e/(e - 1) intervals in the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal.elastic.detect.swim.members import Awareness, Known, Members
from shoal.elastic.detect.swim.messages import IndirectPing, Message, Ping, Suspect, encode, packet
from shoal.elastic.detect.swim.settings import Settings

__all__ = ["Prober"]

SendMany = Callable[[str, list[Message]], None]
Ask = Callable[[str, bytes, str, float], None]


@dataclass
class _Probe:
    number: int
    target: str
    began: float
    asks_at: float
    ends_at: float
    asked: int = -1
    """How many others were asked; -1: not yet."""
    nacks: int = 0
    streamed: bool = False


class Prober:
    """At most one probe at a time. `send` sends datagrams; `ask` a request over TCP under its token."""

    def __init__(
        self, members: Members, settings: Settings, awareness: Awareness, send: SendMany, ask: Ask
    ) -> None:
        self._members = members
        self._settings = settings
        self._awareness = awareness
        self._send = send
        self._ask = ask
        self._number = 0
        self._at = 0
        self._probe: _Probe | None = None
        self._starts_at = 0.0

    @property
    def next_at(self) -> float:
        """When `turn` has something to do."""
        if self._probe is None:
            return self._starts_at
        return self._probe.ends_at if self._probe.asked >= 0 else self._probe.asks_at

    @property
    def target(self) -> str | None:
        """The member that is probed."""
        return self._probe.target if self._probe is not None else None

    def number(self) -> int:
        """A number that no probe of this member has had."""
        self._number += 1
        return self._number

    def turn(self, now: float) -> None:
        """Go on with what is due."""
        if self._probe is not None and self._probe.asked < 0 and now >= self._probe.asks_at:
            self._ask_others(self._probe, now)
        if self._probe is not None and now >= self._probe.ends_at:
            self._conclude(self._probe, now)
        if self._probe is None and now >= self._starts_at:
            self._start(now)

    def acked(self, number: int, now: float) -> None:
        """An answer came, from the target or through another."""
        if self._probe is None or self._probe.number != number:
            return
        self._awareness.apply(-1)
        self._finish(self._probe, now)

    def nacked(self, number: int) -> None:
        """One of those asked says that it had no answer either."""
        if self._probe is not None and self._probe.number == number:
            self._probe.nacks += 1

    def streamed(self, number: int) -> None:
        """It answered over TCP: its datagrams are lost, it is not. Counts when the probe ends."""
        if self._probe is not None and self._probe.number == number:
            self._probe.streamed = True

    def postpone(self, seconds: float) -> None:
        """This process was not awake for so long."""
        self._starts_at += seconds
        if self._probe is not None:
            self._probe.asks_at += seconds
            self._probe.ends_at += seconds

    def _start(self, now: float) -> None:
        target = self._next_target(now)
        if target is None:
            self._starts_at = now + self._settings.probe_interval
            return
        number = self.number()
        asks_at = now + self._awareness.scale(self._settings.probe_timeout)
        ends_at = now + self._awareness.scale(self._settings.probe_interval)
        self._probe = _Probe(number, target.name, now, asks_at, ends_at)
        messages: list[Message] = [Ping(number, target.name)]
        if target.state == "suspect":  # the one that can refute it must get it first
            messages.append(Suspect(target.incarnation, target.name, self._members.me))
        self._send(target.address, messages)

    def _next_target(self, now: float) -> Known | None:
        for _ in range(len(self._members.order) + 1):
            if self._at >= len(self._members.order):
                self._members.forget(now)
                self._at = 0
            known = self._members.get(self._members.order[self._at])
            self._at += 1
            if known is not None and known.there and known.name != self._members.me:
                return known
        return None

    def _ask_others(self, probe: _Probe, now: float) -> None:
        target = self._members.get(probe.target)
        if target is None or not target.there:
            return self._finish(probe, now)
        others = self._members.pick(
            self._settings.indirect_probes,
            lambda each: each.state == "alive" and each.name != probe.target,
        )
        message = IndirectPing(probe.number, target.name, target.address, int(self._settings.nacks))
        for other in others:
            self._send(other.address, [message])
        probe.asked = len(others)
        if self._settings.stream_probe:
            request = packet([encode(Ping(probe.number, target.name))])
            self._ask(target.address, request, f"probe {probe.number}", max(0.0, probe.ends_at - now))
        return None

    def _conclude(self, probe: _Probe, now: float) -> None:
        target = self._members.get(probe.target)
        missing = max(0, probe.asked) - probe.nacks if self._settings.nacks else 0
        if not probe.streamed:
            self._awareness.apply(missing if probe.asked > 0 and self._settings.nacks else 1)
            if target is not None and target.there:
                self._members.suspect(Suspect(target.incarnation, target.name, self._members.me), now)
        self._finish(probe, now)

    def _finish(self, probe: _Probe, now: float) -> None:
        self._probe = None
        self._starts_at = max(now, probe.began + self._awareness.scale(self._settings.probe_interval))
