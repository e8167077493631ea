"""The worker's line to its coordinator: a thread that connects, sends a hello, and receives.

It connects again, to an address looked up anew, whenever the connection is lost; training goes on
without it. What was sent into a lost connection is lost: after `welcome` the worker sends again what
still holds (the `hello` itself has incarnation, epoch and step).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal.elastic import wire

__all__ = ["Contact", "Link"]

_CONNECT_SECONDS = 2.0
_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Contact:
    """Where the coordinator listens (`host:port`), and the job's key; or that the job is over, and
    why."""

    address: str = ""
    key: str = ""
    ended: str = ""
    failed: bool = False


class Link:
    """See the module. `send` may be called from any thread; `handle` runs on the link's own."""

    def __init__(
        self,
        find: Callable[[], Contact | None],
        hello: Callable[[], wire.Message],
        handle: Callable[[wire.Message], None],
    ) -> None:
        """`find` looks the coordinator up; None while it is not known. `hello` makes the first frame."""
        self._find = find
        self._hello = hello
        self._handle = handle
        self._connection: wire.Connection | None = None
        self._refused = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-link", daemon=True)
        self.contact: Contact | None = None
        self.trouble = "its address is not known yet"
        """Why the coordinator is not there, when it is not."""

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether the coordinator is there, as far as one knows."""
        return self._connection is not None

    def send(self, message: wire.Message) -> bool:
        """Send if connected; whether it was given to the kernel."""
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.send(message)
        except wire.Closed:
            return False
        return True

    def again(self) -> None:
        """Break the connection and say hello anew."""
        connection = self._connection
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Say nothing more. Joins the thread unless it is the caller."""
        self._closed.set()
        self.again()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_CONNECT_SECONDS + 1.0)

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._converse()
            except (wire.Closed, TimeoutError) as error:
                if not self._refused:
                    self.trouble = str(error)
            pause = _PAUSE_SECONDS if time.monotonic() - began > 1.0 else pause * 1.5
            self._closed.wait(min(pause, _LONGEST_PAUSE_SECONDS))

    def _converse(self) -> None:
        contact = self._find()
        if contact is None:
            return
        if contact.ended:
            self._handle({"type": "stop", "reason": contact.ended, "failed": contact.failed})
            self._closed.wait(_LONGEST_PAUSE_SECONDS)
            return
        self._refused = False
        connection = wire.connect(contact.address, _CONNECT_SECONDS)
        try:
            self._refused = True
            self.trouble = (
                f"{contact.address} does not take the key of this job: is it of another attempt?"
            )
            connection.send(self._hello() | {"key": contact.key})
            connection.socket.settimeout(None)
            self.contact = contact
            self._connection = connection
            while not self._closed.is_set():
                message = connection.receive()
                self._refused = False
                self._handle(message)
        finally:
            self._connection = None
            connection.close()
