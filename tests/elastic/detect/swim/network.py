"""A network in virtual time: production nodes on it, their sealed bytes delayed, lost or cut as told.

One seed gives one run. A paused host takes in nothing; when it goes on it first gets all that has come
and then looks at its timers, as `Runner` does.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.elastic.detect.swim.members import Change
from shoal.elastic.detect.swim.node import (
    Datagram,
    Event,
    Join,
    Leave,
    Node,
    Output,
    Request,
    Response,
    Tick,
)
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import Keys


@dataclass
class Host:
    """One member and how its machine is doing."""

    node: Node
    address: str
    keys: Keys
    up: bool = True
    datagrams: bool = True
    streams: bool = True
    paused_until: float = 0.0
    lag: float = 0.0
    """How late, at most, it takes in what has come; its timers are on time."""
    waiting: list[Event] = field(default_factory=list[Event])
    changes: list[tuple[float, Change]] = field(default_factory=list[tuple[float, Change]])
    sent: int = 0
    sent_bytes: int = 0

    @property
    def name(self) -> str:
        """Of the member."""
        return self.node.members.me

    def said(self, kind: str, name: str) -> list[float]:
        """When it learned that of another."""
        return [at for at, change in self.changes if change.kind == kind and change.name == name]

    def state(self, name: str) -> str | None:
        """What it holds another to be."""
        known = self.node.members.get(name)
        return None if known is None else known.state


class Network:
    """Hosts by name. Times in seconds from 0."""

    def __init__(self, seed: int, settings: Settings, *, loss: float = 0.0, key: str = "k") -> None:
        print(f"seed {seed}")
        self.now = 0.0
        self.random = random.Random(seed)
        self.settings = settings
        self.loss = loss
        self.hosts: dict[str, Host] = {}
        self.cut: set[tuple[str, str]] = set()
        """Pairs of names whose datagrams and streams are lost, in that direction."""
        self.counted: Counter[str] = Counter()
        self._key = key
        self._by_address: dict[str, Host] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._delay = (0.0002, 0.001)
        self.sent_to: Counter[str] = Counter()
        """Datagrams by the name of whom they are for, whether or not they arrive."""
        self._answers: dict[str, tuple[Host, str]] = {}

    def add(self, name: str, **settings: object) -> Host:
        """A member of its own, until it joins."""
        address = f"10.0.{len(self._by_address) // 250}.{len(self._by_address) % 250 + 1}:7946"
        node = Node(
            name, address, self.now, settings=self.settings,
            randomness=random.Random(self.random.random()), **settings,  # type: ignore[arg-type]
        )  # fmt: skip
        host = Host(node, address, Keys(self._key))
        self.hosts[name] = self._by_address[address] = host
        self._tick(host)
        return host

    def cluster(self, count: int) -> list[Host]:
        """Members m0 ... who all know each other, told and settled."""
        hosts = [self.add(f"m{at}") for at in range(count)]
        for _ in range(2):  # gossip alone need not reach everybody; the second table holds all
            for host in hosts[1:]:
                self.give(host, Join((hosts[0].address,)))
            self.run(0.1)
        assert all(len(each.node.members) == count for each in hosts)
        self.run(2.0)
        for host in hosts:
            host.changes.clear()
        return hosts

    def give(self, host: Host, event: Event) -> None:
        """An event for a member, now; kept while it is paused."""
        if not host.up:
            return
        if self.now < host.paused_until:
            host.waiting.append(event)
            return
        self._carry(host, host.node.step(event, self.now))
        self._tick(host)

    def kill(self, host: Host) -> None:
        """Its process is gone, its address silent."""
        host.up = False

    def pause(self, host: Host, seconds: float) -> None:
        """It does not run for so long."""
        host.paused_until = self.now + seconds
        self.at(seconds, lambda: self._go_on(host))

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Do that later."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay, self._order, action))

    def run(self, seconds: float) -> None:
        """Let that time pass."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            self.now, _, action = heapq.heappop(self._heap)
            action()
        self.now = end

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Run until it holds, for that long at most; whether it does."""
        end = self.now + seconds
        while not condition():
            if not self._heap or self._heap[0][0] > end:
                self.now = end
                return condition()
            self.now, _, action = heapq.heappop(self._heap)
            action()
        return True

    def _go_on(self, host: Host) -> None:
        if self.now < host.paused_until:
            return
        waiting, host.waiting = host.waiting, []
        for event in waiting:
            self.give(host, event)
        self.give(host, Tick())

    def _tick(self, host: Host) -> None:
        due = host.node.next_at

        def fire() -> None:
            if host.node.next_at == due and self.now >= host.paused_until:
                self.give(host, Tick())

        self.at(max(0.0, due - self.now), fire)

    def _carry(self, host: Host, output: Output) -> None:
        host.changes += [(self.now, change) for change in output.changes]
        for address, payload in output.datagrams:
            host.sent += 1
            host.sent_bytes += len(payload)
            self._datagram(host, address, host.keys.seal(payload))
        for token, payload in output.responses:
            asker, theirs = self._answers.pop(token, (None, ""))
            if asker is not None:  # it may have given up meanwhile
                response = Response(payload, theirs)
                self.at(self._latency(asker), lambda to=asker, it=response: self.give(to, it))
        for address, payload, token, timeout in output.requests:
            self._request(host, address, payload, token, timeout)

    def _datagram(self, host: Host, address: str, sealed: bytes) -> None:
        to = self._by_address.get(address)
        if to is not None:
            self.sent_to[to.name] += 1
        if to is None or not (host.datagrams and to.datagrams) or self.random.random() < self.loss:
            return
        if (host.name, to.name) in self.cut:
            return
        payload = to.keys.open(sealed)
        if payload is None:
            self.counted["sealed wrongly"] += 1
            return
        self.at(self._latency(to), lambda: self.give(to, Datagram(host.address, payload)))

    def _request(self, host: Host, address: str, payload: bytes, token: str, timeout: float) -> None:
        to = self._by_address.get(address)
        answered = [False]

        def give_up() -> None:
            if not answered[0] and theirs in self._answers:
                del self._answers[theirs]
                self.give(host, Response(None, token))

        self._order += 1
        theirs = f"request {self._order}"
        self._answers[theirs] = (host, token)
        self.at(timeout, give_up)
        names = (host.name, "" if to is None else to.name)
        if to is None or not (to.up and host.streams and to.streams) or names in self.cut:
            return
        if to.keys.open(host.keys.seal(payload)) is None:
            self.counted["sealed wrongly"] += 1
            return
        self.at(self._latency(to), lambda: self.give(to, Request(payload, theirs)))

    def _latency(self, to: Host) -> float:
        return self.random.uniform(*self._delay) + self.random.uniform(0.0, to.lag)


def leave(network: Network, host: Host) -> None:
    """It goes of its own will, and then is gone."""
    network.give(host, Leave())
    network.until(lambda: host.node.quiet, 5.0)
    network.kill(host)
