"""The detector for large jobs: sidecars watch each other by SWIM, and a few speak for all.

The coordinator asks for it (`gossip`, with the addresses of some that gossip already) when beats from
everybody would be too many. Until one is among others it beats as before, and again once it is asked to
(`star`). A silent member is reported by the four that rank first for it, not by all; should one of the
four be silent, too, the next takes its place.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.elastic.detect.detector import BEAT_SECONDS, Star
from shoal.elastic.detect.swim.members import Change
from shoal.elastic.detect.swim.runner import Runner
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import Keys
from shoal.elastic.wire import Message

__all__ = ["SETTINGS", "Gossip", "Identity", "reports"]

SETTINGS = Settings(
    probe_interval=0.1, probe_timeout=0.05, suspicion_mult=3.0, gossip_interval=0.05
)  # fmt: skip
"""Quick to suspect, since the coordinator asks a suspect again."""
_REPORTERS = 4
_JOIN_SECONDS = 2.0
_LEAVE_SECONDS = 0.3
_AGAIN_SECONDS = 5.0
_AGAIN_A_SECOND = 20
"""How often all members together say that they are there, at most."""
_NEVER = float("inf")


class Identity(NamedTuple):
    """How one is known to the others.

    `label` stands for the worker's name, which may be longer than a packet. `word` is new each time: a
    sidecar that was started again is another than the one that is silent since.
    """

    label: str
    incarnation: int
    word: str

    @classmethod
    def of(cls, name: str, incarnation: int) -> Identity:
        """A new one for this worker."""
        label = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
        return cls(label, incarnation, os.urandom(6).hex())

    @classmethod
    def parsed(cls, text: str) -> Identity | None:
        """What `str` made; None for anything else."""
        label, incarnation, word = (*text.split("#"), "", "")[:3]
        return cls(label, int(incarnation), word) if incarnation.isdecimal() and word else None

    def __str__(self) -> str:
        return "#".join(map(str, self))


class Gossip:
    """See `Detector`. `host` is this machine's address on the network that leads to the coordinator.

    A member with an older incarnation than another of its name is put out, and not admitted.

    Raises:
        OSError: nothing can be bound there.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        key: str,
        host: str,
        seeds: Sequence[str],
        settings: Settings = SETTINGS,
    ) -> None:
        self._me = Identity.of(name, incarnation)
        self._newest = {self._me.label: incarnation}
        self._runner = Runner(
            str(self._me), host, Keys(key), settings, random.Random(), self._changed, self._outdated
        )  # fmt: skip
        self.address = self._runner.address
        self._seeds = [each for each in seeds if each != self.address]
        self._join_at = 0.0
        self._again_at = 0.0
        self._alone = True
        self._star = Star(BEAT_SECONDS, time.monotonic())
        self._joined: set[Identity] = set()
        self._silent: set[str] = set()
        self._said: set[str] = set()
        self._news: list[Message] = []
        self._leaves_until: float | None = None
        self.over = False
        """See `Detector`."""

    @property
    def descriptor(self) -> int | None:
        """See `Detector`."""
        return self._runner.transport.fileno()

    @property
    def next_at(self) -> float:
        """See `Detector`."""
        beats_at = self._star.next_at if self._alone or self.leaving else _NEVER
        leaves_at = self._leaves_until if self._leaves_until is not None else _NEVER
        return min(self._runner.next_at, self._join_at, self._again_at, beats_at, leaves_at)

    @property
    def leaving(self) -> bool:
        """It is not wanted any more."""
        return self._leaves_until is not None

    def turn(self, now: float) -> list[Message]:
        """See `Detector`: it is gossiping, others are silent, or a reported one is back."""
        if now >= self._join_at:
            self._join_at = now + _JOIN_SECONDS if self._alone and self._seeds else _NEVER
            self._runner.join(self._seeds)
        self._runner.turn(now)
        if self._leaves_until is not None:
            self.over = self._runner.left or now >= self._leaves_until
            return self._star.turn(now)
        if self._joined:
            self._put_out(now)
        self._watched(now)
        if now >= self._again_at:
            self._news.append(self._state(now))
        self._report()
        news, self._news = self._news, []
        return news

    def join(self, seeds: Sequence[str]) -> None:
        """Others that gossip are there, too."""
        self._seeds = [each for each in seeds if each != self.address]
        self._join_at = 0.0

    def restate(self) -> list[Message]:
        """See `Detector`: where this one is reached, before it accuses anybody."""
        self._said.clear()
        return [] if self.leaving else [self._state(time.monotonic())]

    def leave(self, now: float) -> None:
        """See `Detector`."""
        if self._leaves_until is None:
            self._leaves_until = now + _LEAVE_SECONDS
            self._join_at = self._again_at = _NEVER
            self._star = Star(BEAT_SECONDS, now)
            self._runner.leave()

    def close(self) -> None:
        """See `Detector`."""
        self._runner.close()

    def _state(self, now: float) -> Message:
        members = len(self._runner.node.members)
        seconds = max(_AGAIN_SECONDS, members / _AGAIN_A_SECOND)
        self._again_at = now + seconds
        return {
            "type": "gossiping",
            "sidecar": self._me.word,
            "address": self.address,
            "members": members,
            "again_seconds": seconds,
        }

    def _watched(self, now: float) -> None:
        """A member that no other watches beats: the coordinator always has one or the other."""
        alone = len(self._runner.node.members) == 1
        if alone != self._alone:
            self._alone = alone
            self._star = Star(BEAT_SECONDS, now)
            self._join_at = now + _JOIN_SECONDS if alone else self._join_at
            self._again_at = now
        if alone:
            self._news += self._star.turn(now)

    def _report(self) -> None:
        members = self._runner.node.members
        self._silent = {name for name in self._silent if members.get(name) is not None}
        for name in self._silent - self._said:
            if reports(name, str(self._me), [each.name for each in members if each.there]):
                self._said.add(name)
                self._news.append({"type": "silent", **_who(name)})

    def _changed(self, change: Change) -> None:
        who = Identity.parsed(change.name)
        if who is None:  # of a join, or no sidecar of ours
            return
        if change.kind == "joined":
            self._joined.add(who)
        if change.kind == "dead":
            if not self._outdated(change.name):
                self._silent.add(change.name)
        elif change.kind in ("joined", "alive", "left"):
            self._silent.discard(change.name)
            if change.name in self._said and change.kind != "left":
                self._news.append({"type": "heard", **_who(change.name)})
            self._said.discard(change.name)

    def _outdated(self, name: str) -> bool:
        who = Identity.parsed(name)
        return who is None or who.incarnation < self._newest.get(who.label, 0)

    def _put_out(self, now: float) -> None:
        """Members with an older incarnation than another of their name, this one included."""
        for who in self._joined:
            self._newest[who.label] = max(self._newest.get(who.label, 0), who.incarnation)
        self._joined.clear()
        there = [each.name for each in self._runner.node.members if each.there]
        for name in filter(self._outdated, there):
            if name == str(self._me):
                self.leave(now)
            else:
                self._runner.expel(name)


def reports(silent: str, me: str, there: Iterable[str]) -> bool:
    """Whether this one of those that are there is one of the few that report that silent one."""
    mine = _rank(silent, me)
    return sum(_rank(silent, each) < mine for each in there) < _REPORTERS


def _rank(silent: str, reporter: str) -> bytes:
    return hashlib.blake2b(f"{silent}\n{reporter}".encode(), digest_size=8).digest()


def _who(member: str) -> Message:
    who = Identity.parsed(member)
    assert who is not None
    return {"incarnation": who.incarnation, "sidecar": who.word}
