"""A coordinator's ear, and workers as processes of their own with a real sidecar beside them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.elastic.wire import Closed, Connection, Message

KEY = "a key"
DEADLINE_SECONDS = 60.0


class Ear:
    """Listens at a port of loopback and notes every frame with the moment at which it came."""

    def __init__(self, port: int = 0) -> None:
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind(("127.0.0.1", port))
        self._listening.listen(16)
        self.port: int = self._listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._closed = False
        self._condition = threading.Condition()
        self.heard: list[tuple[float, Message]] = []
        self.closed_at: list[float] = []
        self.connections: list[Connection] = []
        self._names: dict[str, Connection] = {}
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def wait(
        self,
        kind: str,
        count: int = 1,
        where: Callable[[Message], bool] = lambda _: True,
    ) -> tuple[float, Message]:
        """The count-th frame of that type; fails after a deadline."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        with self._condition:
            while True:
                found = [each for each in self.heard if each[1]["type"] == kind and where(each[1])]
                if len(found) >= count:
                    return found[count - 1]
                left = deadline - time.monotonic()
                assert left > 0, (
                    f"no {kind} came; heard {[m['type'] for _, m in self.heard if m['type'] != 'beat']}"
                )
                self._condition.wait(left)

    def wait_closed(self, count: int = 1) -> float:
        """When the count-th connection was closed by the other side."""
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.closed_at) >= count, DEADLINE_SECONDS)
            return self.closed_at[count - 1]

    def kinds(self) -> list[str]:
        """Types of all frames but beats, in order."""
        with self._condition:
            return [message["type"] for _, message in self.heard if message["type"] != "beat"]

    def count(self, kind: str) -> int:
        """How many frames of that type have come."""
        with self._condition:
            return sum(message["type"] == kind for _, message in self.heard)

    def say(self, name: str, message: Message) -> None:
        """Send a frame to the sidecar of that worker."""
        self._names[name].send(message)

    def drop(self) -> None:
        """Close every connection there is, and go on listening."""
        for connection in list(self.connections):
            connection.close()

    def close(self) -> None:
        """Vanish as a process that is killed does. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join(DEADLINE_SECONDS)
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            connection = Connection(sock)
            self.connections.append(connection)
            thread = threading.Thread(target=self._read, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _read(self, connection: Connection) -> None:
        while True:
            try:
                message = connection.receive()
            except Closed:
                with self._condition:
                    self.closed_at.append(time.monotonic())
                    self._condition.notify_all()
                connection.close()
                return
            with self._condition:
                self.heard.append((time.monotonic(), message))
                if message["type"] == "hello":
                    self._names[message["name"]] = connection
                self._condition.notify_all()


class Worker:
    """A process with a guardian called `guardian`, which then runs `body`.

    It prints `sidecar PID` once the guardian is there; `lines` reads what it prints afterwards.
    """

    def __init__(
        self,
        address: str,
        body: str,
        *,
        name: str = "worker-0",
        max_stall: float = 60.0,
        file: Path | None = None,
    ) -> None:
        place = None if file is None else str(file)
        program = f"""
            import ctypes, os, select, signal, sys, threading, time
            from shoal.elastic.detect.guardian import Guardian

            guardian = Guardian(name={name!r}, key={KEY!r}, find=lambda: {address!r},
                                max_stall_seconds={max_stall}, address_file={place!r})
            guardian.joined(7)
            print("sidecar", guardian.sidecar_pid, flush=True)
        """
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program) + textwrap.dedent(body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self.process.pid
        self.sidecar = int(self.line().split()[1])
        self._seen = {self.sidecar}

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line

    def signal(self, number: int) -> float:
        """Send it a signal; the moment before."""
        now = time.monotonic()
        os.kill(self.pid, number)
        return now

    def say(self, text: str = "go") -> None:
        """A line on its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Kill it if it runs, wait, and give its standard error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)
            os.kill(self.pid, signal.SIGKILL)
        return self.process.communicate(timeout=DEADLINE_SECONDS)[1]


def sidecars_of(worker: int) -> list[int]:
    """Every sidecar process of a worker that still runs, by its arguments."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            script = [at for at, word in enumerate(words) if word.endswith(b"/detect/sidecar.py")]
            if script and words[script[0] + 1] == str(worker).encode():
                found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Look again and again until it holds; fails after a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


@contextlib.contextmanager
def worker(ear: Ear, body: str, **settings: object) -> Iterator[Worker]:
    """A worker that has said hello; afterwards nothing of it is left."""
    one = Worker(ear.address, body, **settings)  # type: ignore[arg-type]
    try:
        ear.wait("hello", where=lambda hello: hello["name"] == settings.get("name", "worker-0"))
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.sidecar, signal.SIGCONT)
        one.end()
        wait_until(lambda: not sidecars_of(one.pid), "a sidecar is left over")


def write_address(path: Path, address: str) -> None:
    """As the coordinator publishes where it is."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"address": address, "key": KEY}))
    temporary.replace(path)
