"""Real processes that start in milliseconds: forked from a server that has imported torch.

`ForkedJob` is an `ElasticJob` whose coordinator and workers are such processes. A test that needs a
fresh interpreter (another launcher, a process of its own namespace) uses `ElasticJob`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.testing.elastic import ElasticJob

__all__ = ["Child", "ForkServer", "ForkedJob", "close", "output", "server"]

_MAIN = Path(__file__).parent / "forked_main.py"
_SECONDS = 60.0


class Child:
    """One process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._handle = os.pidfd_open(pid)
        self._status: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._status is None and self.pid in self._server.ended:
            self._status = self._server.ended.pop(self.pid)  # process ids are used again
            os.close(self._handle)
        return self._status

    def poll(self) -> int | None:
        self._server.pump(0.0)
        return self.returncode

    def wait(self, timeout: float = _SECONDS) -> int:
        """
        Raises:
            subprocess.TimeoutExpired: it does not end in that time.
        """
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            left = deadline - time.monotonic()
            if left <= 0.0:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._server.pump(left)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """See the module. Not thread-safe."""

    def __init__(self) -> None:
        self.ended: dict[int, int] = {}
        self._buffer = b""
        self._answers: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_MAIN)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._answer("ready")

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        network: str | None = None,
    ) -> Child:
        """A Python program (a file, or `-m` and a module) with its arguments; `network`: the file of its
        network namespace."""
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "network": network,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Child(self, self._answer("started"))

    def pump(self, timeout_seconds: float) -> None:
        """Read the server's answers, for at most so long."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        if not select.select([handle], [], [], timeout_seconds)[0]:
            return
        chunk = os.read(handle, 1 << 16)
        if not chunk:
            raise RuntimeError(f"the fork server has ended with {self._process.wait(10.0)}")
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if "ended" in answer:
                self.ended[answer["ended"]] = answer["status"]
            else:
                self._answers.append(answer)

    def close(self) -> None:
        """End it, and every child that is left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._process.stdout.close()

    def _answer(self, kind: str) -> int:
        deadline = time.monotonic() + _SECONDS
        while not self._answers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the fork server did not answer {kind!r}")
            self.pump(1.0)
        return int(self._answers.pop(0)[kind])


_servers: list[ForkServer] = []


def server() -> ForkServer:
    """The one of this run."""
    if not _servers:
        _servers.append(ForkServer())
    return _servers[0]


def close() -> None:
    """End the server of this run, if any test has started it."""
    while _servers:
        _servers.pop().close()


def output(folder: Path, arguments: Sequence[str], timeout_seconds: float = _SECONDS) -> list[str]:
    """What a program without a job (a worker alone) prints, line by line; it must succeed."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"alone-{time.monotonic_ns()}.log"
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    status = server().start(arguments, surroundings, log).wait(timeout_seconds)
    assert status == 0, log.read_text()[-3000:]
    return log.read_text().splitlines()


class ForkedJob(ElasticJob):
    """An `ElasticJob` of forked processes."""

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        network: str | None = None,
    ) -> Any:
        """As `ElasticJob.start`; `network`: the file of the worker's network namespace."""
        job = {"SHOAL_ELASTIC": str(self.folder), "SHOAL_ELASTIC_NAME": name}
        child = self._fork(name, command, job | dict(environment or {}), network)
        self.workers[name] = child
        return child

    def network(self, name: str) -> str | None:
        """The file of the network namespace of a worker, or of the `coordinator`."""
        return None

    def _spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        if command[0] == sys.executable:
            return self._fork(name, command[1:], environment)
        return super()._spawn(name, command, environment)

    def _fork(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        network: str | None = None,
    ) -> Any:
        surroundings = {**os.environ, "OMP_NUM_THREADS": "1", **self._environment, **environment}
        log = self.folder / f"{name}.log"
        log.touch()
        return server().start(command, surroundings, log, network or self.network(name))
