from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.objects.errors import Invalid, Unavailable
from shoal.server import listeners, serving
from shoal.server.listeners import Listener, Listeners, listen_tcp
from tests.server.harness import LiveServer, a_job, eventually
from tests.server.raw import Raw


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen_tcp("127.0.0.1:0") as sock:
        yield sock


def test_one_task_cannot_take_its_neighbours_places(listener: socket.socket) -> None:
    each = Listener("tasks", listener)
    taken = sum(each.enter("pid:[1]") for _ in range(1000))
    assert 0 < taken < 1000
    assert each.enter("pid:[2]")
    each.leave("pid:[1]")
    assert each.enter("pid:[1]")


def test_a_listener_has_an_end(listener: socket.socket) -> None:
    each = Listener("tcp", listener)
    entered = sum(each.enter("") for _ in range(100_000))
    assert entered < 100_000
    each.leave("")
    assert each.enter("")
    assert not each.enter("")


def test_a_connection_knows_its_listener(tmp_path: Path, listener: socket.socket) -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        both = Listeners([Listener("api", unix), Listener("tcp", listener)])
        for wanted, address in (("api", unix), ("tcp", listener)):
            with socket.socket(address.family) as client:
                client.connect(address.getsockname())
                connection, _ = address.accept()
                with connection:
                    assert both.of(connection).name == wanted


def test_a_connection_that_nobody_knows_is_a_strangers(listener: socket.socket) -> None:
    """TCP is the listener that trusts nobody."""
    only = Listeners([Listener("tcp", listener)])
    here, there = socket.socketpair()
    with here, there:
        assert only.of(here).name == "tcp"


@pytest.mark.parametrize(
    "text", ["", "7450", "127.0.0.1", "127.0.0.1:", ":x", "127.0.0.1:http", "127.0.0.1:99999"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="is not an address"):
        listen_tcp(text)


def test_a_port_in_use_is_named(listener: socket.socket) -> None:
    host, port = listener.getsockname()
    with pytest.raises(Unavailable, match="nothing can listen"):
        listen_tcp(f"{host}:{port}")


def test_a_full_listener_closes_and_opens_again(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listeners._WIDTH, "tasks", 3)
    with ExitStack() as held:
        for _ in range(3):
            raw = held.enter_context(Raw(server.home.tasks_socket))
            raw.send("GET /healthz HTTP/1.1")
            assert raw.answer()[0] == 200
        with Raw(server.home.tasks_socket) as late:
            assert late.until_closed() == b""
        with server.client() as owner:  # nobody else is hurt
            owner.create(a_job())

    def free() -> bool:
        with Raw(server.home.tasks_socket) as raw:
            try:
                raw.send("GET /healthz HTTP/1.1")
                return raw.answer()[0] == 200
            except OSError:
                return False

    eventually(free)


def test_who_says_nothing_is_sent_away(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_REQUEST_SECONDS", 0.05)
    with Raw(server.home.tasks_socket) as raw:
        raw.socket.sendall(b"GET /heal")
        assert raw.until_closed() == b""
    with Raw(server.home.tasks_socket) as raw:
        raw.send("GET /healthz HTTP/1.1")
        assert raw.answer()[0] == 200
