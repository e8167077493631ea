"""The connection that comes back by itself, on sockets of loopback and with the time told to it."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Iterator

import pytest

from shoal.elastic.detect.detector import Star
from shoal.elastic.detect.uplink import Uplink
from shoal.elastic.wire import Connection, Message


class Line:
    """An uplink, where it looks for its coordinator, and what it was told."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.looked = self.opened = 0
        self.heard: list[Message] = []
        self.uplink = Uplink(self._find, self._open, self.heard.append)

    def turn(self, now: float, wait_ms: int = 2000) -> None:
        """One turn, after waiting for the connection if there is one."""
        events = 0
        if self.uplink.descriptor is not None:
            poll = select.poll()
            poll.register(self.uplink.descriptor, self.uplink.interest)
            events = dict(poll.poll(wait_ms)).get(self.uplink.descriptor, 0)
        self.uplink.turn(now, events)

    def _find(self) -> str | None:
        self.looked += 1
        return self.address

    def _open(self) -> None:
        self.opened += 1


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.uplink.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.settimeout(5.0)
        yield sock


def _address(listening: socket.socket) -> str:
    return f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("address", [None, "nonsense", "127.0.0.1:1", "256.0.0.1:1", "[::1"])
def test_it_is_looked_for_at_a_bounded_rate(line: Line, address: str | None) -> None:
    """Unknown, no address, nobody there: anew after 20, 50, 100, then every 200 ms."""
    line.address = address
    now = 0.0
    while now < 2.0:
        line.turn(now)
        assert line.uplink.next_at is not None
        now = max(now + 0.001, line.uplink.next_at if line.uplink.descriptor is None else now)
    assert 8 <= line.looked <= 14
    assert not line.opened
    assert not line.uplink.connected


@pytest.fixture
def swallowing() -> Iterator[socket.socket]:
    """Listens, and its queue is full: what else would connect is neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            before = stack.enter_context(socket.socket())
            before.setblocking(False)
            assert before.connect_ex(listening.getsockname()) in (0, errno.EINPROGRESS)
        yield listening


def test_a_connection_that_nobody_completes_is_given_up(line: Line, swallowing: socket.socket) -> None:
    """A machine that swallows packets: after a second, looked for elsewhere."""
    line.address = _address(swallowing)
    line.turn(0.0)
    line.turn(0.5, wait_ms=0)
    assert line.uplink.descriptor is not None
    assert not line.uplink.connected
    line.turn(1.0, wait_ms=0)
    assert line.uplink.descriptor is None
    assert line.uplink.next_at is not None


def test_what_is_said_arrives_and_what_comes_is_heard(line: Line, listening: socket.socket) -> None:
    line.address = _address(listening)
    line.turn(0.0)
    line.turn(0.0)
    assert line.opened == 1
    assert line.uplink.host == "127.0.0.1"
    theirs = Connection(listening.accept()[0])
    line.uplink.send({"type": "one"})
    assert theirs.receive() == {"type": "one"}
    theirs.send({"type": "two"})
    theirs.send({"type": "three"})
    line.turn(0.1)
    assert [each["type"] for each in line.heard] == ["two", "three"]
    line.uplink.finish()
    theirs.close()
    line.turn(0.2)
    assert not line.uplink.connected
    assert not line.uplink.broken


def test_a_coordinator_that_died_with_words_unread_is_told_apart(
    line: Line, listening: socket.socket
) -> None:
    """Its kernel resets the connection: what was said last was not read, and is to be said again."""
    line.address = _address(listening)
    line.turn(0.0)
    line.turn(0.0)
    theirs, _ = listening.accept()
    line.uplink.send({"type": "gone"})
    line.uplink.finish()
    assert select.select([theirs], [], [], 5.0)[0]
    theirs.close()
    line.turn(0.1)
    assert not line.uplink.connected
    assert line.uplink.broken


@pytest.mark.slow
def test_who_does_not_listen_misses_beats_but_no_evidence(line: Line, listening: socket.socket) -> None:
    """The backlog is bounded; what cannot be said later is kept."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.address = _address(listening)
    line.turn(0.0)
    line.turn(0.0)
    theirs = Connection(listening.accept()[0])
    deadline = time.monotonic() + 20.0
    padding = "x" * 8000
    while line.uplink.drained:
        assert time.monotonic() < deadline
        line.uplink.send({"type": "beat", "padding": padding})
    for _ in range(50):
        line.uplink.send({"type": "beat", "padding": padding})
    line.uplink.send({"type": "gone"})
    theirs.socket.settimeout(5.0)
    kinds: list[str] = []
    while "gone" not in kinds:
        assert time.monotonic() < deadline
        line.turn(0.1, wait_ms=0)
        if select.select([theirs.socket], [], [], 0.0)[0]:
            kinds.append(theirs.receive()["type"])
    theirs.close()
    print(f"{len(kinds)} frames")


def test_beats_come_in_time_say_how_late_they_are_and_are_not_made_up_for() -> None:
    star = Star(0.1, 5.0)
    assert star.turn(5.0) == [{"type": "beat", "seq": 1, "late_seconds": 0.0}]
    assert star.turn(5.05) == []
    assert star.turn(5.12) == [{"type": "beat", "seq": 2, "late_seconds": 0.02}]
    assert star.next_at == pytest.approx(5.2)
    assert star.turn(7.2) == [{"type": "beat", "seq": 3, "late_seconds": 2.0}]
    assert star.turn(7.25) == []
