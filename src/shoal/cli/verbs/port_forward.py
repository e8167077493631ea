"""`shoal port-forward`: connections to ports of this machine go to ports of a task."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import click

from shoal.cli.failures import Usage
from shoal.cli.options import names_of, verb, whole
from shoal.cli.output import say
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import one
from shoal.objects.errors import Invalid, ShoalError
from shoal.objects.kinds import JOB

if TYPE_CHECKING:
    from shoal.cli.targets import Target
    from shoal.client import Client
    from shoal.client.session import RemoteSession

_PIECE_BYTES = 65536
_NOTHING_LISTENS = 111
_END_SECONDS = 2.0


@verb("port-forward")
@names_of("job", single=True)
@click.argument("ports", nargs=-1, metavar="[LOCAL:]PORT...")
@click.option("--role", default="", metavar="NAME", help="Which role, where there are several.")
@click.option("--rank", "index", type=whole(0), default=0, help="Which task; 0 by default.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen here.")
def command(
    settings: Settings, job: str, ports: tuple[str, ...], role: str, index: int, address: str
) -> int:
    """Reach ports of a task from this machine.

    \b
    shoal port-forward job/train 6006              localhost:6006 is port 6006 of its first task
    shoal port-forward job/train 8080:web --rank 2 port `web` of its third; :web takes any local port

    PORT is a number or the name of a port of the role. Each connection is one to the task, in its
    network. It lasts until Ctrl-C; a task that restarts is reached again.
    """
    if not ports:
        raise Usage("there is no port to forward", hint=f"such as: shoal port-forward {job} 6006")
    target = one(job, settings, JOB)
    with connect(settings) as client, contextlib.ExitStack() as listening:
        selector = listening.enter_context(selectors.DefaultSelector())
        carrying = listening.enter_context(_Carrying())
        for local, remote in map(_parse, ports):
            forward = _Forward(client, target, remote, role, index, carrying)
            listens = forward.listens()  # also whether the task runs, and has the port
            listener = listening.enter_context(_listen(address, local))
            selector.register(listener, selectors.EVENT_READ, (listener, forward.carry))
            host, number = listener.getsockname()[:2]
            print(f"{host}:{number} -> {forward}", flush=True)
            if not listens:
                say(f"nothing listens on {forward} yet")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                for key, _ in selector.select():
                    listener, carry = key.data
                    connection, _ = listener.accept()
                    carrying.begin(carry, connection)
    return 0


class _Carrying:
    """Connections that are carried, each in a thread; leaving the context ends them without a word."""

    def __init__(self) -> None:
        self.ending = False
        self._threads: set[threading.Thread] = set()
        self._sessions: set[RemoteSession] = set()

    def begin(self, carry: Callable[[socket.socket], None], connection: socket.socket) -> None:
        """Carry one more."""
        self._threads = {each for each in self._threads if each.is_alive()}
        thread = threading.Thread(target=carry, args=(connection,), daemon=True)
        self._threads.add(thread)
        thread.start()

    def opened(self, session: RemoteSession) -> None:
        """Its session is open."""
        self._sessions.add(session)

    def closed(self, session: RemoteSession) -> None:
        """Its session is closed."""
        self._sessions.discard(session)

    def say(self, sentence: str) -> None:
        """Print it, unless everything ends."""
        if not self.ending:
            say(sentence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ending = True
        for session in tuple(self._sessions):
            session.interrupt()
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True)
class _Forward:
    """One port of a task."""

    client: Client
    target: Target
    port: str
    role: str
    index: int
    carrying: _Carrying

    def __str__(self) -> str:
        task = f"{self.role or 'task'} {self.index}"
        return f"port {self.port} of {task} of {self.target}"

    def listens(self) -> bool:
        """Whether something listens on the port now.

        Raises:
            ShoalError: the task does not run, or has no such port.
        """
        session = self._open()
        try:
            return session.receive() != ("exit", str(_NOTHING_LISTENS).encode())
        finally:
            session.close()

    def carry(self, connection: socket.socket) -> None:
        """Join a local connection with one to the task, until both halves are closed."""
        with connection:
            try:
                session = self._open()
            except ShoalError as error:
                self.carrying.say(f"{self}: {error.message}")
                return
            self.carrying.opened(session)
            sender = threading.Thread(target=_send, args=(connection, session), daemon=True)
            try:
                sender.start()
                self._receive(connection, session)
            except OSError:
                pass  # the local program has closed the connection
            except ShoalError as error:
                self.carrying.say(f"{self}: {error.message}")
            finally:
                self.carrying.closed(session)
                session.close()
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes the sender
                sender.join(_END_SECONDS)

    def _receive(self, connection: socket.socket, session: RemoteSession) -> None:
        """Pieces after their lengths, as docs/api.md says; one of no length closes that half."""
        came = bytearray()
        while True:
            what, data = session.receive()
            if what == "exit":
                if int(data) == _NOTHING_LISTENS:
                    self.carrying.say(f"nothing listens on {self}")
                return
            if what == "out":
                came += data
            while len(came) >= 4 and len(came) >= 4 + (size := int.from_bytes(came[:4], "big")):
                connection.sendall(came[4 : 4 + size])
                if not size:
                    connection.shutdown(socket.SHUT_WR)
                del came[: 4 + size]

    def _open(self) -> RemoteSession:
        space, name = self.target.namespace, self.target.name
        return self.client.forward(space, name, self.port, role=self.role, index=self.index)


def _send(connection: socket.socket, session: RemoteSession) -> None:
    try:
        while data := connection.recv(_PIECE_BYTES):
            session.send(data)
        session.send(b"")
    except OSError:
        session.interrupt()  # the local program has reset the connection


def _parse(text: str) -> tuple[int, str]:
    """The local port, 0 for any, and the task's."""
    local, mark, remote = text.rpartition(":")
    if not mark:
        return (int(text) if text.isdecimal() else 0), text
    if remote and (not local or (local.isdecimal() and int(local) < 65536)):
        return int(local or 0), remote
    raise Usage(f"{text!r} does not name a port", hint="such as 6006, 8080:6006, 8080:web or :web")


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=128)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Invalid(
            f"{address}:{port} cannot be listened on: {why}", hint="write :PORT for any local port"
        ) from error
