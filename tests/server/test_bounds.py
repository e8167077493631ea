"""What a single request can cost, and bytes that are no text."""

from __future__ import annotations

import http.client
import time

import msgspec
import pytest

from shoal.cluster.local import home as homes
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job

JOBS = "/api/v1/namespaces/default/jobs"


def ask(server: LiveServer, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """The status and the one sentence of an answer."""
    connection = http.client.HTTPConnection("shoal", timeout=60)
    connection.sock = homes.connect(server.home.api_socket, 60.0)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read()).get("message", "")
    finally:
        connection.close()


def job_with(spec: bytes) -> bytes:
    return b'{"kind":"Job","metadata":{"name":"x"},"spec":{' + spec + b"}}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (b'"roles":[{}' + b",{}" * 599_999 + b"]", "at most 100000 values"),
        (b'"roles":[{}' + b",{}" * 50_000 + b"]", "roles: has at most 1000 entries; found 50001"),
        (b'"roles":[{"ports":[{}' + b",{}" * 900 + b"]}]", "problems"),
        (b'"roles":[{"args":[1' + b",1" * 60_000 + b"]}]", "problems"),
        (b",".join(b'"a%d":1' % number for number in range(60_000)), "problems"),
    ],
)
def test_a_document_of_very_many_values_is_refused_at_little_cost(
    server: LiveServer, spec: bytes, says: str
) -> None:
    """600,000 empty roles took 22 s of CPU and 800 MiB."""
    begun = time.process_time()
    status, message = ask(server, "POST", JOBS, job_with(spec))
    assert (status, says in message) == (422, True), message
    assert time.process_time() - begun < 2.0


def test_a_long_selector_is_refused(server: LiveServer) -> None:
    terms = ",".join(f"k{number}" for number in range(3000))
    status, message = ask(server, "GET", f"{JOBS}?labelSelector={terms}")
    assert (status, message) == (422, "a selector has at most 100 requirements; found 3000")
    values = ",".join(f"v{number}" for number in range(3000))
    status, message = ask(server, "GET", f"{JOBS}?labelSelector=k%20in%20({values})")
    assert (status, message) == (422, "a selector names at most 1000 values; found 3000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", JOBS),
        ("PUT", f"{JOBS}/x"),
        ("PATCH", f"{JOBS}/x/status"),
    ],
)
@pytest.mark.parametrize("body", [b'{"name":"x\xff"}', b"\xff", b"[" * 100_000, b"{"])
def test_a_body_that_is_no_text_or_no_json_is_refused(
    server: LiveServer, method: str, path: str, body: bytes
) -> None:
    server.store.create(a_job("x"), actor=SYSTEM)
    status, message = ask(server, method, path, body)
    assert status == 422, (status, message)
    assert any(words in message for words in ("not UTF-8", "not JSON", "not valid", "too deeply"))
