"""What a parser must refuse (training-C7), what a node does about it, and what a seal is worth."""

from __future__ import annotations

import json
import random
import zlib

import pytest

from shoal.elastic.detect.swim.messages import (
    Ack,
    Alive,
    Dead,
    IndirectPing,
    Malformed,
    Message,
    Nack,
    Ping,
    Row,
    Suspect,
    Table,
    decode,
    encode,
    packet,
)
from shoal.elastic.detect.swim.node import Datagram, Join, Node, Request, Response, Tick
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import SEAL_BYTES, Keys

ALL: list[Message] = [
    Ping(1, "a"),
    IndirectPing(2, "a", "h:1", 1),
    Ack(3),
    Nack(4),
    Alive(5, "a", "h:1"),
    Suspect(6, "a", "b"),
    Dead(7, "a", "b"),
    Table(1, (Row("a", "h:1", 1, "alive"), Row("b", "h:2", 2, "left"))),
]

BAD: dict[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "a null message": b"[null]",
    "no messages": b"[]",
    "an object": b"{}",
    "not JSON": b"\xff\x00\x80",
    "cut off": b'[["ping",1,',
    "of no known type": b'[["pong",1]]',
    "of a type that is no text": b"[[[],1]]",
    "too few fields": b'[["ping",1]]',
    "too many fields": b'[["ack",1,2]]',
    "text for a number": b'[["ack","1"]]',
    "true for a number": b'[["ack",true]]',
    "a fraction": b'[["ack",1.5]]',
    "a negative number": b'[["alive",-1,"a","h:1"]]',
    "a huge number": b'[["alive",' + b"9" * 30 + b',"a","h:1"]]',
    "an empty name": b'[["alive",1,"","h:1"]]',
    "a long name": b'[["alive",1,"' + b"a" * 129 + b'","h:1"]]',
    "null for a name": b'[["suspect",1,null,"b"]]',
    "a table without rows": b'[["table",1,null]]',
    "a row that is none": b'[["table",1,[null]]]',
    "a state that is none": b'[["table",1,[["a","h:1",1,"undead"]]]]',
    "nested": b"[" * 1300,
    "compressed": zlib.compress(json.dumps([["ack", 1]] * 100_000).encode()),
    "oversized": packet([encode(Ack(1))] * 1000),
}


@pytest.mark.parametrize("message", ALL, ids=lambda each: type(each).__name__)
def test_what_is_said_is_what_is_heard(message: Message) -> None:
    assert decode(packet([encode(message), encode(Ack(9))]), 1400) == [message, Ack(9)]


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_what_no_member_says_is_refused(data: bytes) -> None:
    """training-C7: oversized, a compressed bomb, nil messages and all their kin."""
    with pytest.raises(Malformed):
        decode(data, 1400)


@pytest.mark.parametrize("data", [*BAD.values(), encode(ALL[-1])], ids=[*BAD.keys(), "unframed"])
def test_a_node_survives_it(data: bytes) -> None:
    """training-C7: the packet is dropped and counted, and the node answers the next ping."""
    node = Node("me", "10.0.0.1:1", 0.0, settings=Settings(), randomness=random.Random(1))
    node.step(Datagram("10.0.0.2:1", data), 0.0)
    assert not node.step(Request(data, "r"), 0.0).responses or len(data) > 1400
    output = node.step(Datagram("10.0.0.2:1", packet([encode(Ping(7, "me"))])), 0.0)
    assert node.malformed >= 1
    assert [address for address, _ in output.datagrams] == ["10.0.0.2:1"]
    assert Ack(7) in decode(output.datagrams[0][1], 1400)


@pytest.mark.slow
def test_random_bytes_never_raise() -> None:
    """training-C7: 3000 mutations of true packets, into a node that goes on."""
    seed = 11
    print(f"seed {seed}")
    randomness = random.Random(seed)
    node = Node("me", "10.0.0.1:1", 0.0, settings=Settings(), randomness=random.Random(1))
    for _ in range(3000):
        data = bytearray(packet(encode(each) for each in randomness.sample(ALL, 3)))
        for _ in range(randomness.randint(1, 4)):
            data[randomness.randrange(len(data))] = randomness.randrange(256)
        node.step(Datagram("10.0.0.2:1", bytes(data)), 0.0)
        node.step(Request(bytes(data), "r"), 0.0)
        node.step(Response(bytes(data), "probe 1"), 0.0)
    node.step(Tick(), 0.0)
    assert node.malformed > 1000


def test_a_full_packet_stays_below_the_limit() -> None:
    """News goes along as far as it has room, and what has none goes with the next."""
    settings = Settings(packet_bytes=300)
    node = Node("me", "10.0.0.1:1", 0.0, settings=settings, randomness=random.Random(1))
    for at in range(40):
        node.step(
            Datagram("10.0.0.2:1", packet([encode(Alive(1, f"member-{at}", f"10.0.1.{at}:7946"))])), 0.0
        )
    told: set[str] = set()
    for at in range(1, 200):
        for _, payload in node.step(Tick(), at / 10).datagrams:
            assert len(payload) <= 300
            told |= {each.name for each in decode(payload, 300) if isinstance(each, Alive)}
    assert told == {"me"} | {f"member-{at}" for at in range(40)}


def test_a_name_that_fits_no_message_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="longer than a message may hold"):
        Node("a" * 129, "h:1", 0.0, settings=Settings(), randomness=random.Random(1))


def test_a_ping_for_another_is_not_answered() -> None:
    """Who has the address of a dead member does not speak for it."""
    node = Node("me", "10.0.0.1:1", 0.0, settings=Settings(), randomness=random.Random(1))
    assert not node.step(Datagram("10.0.0.2:1", packet([encode(Ping(1, "you"))])), 0.0).datagrams
    assert not node.step(Request(packet([encode(Ping(1, "you"))]), "r"), 0.0).responses


def test_the_table_goes_along_with_a_join() -> None:
    node = Node("me", "10.0.0.1:1", 0.0, settings=Settings(), randomness=random.Random(1))
    ((address, payload, _, seconds),) = node.step(Join(("10.0.0.2:1",)), 0.0).requests
    assert (address, seconds) == ("10.0.0.2:1", Settings().stream_timeout)
    assert decode(payload, 1400) == [Table(1, (Row("me", "10.0.0.1:1", 1, "alive"),))]


def test_only_the_key_opens_what_it_seals() -> None:
    payload = packet([encode(Ack(1))])
    sealed = Keys("key").seal(payload)
    assert len(sealed) == len(payload) + SEAL_BYTES
    assert Keys("key").open(sealed) == payload
    assert Keys("new", "key").open(sealed) == payload
    assert Keys("other").open(sealed) is None
    assert Keys("key").open(sealed[:-1]) is None
    assert Keys("key").open(b"") is None
    for at in range(len(sealed)):
        assert Keys("key").open(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]) is None
