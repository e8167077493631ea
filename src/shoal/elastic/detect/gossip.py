"""The detector for large jobs: sidecars watch each other by SWIM, and a few speak for all.

The coordinator asks for it (`gossip`, with the addresses of some that gossip already) when beats from
everybody would be too many. Until one is among others it beats as before. A silent member is reported by
the four that rank first for it, not by all; should one of the four be silent, too, the next takes its
place.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Sequence

from shoal.elastic.detect.detector import BEAT_SECONDS, Star
from shoal.elastic.detect.swim.members import Change
from shoal.elastic.detect.swim.runner import Runner
from shoal.elastic.detect.swim.seal import Keys
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.wire import Message

__all__ = ["Gossip"]

_REPORTERS = 4
_JOIN_SECONDS = 2.0
_LEAVE_SECONDS = 0.3


class Gossip:
    """See `Detector`. `host` is this machine's address on the network that leads to the coordinator.

    Raises:
        OSError: nothing can be bound there.
    """

    def __init__(
        self, name: str, incarnation: int, key: str, host: str, seeds: Sequence[str], settings: Settings
    ) -> None:
        self._me = f"{name}#{incarnation}"
        self._runner = Runner(
            self._me, host, Keys(key), settings, random.Random(), self._changed
        )  # fmt: skip
        self.address = self._runner.address
        self._seeds = [each for each in seeds if each != self.address]
        self._join_at = 0.0
        self._alone = True
        self._star = Star(BEAT_SECONDS, time.monotonic())
        self._silent: set[str] = set()
        self._said: set[str] = set()
        self._news: list[Message] = []

    @property
    def descriptor(self) -> int | None:
        """See `Detector`."""
        return self._runner.transport.fileno()

    @property
    def next_at(self) -> float:
        """See `Detector`."""
        beats_at = self._star.next_at if self._alone else float("inf")
        return min(self._runner.next_at, self._join_at, beats_at)

    def state(self) -> Message:
        """`gossiping`: where this one is reached, and how many there are, itself included."""
        members = len(self._runner.node.members)
        return {"type": "gossiping", "address": self.address, "members": members}

    def turn(self, now: float) -> list[Message]:
        """See `Detector`: `silent`, and `heard` when one that was reported is back."""
        if now >= self._join_at:
            self._join_at = now + _JOIN_SECONDS if self._alone and self._seeds else float("inf")
            self._runner.join(self._seeds)
        self._runner.turn(now)
        self._watched(now)
        for name in self._silent - self._said:
            if self._reports(name):
                self._said.add(name)
                self._news.append({"type": "silent", **_identity(name)})
        news, self._news = self._news, []
        return news

    def join(self, seeds: Sequence[str]) -> None:
        """Others that gossip are there, too."""
        self._seeds = [each for each in seeds if each != self.address]
        self._join_at = 0.0

    def restate(self) -> None:
        """See `Detector`."""
        self._said.clear()

    def close(self) -> None:
        """See `Detector`."""
        self._runner.leave(_LEAVE_SECONDS)
        self._runner.close()

    def _watched(self, now: float) -> None:
        """Who has nobody to watch it beats: the coordinator is never without one or the other."""
        alone = len(self._runner.node.members) == 1
        if alone != self._alone:
            self._alone = alone
            self._star = Star(BEAT_SECONDS, now)
            self._join_at = now + _JOIN_SECONDS if alone else self._join_at
            self._news.append(self.state())
        if alone:
            self._news += self._star.turn(now)

    def _changed(self, change: Change) -> None:
        if change.kind == "dead":
            self._silent.add(change.name)
        elif change.kind in ("joined", "alive", "left"):
            self._silent.discard(change.name)
            if change.name in self._said and change.kind != "left":
                self._news.append({"type": "heard", **_identity(change.name)})
            self._said.discard(change.name)

    def _reports(self, silent: str) -> bool:
        mine = _rank(silent, self._me)
        before = sum(
            _rank(silent, each.name) < mine for each in self._runner.node.members if each.there
        )  # fmt: skip
        return before < _REPORTERS


def _rank(silent: str, reporter: str) -> bytes:
    return hashlib.blake2b(f"{silent}\n{reporter}".encode(), digest_size=8).digest()


def _identity(member: str) -> Message:
    name, _, incarnation = member.rpartition("#")
    return {"name": name, "incarnation": int(incarnation)}
