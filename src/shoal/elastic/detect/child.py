"""One sidecar process as the worker holds it: spawned, spoken to, waited for, ended."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from shoal.elastic.wire import Message

__all__ = ["Child"]

_SCRIPT = str(Path(__file__).with_name("sidecar.py"))
_CHANNEL, _MEMORY = 3, 4
_FIRST_FREE = 10
_POLL_MS = 10


class Child:
    """A sidecar that runs since it was made. `send` is the owner's to serialise.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, memory: int) -> None:
        self._channel, theirs = socket.socketpair()
        self._heard = b""
        self._ended = False
        # higher than where they go, so that putting one in its place does not close the other
        high = [
            fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in (theirs.fileno(), memory)
        ]
        arguments = [sys.executable, "-I", "-S", _SCRIPT, str(os.getpid()), str(_CHANNEL), str(_MEMORY)]
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                arguments,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, high[0], _CHANNEL),
                    (os.POSIX_SPAWN_DUP2, high[1], _MEMORY),
                ],
                setsid=True,
                setsigmask=[],
            )
        except OSError:
            self._channel.close()
            raise
        finally:
            theirs.close()
            for each in high:
                os.close(each)
        self._channel.settimeout(1.0)
        self._end: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # reaped already, or no Linux
            self._end = os.pidfd_open(self.pid)

    def send(self, message: Message) -> None:
        """A sidecar that is gone gets nothing: its successor is sent all of it."""
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, wake: socket.socket) -> list[Message] | None:
        """Wait for what it says; None when it has ended or `wake` is readable."""
        poll = select.poll()
        for each in (wake.fileno(), self._channel.fileno(), self._end):
            if each is not None:
                poll.register(each, select.POLLIN)
        ready = dict(poll.poll())
        if wake.fileno() in ready or self._end in ready:
            return None
        try:
            data = self._channel.recv(65536)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self._heard = (self._heard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self, grace_seconds: float) -> None:
        """Let it end in that time or kill it, reap it, and close what led to it. Idempotent."""
        if self._ended:
            return
        self._ended = True
        deadline = time.monotonic() + grace_seconds
        while not self._reaped():
            if time.monotonic() >= deadline:
                os.kill(self.pid, signal.SIGKILL)  # not reaped, so the pid is still its own
            time.sleep(_POLL_MS / 1000)
        self._channel.close()
        if self._end is not None:
            os.close(self._end)

    def _reaped(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # reaped by a wait for any child
            return True
