from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import __version__
from shoal.client import Client
from shoal.client.address import Address
from shoal.client.transport import Transport
from shoal.client.wire import MAX_BODY_BYTES
from shoal.objects.errors import Invalid, NotFound, Unavailable, VersionSkew
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.server.harness import LiveServer, a_job, eventually


class Script:
    """A server that says what the test says, one answer per connection; None hangs up."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.answers: list[bytes | None] = []
        self.requests = 0
        self.address = Address.parse(f"unix://{path}")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                if not connection.recv(65536):
                    continue
                self.requests += 1
                answer = self.answers.pop(0)
                if answer is not None:
                    connection.sendall(answer)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join(10)


def answer(body: bytes = b"{}", status: str = "200 OK", version: str = __version__) -> bytes:
    said = f"Shoal-Version: {version}\r\n" if version else ""
    head = f"HTTP/1.1 {status}\r\n{said}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    made = Script(tmp_path / "s")
    yield made
    made.close()


@pytest.mark.slow
def test_connections_are_kept_and_used_again(server: LiveServer, client: Client) -> None:
    for _ in range(10):
        client.list(JOB)
    assert server.serving.connections == 1


@pytest.mark.slow
def test_many_threads_may_use_one_client(server: LiveServer, client: Client) -> None:
    def work(number: int) -> None:
        for each in range(10):
            client.create(a_job(f"job-{number}-{each}"))
            client.get(Job, "default", f"job-{number}-{each}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(client.list(JOB).records) == 80
    eventually(lambda: server.serving.connections <= 4)


@pytest.mark.slow
def test_a_server_that_has_restarted_is_reached_again(server: LiveServer, client: Client) -> None:
    client.create(a_job())
    server.stop()
    server.start()
    client.suspend("default", "train")
    assert client.get(Job, "default", "train").spec.suspend


@pytest.mark.slow
def test_a_server_that_is_away_for_a_moment_is_waited_for(server: LiveServer, client: Client) -> None:
    client.list(JOB)
    server.stop()
    timer = threading.Timer(0.3, server.start)
    timer.start()
    client.create(a_job())
    timer.join()


def test_a_server_that_was_never_there_is_not_waited_for(tmp_path: Path) -> None:
    begun = time.monotonic()
    with Client.connect(tmp_path) as client, pytest.raises(Unavailable) as caught:
        client.list(JOB)
    assert time.monotonic() - begun < 2
    assert caught.value.hint == "start one with: shoal up"
    assert str(tmp_path) in caught.value.message


@pytest.mark.slow
def test_patience_ends(server: LiveServer) -> None:
    with server.client() as client:
        client.transport.patience_seconds = 0.1
        client.list(JOB)
        server.stop()
        with pytest.raises(Unavailable, match="no server answers"):
            client.list(JOB)
        server.start()


def test_what_may_have_happened_is_not_done_again(script: Script) -> None:
    transport = Transport(script.address)
    script.answers = [None]
    with pytest.raises(Unavailable, match="is not known"):
        transport.request("PUT", "/x", body=b"{}")
    assert script.requests == 1
    script.answers = [None, answer()]
    assert transport.request("PUT", "/x", body=b"{}", repeatable=True).status == 200
    script.answers = [None, None, answer()]
    assert transport.request("GET", "/x").status == 200
    assert script.requests == 6


@pytest.mark.parametrize(
    ("version", "words"), [("0.0.9", "shoal down && shoal up"), ("99.0.0", "shoal==99.0.0")]
)
def test_another_version_is_named_with_the_remedy(script: Script, version: str, words: str) -> None:
    for status, body in (("200 OK", b"{}"), ("500 Oh", b"")):
        script.answers = [answer(body, status, version)]
        with pytest.raises(VersionSkew) as caught:
            Transport(script.address).request("GET", "/x")
        assert version in caught.value.message
        assert __version__ in caught.value.message
        assert words in caught.value.hint
    script.answers = [answer(version=version)]
    assert Transport(script.address, check_version=False).request("GET", "/x").body == b"{}"


def test_a_patch_release_is_the_same_version(script: Script) -> None:
    major, minor, _ = __version__.split(".")
    script.answers = [answer(version=f"{major}.{minor}.999")]
    assert Transport(script.address).request("GET", "/x").status == 200


@pytest.mark.parametrize(
    "said",
    [
        answer(b"<html>welcome</html>", version=""),
        answer(b'{"code": "NotFound"}', "404 Not Found", version=""),
        answer(b"<html>", "502 Bad Gateway", version=""),
        answer(b"", "307 Temporary Redirect"),
        answer(b"not json", "500 Oh"),
    ],
)
def test_who_is_no_shoal_server_is_recognised(script: Script, said: bytes) -> None:
    script.answers = [said]
    with pytest.raises(Unavailable, match="no answer of a Shoal server"):
        Transport(script.address).request("GET", "/x")


def test_nonsense_is_no_answer(script: Script) -> None:
    script.answers = [b"\x00\x01\x02\r\n\r\n"]
    with pytest.raises(Unavailable):
        Transport(script.address, patience_seconds=0).request("GET", "/x")


def test_a_large_document_is_not_sent(client: Client) -> None:
    with pytest.raises(Invalid, match="2 MiB at most"):
        client.transport.request("POST", "/api/v1/jobs", body=b"x" * (MAX_BODY_BYTES + 1))


def test_an_error_in_a_stream_is_the_same_error(client: Client) -> None:
    with pytest.raises(NotFound):
        client.logs("default", "none")
    with pytest.raises(NotFound):
        client.exec("default", "none", ["true"])


def test_a_closed_client_opens_nothing_that_stays(server: LiveServer) -> None:
    client = server.client()
    client.list(JOB)
    client.close()
    client.close()
    client.list(JOB)
    eventually(lambda: server.serving.connections == 0)


def test_inside_a_task_the_platform_is_where_the_environment_says(
    server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    client.create(a_job("mine"))
    (tmp_path / "token").write_text(server.token_of("default", "mine") + "\n")
    monkeypatch.setenv("SHOAL_API", f"unix://{server.home.tasks_socket}")
    monkeypatch.setenv("SHOAL_TOKEN_FILE", str(tmp_path / "token"))
    with Client.connect() as task:
        assert task.get(Job, "default", "mine").metadata.name == "mine"
    monkeypatch.delenv("SHOAL_TOKEN_FILE")
    with Client.connect() as nobody, pytest.raises(Exception, match="for tasks"):
        nobody.list(JOB)
    with Client.connect(server.home.path) as owner:  # said, so not the environment's
        owner.list(JOB)
