"""Real sockets to a real coordinator: what tests say and hear."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

from shoal.elastic import wire
from tests.elastic import forked

_START_SECONDS = 20.0


class Process:
    """A coordinator's process."""

    def __init__(self, folder: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.clients: list[Client] = []
        self.file = folder / "address.json"
        self.file.unlink(missing_ok=True)
        where = () if "--api" in arguments else ("--sqlite", str(folder / "record.db"))
        self.errors = folder / f"stderr-{time.monotonic_ns()}"
        self.child = forked.server().start(
            ["-m", "shoal.elastic.coordinator", *where, "--address-file", str(self.file), *arguments],
            {**os.environ, "PYTHONWARNINGS": "error", **(env or {})},
            self.errors,
        )
        until = time.monotonic() + _START_SECONDS
        while not self.file.exists():
            if self.child.poll() is not None or time.monotonic() > until:
                self.close()
                raise AssertionError(f"it did not start: {self.said()}")
            time.sleep(0.005)
        told = json.loads(self.file.read_text())
        self.address, self.key = told["address"], told["key"]

    def said(self) -> str:
        return self.errors.read_text()

    def end(self, seconds: float = 10.0) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(seconds)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait(10.0)
        for client in self.clients:
            client.close()


class Client:
    """One connection. Every wait has a deadline."""

    def __init__(self, process: Process, key: str | None = None) -> None:
        self.key = key if key is not None else process.key
        self.connection = wire.connect(process.address, 5.0)
        process.clients.append(self)

    def say(self, kind: str, **fields: Any) -> None:
        self.connection.send({"type": kind, **fields})

    def hear(self, kind: str, seconds: float = 20.0) -> dict[str, Any]:
        """The next message of that type; others before it are passed over."""
        until = time.monotonic() + seconds
        while True:
            self.connection.socket.settimeout(max(until - time.monotonic(), 0.001))
            message = self.connection.receive()
            if message["type"] == kind:
                return message

    def is_closed(self, seconds: float = 5.0) -> bool:
        """Whether the other side closes it in that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.connection.socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                self.connection.receive()
            except TimeoutError:
                return False
            except wire.Closed:
                return True
        return False

    def is_closed_by_now(self) -> bool:
        """Whether the kernel knows that the other side has reset it; what has come is left unread."""
        error = self.connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        poll = select.poll()
        poll.register(self.connection.socket, select.POLLRDHUP)
        return bool(error) or bool(poll.poll(0))

    def close(self) -> None:
        self.connection.close()


class Worker(Client):
    """A worker's connection, and its sidecar's."""

    def __init__(self, process: Process, name: str, incarnation: int = 0, epoch: int = 0) -> None:
        super().__init__(process)
        self.process, self.name = process, name
        self.say("hello", role="worker", key=self.key, name=name, incarnation=incarnation,
                 address="127.0.0.1:9", epoch=epoch, step=-1 if not epoch else 0)  # fmt: skip
        self.incarnation = incarnation
        self.sidecar: Client | None = None

    def welcomed(self, sidecar: bool = True) -> Worker:
        self.incarnation = self.hear("welcome")["incarnation"]
        if sidecar:
            self.sidecar = Client(self.process)
            self.sidecar.say("hello", role="sidecar", key=self.key, name=self.name,
                             incarnation=self.incarnation)  # fmt: skip
        return self

    def recovered(self, epoch: int, step: int = 0) -> None:
        self.say("recovered", epoch=epoch, step=step, cursor=[0, step], seconds=0.01, how="nothing")

    def close(self) -> None:
        super().close()
        if self.sidecar is not None:
            self.sidecar.close()
