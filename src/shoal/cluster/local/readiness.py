"""Readiness probes of a node's tasks: a command beside the task, a TCP connection, or an HTTP request.

A probe begins when its task runs and is repeated every period. One success makes the task ready, so many
failures in a row as the probe allows take that back. Nothing is recorded: an agent that starts anew
probes anew. Connections are made in helper threads, commands are children of the agent (`execs`).
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Callable

from shoal.cluster.local.execs import Execs
from shoal.cluster.local.ledger import Record
from shoal.cluster.local.node import HOST, Node
from shoal.objects.task import Probe, TaskKey

__all__ = ["Readiness"]

_STATUS_LINE_BYTES = 64


class Readiness:
    """Probes the tasks of a node. Belongs to the loop's thread."""

    def __init__(self, node: Node, execs: Execs) -> None:
        self._node = node
        self._execs = execs
        self._failures: dict[TaskKey, int] = {}
        """In a row, by task that is probed."""
        node.on_started = self.begin

    def begin(self, record: Record) -> None:
        """Probe the task from now on, if it has a probe; idempotent."""
        if record.spec.readiness is not None and record.key not in self._failures:
            self._failures[record.key] = 0
            self._node.loop.soon(functools.partial(self._probe, record.key))

    def _probe(self, key: TaskKey) -> None:
        record = self._node.ledger.tasks.get(key)
        if record is None or record.phase != "Running" or record.spec.readiness is None:
            self._failures.pop(key, None)
            return
        probe, done = record.spec.readiness, functools.partial(self._found, key)
        if probe.command:
            self._execs.probe(key, probe.command, probe.timeout_seconds, done)
            return
        name, _, path = (probe.http or probe.tcp).partition("/")
        port = record.progress.endpoint.ports.get(name, 0)

        def job() -> Callable[[], None]:
            return functools.partial(done, _answers(probe, port, f"/{path}"))

        self._node.loop.work(job)

    def _found(self, key: TaskKey, success: bool) -> None:
        record = self._node.ledger.tasks.get(key)
        if record is None or record.phase != "Running" or record.spec.readiness is None:
            self._failures.pop(key, None)
            return
        probe = record.spec.readiness
        self._failures[key] = 0 if success else self._failures.get(key, 0) + 1
        before = key in self._node.ready
        ready = success or (before and self._failures[key] < probe.failures)
        if ready != before:
            (self._node.ready.add if ready else self._node.ready.discard)(key)
            self._node.turn.changed(key)
        self._node.loop.later(probe.period_seconds, functools.partial(self._probe, key))


def _answers(probe: Probe, port: int, path: str) -> bool:
    """True when the port accepts a connection and, where HTTP is asked for, answers 200 to 399."""
    with contextlib.suppress(OSError, ValueError):
        with socket.create_connection((HOST, port), probe.timeout_seconds) as connection:
            if not probe.http:
                return True
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
            line = connection.recv(_STATUS_LINE_BYTES)
        return 200 <= int(line.split()[1]) < 400 if line.startswith(b"HTTP/") else False
    return False
