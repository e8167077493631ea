"""Seventy members in virtual time: production nodes over a network that loses packets, and the machine
that decides. Losses are found, and nobody is put out who is only slow or badly connected."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from shoal.elastic.coordinator import events
from shoal.elastic.detect.gossip import SETTINGS, Identity, reports
from shoal.elastic.detect.swim.node import Join, Leave
from tests.elastic.coordinator.bench import Bench
from tests.elastic.detect.swim.network import Host, Network
from tests.elastic.variants import soak

pytestmark = pytest.mark.slow

TICK = 0.05
AGAIN = 5.0


@dataclass
class Side:
    """A sidecar: what it was told and has not read, and its node while it gossips."""

    name: str
    incarnation: int
    connection: int
    inbox: list[dict[str, Any]] = field(default_factory=list)
    host: Host | None = None
    heard: int = 0
    again_at: float = 0.0
    down: bool = False
    asleep_until: float = 0.0


class Large:
    """The job; `run` lets time pass for everybody."""

    def __init__(self, seed: int, count: int, loss: float) -> None:
        self.network = Network(seed, SETTINGS, loss=loss)
        self.random = random.Random(seed)
        self.bench = Bench(expect=count)
        names = [f"w{at}" for at in range(count)]
        self.bench.join(*names)
        self.bench.recovered(1, 0, *names)
        self.sides = [
            Side(name, self.bench.incarnations[name], self.bench.sidecars[name]) for name in names
        ]

    @property
    def gossiping(self) -> int:
        return sum(peer.watched for peer in self.bench.state.peers.values())

    def run(self, seconds: float) -> None:
        until = self.network.now + seconds
        while self.network.now < until:
            self.network.run(TICK)
            self.bench.now = 100.0 + self.network.now
            for side in self.sides:
                told = self.bench.told.pop(f"?{side.connection}", [])
                side.inbox += told
                if not side.down and self.network.now >= side.asleep_until:
                    self._turn(side)
            wake = self.bench.state.wake_at
            if wake is not None and self.bench.now >= wake:
                self.bench.do(events.Tick())

    def kill(self, side: Side) -> float:
        side.down = True
        if side.host is not None:
            self.network.kill(side.host)
        return self.network.now

    def starve(self, side: Side, seconds: float) -> None:
        side.asleep_until = self.network.now + seconds
        if side.host is not None:
            self.network.pause(side.host, seconds)

    def _turn(self, side: Side) -> None:
        for message in side.inbox:
            self._told(side, message)
        side.inbox.clear()
        if side.host is None or len(side.host.node.members) == 1:
            self.bench.do(events.Beat(side.connection, 0.0))
        if side.host is None:
            return
        if self.network.now >= side.again_at:
            self._say(side)
        members = side.host.node.members
        for _, change in side.host.changes[side.heard :]:
            there = [each.name for each in members if each.there]
            if change.kind == "dead" and reports(change.name, members.me, there):
                who = Identity.parsed(change.name)
                assert who is not None
                self.bench.do(events.Silent(side.connection, who.incarnation, who.word))
        side.heard = len(side.host.changes)

    def _told(self, side: Side, message: dict[str, Any]) -> None:
        if message["type"] == "star" and side.host is not None:
            self.network.give(side.host, Leave())
            leaver, side.host = side.host, None
            self.network.at(0.3, lambda: self.network.kill(leaver))
        elif message["type"] == "gossip":
            if side.host is None:
                name = Identity(side.name, side.incarnation, str(self.random.getrandbits(32)))
                side.host, side.heard = self.network.add(str(name)), 0
                side.again_at = 0.0
            self.network.give(side.host, Join(tuple(message["seeds"])))

    def _say(self, side: Side) -> None:
        assert side.host is not None
        members = side.host.node.members
        who = Identity.parsed(members.me)
        assert who is not None
        # alone it says so again as soon as it is not
        side.again_at = self.network.now + (AGAIN if len(members) > 1 else TICK)
        said = events.Gossips(side.connection, who.word, side.host.address, len(members), AGAIN)
        self.bench.do(said)


@pytest.mark.parametrize(("loss", "seed"), [(0.15, 1), soak(0.0, 0)])
def test_who_dies_is_lost_and_who_is_slow_or_badly_connected_is_not(loss: float, seed: int) -> None:
    """A tenth of the sidecars sleeps for 0.1 to 0.4 s at a time, for 4 s; then one machine dies."""
    job = Large(seed, 70, loss)
    job.run(5.0)
    assert job.gossiping == 70
    assert all(len(side.host.node.members) == 70 for side in job.sides if side.host is not None)
    slow = job.sides[::10]
    for _ in range(7):
        for side in slow:
            job.starve(side, job.random.uniform(0.1, 0.4))
        job.run(0.6)
    assert job.bench.epoch == 1, job.bench.reports[-3:]
    suspected = sum(
        change.kind == "suspect"
        for side in job.sides
        if side.host is not None
        for _, change in side.host.changes
    )
    victim = job.sides[33]
    died_at = job.kill(victim)
    while job.bench.epoch == 1 and job.network.now < died_at + 10.0:
        job.run(TICK)
    took = job.network.now - died_at
    print(f"{suspected} suspicions of the slow; who died is out after {took:.2f} s")
    job.run(2.0)
    assert job.bench.epoch == 2
    assert job.bench.members == [side.name for side in job.sides if side is not victim]
    assert took < 2.5
