"""Members on real sockets of loopback."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from shoal.elastic.detect.swim.members import Change
from shoal.elastic.detect.swim.messages import Ack, Ping, decode, encode, packet
from shoal.elastic.detect.swim.runner import Runner
from shoal.elastic.detect.swim.settings import Settings
from shoal.elastic.detect.swim.transport import Keys
from tests.elastic.detect.harness import wait_until
from tests.elastic.machine import Baseline

pytestmark = [pytest.mark.slow]

QUICK = Settings(probe_interval=0.02, probe_timeout=0.01, gossip_interval=0.02, push_pull_interval=0.2)


class Member:
    """A runner on a thread of its own, and what it has learned."""

    def __init__(self, name: str, settings: Settings, key: str = "k") -> None:
        self.changes: list[Change] = []
        self.runner = Runner(
            name, "127.0.0.1", Keys(key), settings, random.Random(name), self.changes.append
        )  # fmt: skip
        self.address = self.runner.address
        self._stop = threading.Event()
        self._seeds: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._run)

    def start(self, *seeds: str) -> None:
        self._seeds = seeds
        self._thread.start()

    def kinds(self, name: str) -> list[str]:
        return [each.kind for each in list(self.changes) if each.name == name]

    def stop_turning(self) -> None:
        """Its thread ends; its sockets stay."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """End without a word, as by SIGKILL."""
        self.stop_turning()
        self.runner.close()

    def _run(self) -> None:
        if self._seeds:
            self.runner.join(self._seeds)
        self.runner.run(self._stop)


@pytest.fixture
def members() -> Iterator[list[Member]]:
    found: list[Member] = []
    yield found
    for member in found:
        member.stop()


def test_sixteen_members_on_loopback(members: list[Member], baseline: Baseline) -> None:
    """training-C6: 16 members, probe and gossip 20 ms, push/pull 200 ms: all see 16 within 250 ms.

    All of them are threads of this one process, so a busy machine is given longer before it is an error;
    the virtual network holds them to the 250 ms.
    """
    members += [Member(f"m{at}", QUICK) for at in range(16)]
    began = time.monotonic()
    for member in members:
        member.start(*([] if member is members[0] else [members[0].address]))
    wait_until(lambda: all(len(each.runner.node.members) == 16 for each in members), "not all see all")
    took = time.monotonic() - began
    print(f"all see all after {took * 1000:.0f} ms")
    assert took < baseline.allow(2.5)
    sent, at = sum(each.runner.transport.sent for each in members), time.monotonic()
    time.sleep(0.5)  # a rate is measured
    rate = (sum(each.runner.transport.sent for each in members) - sent) / (time.monotonic() - at) / 16
    print(f"{rate:.0f} datagrams a second and member")


def test_who_vanishes_is_dead_and_who_leaves_has_left(members: list[Member]) -> None:
    settings = Settings(probe_interval=0.05, probe_timeout=0.025, gossip_interval=0.02)
    members += [Member(f"m{at}", settings) for at in range(5)]
    for member in members:
        member.start(*([] if member is members[0] else [members[0].address]))
    wait_until(lambda: all(len(each.runner.node.members) == 5 for each in members), "not all see all")
    gone, leaver, *rest = members
    began = time.monotonic()
    gone.stop()
    members.remove(gone)
    wait_until(lambda: all("dead" in each.kinds("m0") for each in rest), "m0 is not dead")
    print(f"dead everywhere after {time.monotonic() - began:.2f} s")
    leaver.stop_turning()
    leaver.runner.leave()
    deadline = time.monotonic() + 2.0
    while not leaver.runner.left and time.monotonic() < deadline:
        leaver.runner.turn(deadline)
    wait_until(lambda: all("left" in each.kinds("m1") for each in rest), "m1 has not left")
    assert not any("dead" in each.kinds("m1") for each in rest)


def test_a_stranger_with_another_key_is_not_heard(members: list[Member]) -> None:
    settings = Settings(probe_interval=0.05, probe_timeout=0.025, stream_timeout=0.5)
    members += [Member("m0", settings), Member("m1", settings, key="another")]
    members[0].start()
    members[1].start(members[0].address)
    wait_until(lambda: "unreached" in members[1].kinds(""), "the join did not fail")
    assert len(members[0].runner.node.members) == 1
    assert members[0].runner.transport.dropped == 1


def test_streams_that_say_nothing_or_too_much_are_closed(members: list[Member]) -> None:
    """training-C7: a frame of 2 GB, garbage, half a frame for ever; then a ping that is answered."""
    settings = Settings(stream_timeout=0.3)
    members.append(Member("m0", settings))
    members[0].start()
    where = ("127.0.0.1", int(members[0].address.rpartition(":")[2]))
    for data in (struct.pack(">I", 1 << 31), struct.pack(">I", 4) + b"abcd", b"\x00\x00"):
        with socket.create_connection(where, 5.0) as sock:
            sock.sendall(data)
            assert sock.recv(100) == b""
    keys = Keys("k")
    asked = keys.seal(packet([encode(Ping(5, "m0"))]))
    with socket.create_connection(where, 5.0) as sock:
        sock.sendall(struct.pack(">I", len(asked)) + asked)
        (length,) = struct.unpack(">I", sock.recv(4, socket.MSG_WAITALL))
        answer = keys.open(sock.recv(length, socket.MSG_WAITALL))
    assert answer is not None
    assert decode(answer, 1400) == [Ack(5)]
    for data in (b"", b"x" * 60_000, keys.seal(b"null"), keys.seal(b"[" * 1000)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(data, where)
    wait_until(lambda: members[0].runner.transport.dropped >= 4, "not all were dropped")
    wait_until(lambda: members[0].runner.node.malformed >= 2, "not all were counted")
