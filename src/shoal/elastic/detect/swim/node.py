"""One member of the detector, pure: an event and the time in; datagrams, requests and changes out.

It knows neither sockets nor clocks. Its runner hands it every datagram before it lets it look at
its timers (`Tick` at `next_at`), and carries out what `step` returns. A late step shows that
this process was not awake; what was to end in that time is put off by as much, and others are given
more time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.elastic.detect.swim.members import Awareness, Change, Gossip, Members
from shoal.elastic.detect.swim.messages import (
    MAX_ADDRESS,
    MAX_NAME,
    Ack,
    Alive,
    Dead,
    IndirectPing,
    Malformed,
    Message,
    Nack,
    Ping,
    Suspect,
    Table,
    decode,
    encode,
    packet,
)
from shoal.elastic.detect.swim.prober import Prober
from shoal.elastic.detect.swim.settings import Settings

__all__ = [
    "Datagram",
    "Event",
    "Expel",
    "Join",
    "Leave",
    "Node",
    "Output",
    "Request",
    "Response",
    "Tick",
]

_NACK_SHARE = 0.8  # of the probe's timeout: the nack must be back before the prober's interval is over
_NEVER = float("inf")


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Datagram:
    """A packet has come from that address."""

    source: str
    payload: bytes


@dataclass(frozen=True)
class Request:
    """A request over TCP; answered by the response of the same token, or not at all."""

    payload: bytes
    token: str


@dataclass(frozen=True)
class Response:
    """The answer to a request of ours; None: there was none in time."""

    payload: bytes | None
    token: str


@dataclass(frozen=True)
class Join:
    """Join the members that can be reached at these addresses."""

    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Leave:
    """Leave voluntarily: others are informed for as long as this node is stepped."""


@dataclass(frozen=True)
class Expel:
    """That one is no member any more, as is known from elsewhere."""

    name: str


Event = Tick | Datagram | Request | Response | Join | Leave | Expel


@dataclass(frozen=True)
class Output:
    """What a step wants done, each in order."""

    datagrams: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    """Address and packet."""
    requests: list[tuple[str, bytes, str, float]] = field(
        default_factory=list[tuple[str, bytes, str, float]]
    )
    """Address, packet, token, and after how many seconds to give up."""
    responses: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    """Token and packet."""
    changes: list[Change] = field(default_factory=list[Change])


@dataclass
class _Relay:
    """A probe for another: where its answer goes, under which number."""

    origin: str
    number: int
    ends_at: float
    nack: bool


class Node:
    """See the module. `admit` is asked about the name and address of each stranger: with one that may
    not come no table is exchanged. `outdated` is asked about the name of each that is not a member: it
    does not become one, though it may stand in others' tables.

    Raises:
        ValueError: the name or the address is longer than a message may hold.
    """

    def __init__(
        self,
        name: str,
        address: str,
        now: float,
        *,
        settings: Settings,
        randomness: random.Random,
        incarnation: int = 1,
        admit: Callable[[str, str], bool] = lambda _name, _address: True,
        outdated: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        if not 0 < len(name) <= MAX_NAME or not 0 < len(address) <= MAX_ADDRESS:
            raise ValueError(f"{name!r} at {address!r} is longer than a message may hold")
        self._settings = settings
        self._output = Output()
        self._gossip = Gossip()
        self.awareness = Awareness(settings.awareness_max)
        me = Alive(incarnation, name, address)
        self.members = Members(me, settings, self._gossip, self.awareness, randomness, admit, outdated)
        self._prober = Prober(self.members, settings, self.awareness, self._send, self._ask)
        self._relays: dict[int, _Relay] = {}
        self._gossiped_at = now - settings.gossip_interval
        self._push_pull_at = _NEVER
        if settings.push_pull_interval > 0:  # not all at the same moment
            self._push_pull_at = now + settings.push_pull_interval * (0.5 + randomness.random() / 2)
        self._prober.postpone(now + settings.probe_interval * randomness.random())
        self._due_at = now
        self.malformed = 0
        """How many packets were dropped because no member of ours would send such."""

    @property
    def next_at(self) -> float:
        """When a `Tick` is due (monotonic)."""
        return self._due_at

    @property
    def quiet(self) -> bool:
        """Nothing is left to be passed on: a leaving node may end."""
        return not self._gossip

    @property
    def probing(self) -> str | None:
        """The member that is probed at the moment."""
        return self._prober.target

    def step(self, event: Event, now: float) -> Output:
        """Take in one event; what it asks for. Never raises for what others send."""
        self._output = output = Output(changes=self.members.changes)
        if self._settings.awareness_max > 1 and now - self._due_at > self._settings.probe_timeout:
            self._overslept(now - self._due_at)
        match event:
            case Tick():
                self._turn(now)
            case Datagram():
                self._receive(event, now)
            case Request():
                self._answer(event, now)
            case Response():
                self._answered(event, now)
            case Join():
                self._join(event)
            case Leave():
                self.members.leave(now)
            case Expel(name):
                self.members.expel(name, now)
        self.members.changes = []
        # a confirmation may have ended a suspicion in the past: that is no oversleeping
        self._due_at = max(now, self._first_timer())
        return output

    def _first_timer(self) -> float:
        gossip_at = self._gossiped_at + self._settings.gossip_interval if self._gossip else _NEVER
        relays_at = min((each.ends_at for each in self._relays.values()), default=_NEVER)
        return min(
            self._prober.next_at, gossip_at, relays_at, self.members.expires_at, self._push_pull_at
        )

    def _overslept(self, seconds: float) -> None:
        """What seems to be others' silence is ours: nothing of theirs has been read."""
        self.awareness.apply(1)
        self.members.postpone(seconds)
        self._prober.postpone(seconds)
        self._push_pull_at += seconds
        self._gossiped_at += seconds
        for relay in self._relays.values():
            relay.ends_at += seconds

    def _turn(self, now: float) -> None:
        self.members.expire(now)
        for number in [number for number, relay in self._relays.items() if now >= relay.ends_at]:
            relay = self._relays.pop(number)
            if relay.nack:
                self._send(relay.origin, [Nack(relay.number)])
        self._prober.turn(now)
        if now >= self._push_pull_at:
            self._push_pull(now)
        if self._gossip and now >= self._gossiped_at + self._settings.gossip_interval:
            self._gossiped_at = now
            count = self._settings.gossip_members
            for known in self.members.pick(count, lambda each: self.members.hears_gossip(each, now)):
                self._send(known.address, [])

    def _push_pull(self, now: float) -> None:
        self._push_pull_at = now + self._settings.push_pull_seconds(len(self.members))
        found = self.members.pick(1, lambda each: each.state == "alive")
        # one of the dead, too: if only the way to it was dead, both sides learn what they missed
        found += self.members.pick(1, lambda each: each.state == "dead")
        for known in found:
            self._exchange(known.address, "push", joining=False)

    def _join(self, event: Join) -> None:
        for address in event.addresses:
            self._exchange(address, "join", joining=True)

    def _exchange(self, address: str, why: str, *, joining: bool) -> None:
        table = Table(int(joining), self.members.rows())
        token = f"{why} {self._prober.number()} {address}"
        self._ask(address, packet([encode(table)]), token, self._settings.stream_timeout)

    def _receive(self, event: Datagram, now: float) -> None:
        for message in self._decoded(event.payload, self._settings.packet_bytes):
            match message:
                case Ping(number, target):
                    if target == self.members.me:  # another has had this address before
                        self._send(event.source, [Ack(number)])
                case IndirectPing():
                    self._relay(message, event.source, now)
                case Ack(number):
                    self._acked(number, now)
                case Nack(number):
                    self._prober.nacked(number)
                case Alive():
                    self.members.alive(message, now)
                case Suspect():
                    self.members.suspect(message, now)
                case Dead():
                    self.members.dead(message, now)
                case Table():
                    self.malformed += 1  # tables come over TCP alone

    def _relay(self, message: IndirectPing, origin: str, now: float) -> None:
        number = self._prober.number()
        ends_at = now + _NACK_SHARE * self._settings.probe_timeout
        self._relays[number] = _Relay(origin, message.number, ends_at, bool(message.nack))
        self._send(message.address, [Ping(number, message.target)])

    def _acked(self, number: int, now: float) -> None:
        relay = self._relays.pop(number, None)
        if relay is not None:
            self._send(relay.origin, [Ack(relay.number)])
        else:
            self._prober.acked(number, now)

    def _answer(self, event: Request, now: float) -> None:
        for message in self._decoded(event.payload, self._settings.stream_bytes):
            match message:
                case Ping(number, target):
                    if target == self.members.me:
                        self._output.responses.append((event.token, packet([encode(Ack(number))])))
                case Table(_, rows):
                    if not self.members.admits(rows):
                        return
                    self.members.merge(rows, now)
                    mine = encode(Table(0, self.members.rows()))
                    self._output.responses.append((event.token, packet([mine])))
                case _:
                    self.malformed += 1

    def _answered(self, event: Response, now: float) -> None:
        why, number, *address = event.token.split()
        messages = (
            [] if event.payload is None else self._decoded(event.payload, self._settings.stream_bytes)
        )
        match why, messages:
            case "probe", [Ack()]:
                self._prober.streamed(int(number))
            case "join" | "push", [Table(_, rows)] if self.members.admits(rows):
                self.members.merge(rows, now)
                if why == "join":
                    self._output.changes.append(Change("reached", "", address[0]))
            case "join", _:
                self._output.changes.append(Change("unreached", "", address[0]))
            case _:
                pass

    def _decoded(self, payload: bytes, limit_bytes: int) -> list[Message]:
        try:
            return decode(payload, limit_bytes)
        except Malformed:
            self.malformed += 1
            return []

    def _send(self, address: str, messages: list[Message]) -> None:
        """A packet with these, and as much news as it has room for; none when there is neither."""
        encoded = [encode(each) for each in messages]
        room = self._settings.packet_bytes - 2 - sum(len(each) + 1 for each in encoded)
        encoded += self._gossip.take(room, self._settings.transmits(len(self.members)))
        if encoded:
            self._output.datagrams.append((address, packet(encoded)))

    def _ask(self, address: str, payload: bytes, token: str, seconds: float) -> None:
        self._output.requests.append((address, payload, token, seconds))
