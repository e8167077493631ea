"""What runs beside a task: commands of clients (`exec`), and readiness probes.

A command runs in the isolation of its task, as a child of the agent. A probe is a command, a TCP
connection or an HTTP request. It begins when its task runs and is repeated every period. One success
makes the task ready, so many failures in a row as the probe allows take that back. Nothing is recorded:
an agent that starts anew probes anew. Connections are made in helper threads.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal.cluster.local import isolation, processes
from shoal.cluster.local.ledger import Record
from shoal.cluster.local.node import HOST, Node
from shoal.cluster.local.protocol import Exec
from shoal.cluster.local.serving import Client
from shoal.objects.errors import NotFound, ShoalError
from shoal.objects.task import Probe, TaskKey

KILL_SECONDS = 2.0
_ENTER = str(Path(isolation.__file__).with_name("enter.py"))
_NOT_EXECUTABLE = 126
_STATUS_LINE_BYTES = 64


@dataclass(eq=False)
class _Running:
    task: TaskKey
    pid: int
    ticks: int
    pidfd: int


class Execs:
    """The commands that run beside tasks of a node. Belongs to the loop's thread."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._running: set[_Running] = set()

    def start(self, client: Client, call: int, request: Exec) -> None:
        """Run the command: answered once it has started, and once more, with its exit code, when it
        has ended."""
        descriptors = client.take_descriptors(3)
        try:
            running = self._spawn(request, descriptors)
        except ShoalError as error:
            client.fail(call, error)
            return
        except OSError as error:
            client.fail(call, ShoalError(f"the command cannot be run: {error}"))
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._running.add(running)
        self._node.exec_pids.add(running.pid)
        client.on_close.append(lambda: self._end(running))
        client.answer(call)

        def ended(_: int) -> None:
            client.answer(call, self._collect(running))

        self._node.loop.add(running.pidfd, selectors.EVENT_READ, ended)

    def probe(
        self,
        task: TaskKey,
        command: tuple[str, ...],
        timeout_seconds: float,
        done: Callable[[bool], None],
    ) -> None:
        """Run the command without streams; `done` is called once with whether it exits 0 in time."""
        null = os.open(os.devnull, os.O_RDWR)
        try:
            running = self._spawn(Exec(task=task, command=command), [null, null, null])
        except (ShoalError, OSError):  # the task is about to end
            done(False)
            return
        finally:
            os.close(null)
        self._running.add(running)
        self._node.exec_pids.add(running.pid)
        timer = self._node.loop.later(timeout_seconds, lambda: self._kill(running))

        def ended(_: int) -> None:
            timer.cancel()
            done(self._collect(running) == 0)

        self._node.loop.add(running.pidfd, selectors.EVENT_READ, ended)

    def _spawn(self, request: Exec, descriptors: list[int]) -> _Running:
        monitor = self._node.monitors.get(request.task)
        if monitor is None or monitor.started is None or not monitor.pid:
            raise NotFound(f"task {request.task.name} does not run")
        if len(descriptors) != 3:
            raise ShoalError("the streams of the command did not come with the request")
        stdin, stdout, stderr = descriptors
        words = [sys.executable, "-I", "-S", _ENTER, *(["--tty"] if request.tty else [])]
        words += [str(monitor.folders.task), *request.command]
        with processes.SPAWNING:
            pid = os.posix_spawn(
                sys.executable,
                words,
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=range(1, 32),
            )
        return _Running(request.task, pid, processes.start_ticks(pid), os.pidfd_open(pid))

    def _collect(self, running: _Running) -> int:
        """The exit code, 128 + signal."""
        self._node.loop.remove(running.pidfd)
        os.close(running.pidfd)
        self._running.discard(running)
        self._node.exec_pids.discard(running.pid)
        try:
            _, status = os.waitpid(running.pid, 0)
        except ChildProcessError:
            return _NOT_EXECUTABLE
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _end(self, running: _Running) -> None:
        """The client is gone: so is its terminal."""
        if running in self._running:
            processes.send(running.pid, running.ticks, signal.SIGHUP)
            self._node.loop.later(KILL_SECONDS, lambda: self._kill(running))

    def _kill(self, running: _Running) -> None:
        if running in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


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
