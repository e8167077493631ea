from __future__ import annotations

import logging
import socket

import pytest

from shoal import __version__
from shoal.client import Client
from shoal.client.wire import MAX_BODY_BYTES
from shoal.objects.kinds import JOB
from tests.server.harness import LiveServer, a_job, eventually
from tests.server.raw import Raw, problem_in

JOBS = "/api/v1/namespaces/default/jobs"


def test_every_answer_says_the_version(server: LiveServer) -> None:
    with Raw(server.home.api_socket) as raw:
        for path, status in (("/healthz", 200), ("/nowhere", 404), (JOBS, 200)):
            raw.send(f"GET {path} HTTP/1.1")
            got, headers, _ = raw.answer()
            assert (got, headers["shoal-version"]) == (status, __version__)


def test_a_large_body_is_refused_before_it_is_read(server: LiveServer) -> None:
    with Raw(server.home.api_socket) as raw:
        raw.send(f"POST {JOBS} HTTP/1.1\nContent-Length: 10485760\nContent-Type: application/json")
        status, headers, body = raw.answer()  # though not a byte of it was sent
        assert status == 413
        assert headers["content-type"] == "application/problem+json"
        said = problem_in(body)
        assert said["code"] == "Invalid"
        assert said["message"] == "the request is too large: a document may have 2 MiB at most"


def test_a_client_that_sends_it_all_the_same_reads_why(server: LiveServer, client: Client) -> None:
    body = b"x" * (10 * 2**20)
    with Raw(server.home.api_socket) as raw:
        raw.send(f"POST {JOBS} HTTP/1.1\nContent-Length: {len(body)}", body)
        assert raw.answer()[0] == 413
    assert client.list(JOB).records == ()


def test_a_body_that_does_not_say_its_size_is_cut(server: LiveServer) -> None:
    with Raw(server.home.api_socket) as raw:
        raw.send(f"POST {JOBS} HTTP/1.1\nTransfer-Encoding: chunked")
        piece = b"x" * 65536
        for _ in range(MAX_BODY_BYTES // len(piece) + 2):
            raw.socket.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        raw.socket.sendall(b"0\r\n\r\n")
        assert raw.answer()[0] == 413


def test_the_limit_holds_whatever_the_body_says_it_is(server: LiveServer) -> None:
    with Raw(server.home.api_socket) as raw:
        raw.send(
            f"""POST {JOBS} HTTP/1.1
            Content-Type: application/vnd.shoal.frames
            Content-Length: {MAX_BODY_BYTES + 1}"""
        )
        assert raw.answer()[0] == 413


def test_what_is_no_http_hurts_nobody(server: LiveServer, client: Client) -> None:
    client.create(a_job())
    for nonsense in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\xff" * 100_000):
        with Raw(server.home.api_socket) as raw:
            raw.socket.sendall(nonsense)
            raw.socket.shutdown(socket.SHUT_WR)
            raw.until_closed()
    assert len(client.list(JOB).records) == 1


def test_a_failure_is_one_sentence_and_its_mark_is_logged(
    server: LiveServer, client: Client, caplog: object
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    server.store.record = fail  # type: ignore[method-assign]
    with Raw(server.home.api_socket) as raw:
        raw.send(f"GET {JOBS}/x HTTP/1.1")
        status, _, body = raw.answer()
    said = problem_in(body)
    assert (status, said["code"]) == (500, "Failure")
    assert b"secret" not in body
    mark = str(said["message"]).split("failure ")[1].rstrip(")")
    assert mark in caplog.text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", JOBS),
        ("PUT", f"{JOBS}/x"),
        ("PATCH", f"{JOBS}/x/status"),
        ("PUT", "/api/v1/leases/x"),
    ],
)
def test_half_a_body_and_undecodable_bytes_leave_no_traceback(
    server: LiveServer, client: Client, method: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "shoal.server"):
        with Raw(server.home.api_socket) as raw:
            raw.send(f"{method} {path} HTTP/1.1\nContent-Length: 1000", b'{"a":')
        eventually(lambda: "the client left" in caplog.text)
        with Raw(server.home.api_socket) as raw:
            body = b'{"\xff\xfe": 1}'
            raw.send(f"{method} {path} HTTP/1.1\nContent-Length: {len(body)}", body)
            assert 400 <= raw.answer()[0] < 500
    assert [
        record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR
    ] == []
    assert client.list(JOB).records == ()
