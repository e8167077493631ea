"""`shoal port-forward`: connections to ports of real tasks, in the machine's network and their own."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import threading
from collections.abc import Generator

import pytest

from shoal.objects.errors import Invalid, NotFound
from shoal.objects.job import Job
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, begin_cli, python, role
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

COUNT = """
import os, socket, threading
def serve(peer):
    with peer:
        size = 0
        while data := peer.recv(65536):
            size += len(data)
        peer.sendall(b"%d bytes" % size)
with socket.create_server(("127.0.0.1", int(os.environ["SHOAL_PORT_WEB"])), backlog=64) as server:
    with open(os.environ["SHOAL_OUTPUT"] + "/notes", "a") as file:
        print("listens", file=file)
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],)).start()
"""
"""Answers, once the other half is closed, with how much came."""


@contextlib.contextmanager
def forwarding(
    cluster: Standing, *words: str
) -> Generator[tuple[subprocess.Popen[bytes], int], None, None]:
    """The verb while it runs, and the local port that it says."""
    with begin_cli(cluster.home.path, "port-forward", *words) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert "->" in line, process.stderr and process.stderr.read()
            yield process, int(line.split()[0].rpartition(":")[2])
        except BaseException:
            process.kill()
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
            print(err.decode())
            raise
        finally:
            process.kill()


def ask(port: int, size: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        connection.sendall(b"x" * size)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(4096):
            answer += data
        return answer


def a_server(cluster: Standing, isolation: str) -> Job:
    serves = role(command=python(COUNT), ports=[{"name": "web", "port": 6006}])
    job = cluster.job(serves, isolation=isolation)
    found = cluster.until(job, lambda j: j.status.phase != "Pending" or bool(j.status.reason))
    if found.status.reason == "IsolationUnavailable":
        require("strict", "no job has a network of its own here")
    cluster.until_noted(job, "listens")
    return job


@pytest.mark.parametrize("isolation", ["default", "strict"])
def test_many_connections_each_closed_by_halves(cluster: Standing, isolation: str) -> None:
    job = a_server(cluster, isolation)
    with forwarding(cluster, f"job/{job.metadata.name}", ":web", ":6006") as (process, port):
        sizes = [number * 40_000 for number in range(8)]
        answers: dict[int, bytes] = {}
        asking = [
            threading.Thread(target=lambda size=size: answers.update({size: ask(port, size)}))
            for size in sizes
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(PATIENCE_SECONDS)
        assert answers == {size: b"%d bytes" % size for size in sizes}
        assert process.stdout is not None
        second = int(process.stdout.readline().decode().split()[0].rpartition(":")[2])
        assert ask(port, 5_000_000) == b"5000000 bytes", "more than a document may have"
        assert ask(second, 3) == b"3 bytes", "the number that the job asks for means that port too"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, err) == (0, b"")
    audited = cluster.client.audit(kind="job", namespace="default", name=job.metadata.name)
    assert "port-forward" in {entry.reason for entry in audited}


def test_where_nothing_listens_a_sentence_says_so(cluster: Standing) -> None:
    job = cluster.job(role("exec sleep 60"))
    cluster.running(job)
    name = job.metadata.name
    with forwarding(cluster, f"job/{name}", ":1") as (process, port):
        assert ask(port, 0) == b""
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        said = err.decode().splitlines()
    assert said[0] == f"nothing listens on port 1 of task 0 of job/{name} yet"
    assert said[1:] == [f"nothing listens on port 1 of task 0 of job/{name}"]
    with pytest.raises(Invalid, match="'web' is neither the number of a port nor one of worker's"):
        cluster.client.forward("default", name, "web")
    with pytest.raises(NotFound, match=r"worker 7 of job .* does not run now"):
        cluster.client.forward("default", name, 6006, index=7)
    refused = cluster.cli("port-forward", f"job/{name}", "x:y")
    assert "does not name a port" in refused.refused(2)
