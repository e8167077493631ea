from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.objects.errors import Invalid, Unavailable
from shoal.server import listeners, serving
from shoal.server.listeners import Listener, Listeners, Seat, listen_tcp
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job, eventually
from tests.server.raw import Raw, problem_in

pytestmark = pytest.mark.slow


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen_tcp("127.0.0.1:0") as sock:
        yield sock


def test_no_number_of_holders_takes_all_places(listener: socket.socket) -> None:
    each = Listener("tasks", listener)

    def fill(origin: str) -> int:
        taken = 0
        while each.admits(origin):
            each.enter(origin)
            taken += 1
        return taken

    counts = [fill(f"job:{number}") for number in range(6)]
    assert counts[0] < listeners._WIDTH["tasks"] / 2
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 10
    assert each.admits("job:newcomer")
    each.leave("job:0")
    assert not each.admits("job:0")  # it has far more than its share now


def test_a_listener_has_an_end(listener: socket.socket) -> None:
    each = Listener("api", listener)
    entered = 0
    while each.admits(""):
        each.enter("")
        entered += 1
    assert entered == listeners._WIDTH["api"]
    each.leave("")
    assert each.admits("")


def test_a_token_counts_for_its_job_wherever_it_is_shown(listener: socket.socket) -> None:
    each = Listener("tasks", listener)
    seats: list[Seat] = []
    for number in range(4 * listeners._WIDTH["tasks"]):
        if not each.admits(f"job:{number % 100}"):
            break
        seats.append(Seat(each, f"job:{number % 100}"))
        if not seats[-1].identify("job:team-a/greedy"):
            break
    assert len(seats) < listeners._WIDTH["tasks"] / 2
    assert seats[-1].identify("job:team-b/other")
    assert not seats[-1].identify("job:team-a/greedy")
    for seat in seats:
        seat.leave()
    assert each.bound() == listeners._WIDTH["tasks"] // 2
    assert not each._identities


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


def test_a_full_listener_says_so_and_opens_again(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listeners._WIDTH, "tasks", 4)
    with ExitStack() as held:
        for _ in range(2):
            raw = held.enter_context(Raw(server.home.tasks_socket))
            raw.send("GET /healthz HTTP/1.1")
            assert raw.answer()[0] == 200
        with Raw(server.home.tasks_socket) as late:
            late.send("GET /healthz HTTP/1.1")
            status, headers, body = late.answer()
            assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
            assert "too many connections" in str(problem_in(body)["message"])
        with server.client() as owner:  # the owner's listener is another
            owner.create(a_job())

    def free() -> bool:
        with Raw(server.home.tasks_socket) as raw:
            raw.send("GET /healthz HTTP/1.1")
            return raw.answer()[0] == 200

    eventually(free)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_HEAD_SECONDS", 0.3)
    monkeypatch.setattr(serving, "_BODY_SECONDS", 0.3)
    monkeypatch.setattr(serving, "_REST_SECONDS", 0.3)


def _trickle(raw: Raw, pieces: bytes) -> bytes:
    """The server's answer to a client that sends a byte now and then until it is cut off."""
    raw.socket.settimeout(0.05)
    seen = b""
    for at in itertools.count():
        try:
            raw.socket.sendall(pieces[at % len(pieces) :][:1])
        except OSError:
            return seen
        try:
            piece = raw.socket.recv(65536)
        except TimeoutError:
            assert at < 400, "the server waits for ever"
            continue
        except ConnectionResetError:
            return seen
        if not piece:
            return seen
        seen += piece
    raise AssertionError("unreachable")


@pytest.mark.usefixtures("hurried")
def test_a_connection_that_says_nothing_is_closed(server: LiveServer) -> None:
    with Raw(server.home.tasks_socket) as raw:
        assert raw.until_closed() == b""
    with Raw(server.home.tasks_socket) as raw:
        raw.send("GET /healthz HTTP/1.1")
        assert raw.answer()[0] == 200


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize("listener", ["api", "tasks"])
def test_half_a_head_is_timed_out(server: LiveServer, reused: bool, listener: str) -> None:
    """On a connection that has answered before as well: there any byte ended the wait of keep-alive."""
    path = server.home.api_socket if listener == "api" else server.home.tasks_socket
    with Raw(path) as raw:
        if reused:
            raw.send("GET /healthz HTTP/1.1")
            assert raw.answer()[0] == 200
        raw.socket.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        seen = _trickle(raw, b"a")
        assert b"408" in seen.split(b"\r\n")[0]
        assert b"the head of the request did not come within 0.3 s" in seen


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize(
    "route",
    ["POST /api/v1/namespaces/default/jobs", "POST /api/v1/namespaces/default/jobs/x/exec"],
)
def test_half_a_body_is_timed_out(server: LiveServer, route: str, sized: bool) -> None:
    kind = "Content-Length: 100000" if sized else "Transfer-Encoding: chunked"
    with Raw(server.home.api_socket) as raw:
        raw.send(f"{route} HTTP/1.1\n{kind}", b"" if sized else b"100\r\n")
        seen = _trickle(raw, b"C\0\0\2\0" + b" " * 500)  # the beginning of a frame, where it is one
        assert b"408" in seen.split(b"\r\n")[0]
        assert b"the body of the request did not come within 0.3 s" in seen
    assert "Traceback" not in seen.decode()


def test_the_rest_of_an_answered_request_is_timed_out(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_REST_SECONDS", 0.3)
    with Raw(server.home.tasks_socket) as raw:
        raw.send("POST /api/v1/namespaces/default/jobs HTTP/1.1\nContent-Length: 100000")
        assert raw.answer()[0] == 401
        assert _trickle(raw, b" ") == b""


@pytest.mark.usefixtures("hurried")
def test_an_answer_that_takes_longer_than_its_request_may_is_not_cut_off(server: LiveServer) -> None:
    with Raw(server.home.api_socket) as raw:
        raw.send("GET /api/v1/jobs?watch=1 HTTP/1.1")
        raw.until(b"Bookmark")
        time.sleep(0.7)
        server.store.create(a_job("late"), actor=SYSTEM)
        raw.until(b"late")


def test_a_job_that_holds_many_connections_leaves_room_for_others(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are processes of this test, so it is the tokens that tell them apart."""
    monkeypatch.setitem(listeners._WIDTH, "tasks", 30)
    monkeypatch.setattr(serving, "_origin", lambda *_: f"job:{next(numbers)}")
    numbers = itertools.count()
    for name in ("greedy", "modest"):
        server.store.create(a_job(name), actor=SYSTEM)

    def ask(raw: Raw, name: str) -> int:
        raw.send(
            f"GET /api/v1/namespaces/default/jobs/{name} HTTP/1.1\n"
            f"Authorization: Bearer {server.token_of('default', name)}"
        )
        status, headers, body = raw.answer()
        if status == 429:
            assert headers["retry-after"] == "1"
            assert problem_in(body)["message"] == (
                "job default/greedy has too many connections to this server"
            )
        return status

    with ExitStack() as held:
        answers = [ask(held.enter_context(Raw(server.home.tasks_socket)), "greedy") for _ in range(20)]
        assert answers.count(429) >= 8
        modest = held.enter_context(Raw(server.home.tasks_socket))
        assert ask(modest, "modest") == 200


def test_an_address_that_shakes_no_hand_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(listeners._WIDTH, "tcp", 20)
    server = LiveServer(tmp_path / "home", tcp=True)
    try:
        with ExitStack() as held:
            address = ("127.0.0.1", server.port)
            silent = [held.enter_context(socket.create_connection(address)) for _ in range(80)]
            eventually(lambda: sum(_closed(each) for each in silent) >= 80 - 20 // 2 - 32)
            assert not _closed(silent[0])
    finally:
        server.close()


def _closed(sock: socket.socket) -> bool:
    sock.settimeout(0.001)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
