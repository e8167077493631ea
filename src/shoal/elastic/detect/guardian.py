"""The worker's side of its sidecar: starts it, sends it what changes, starts it again should it die.

The sidecar is spawned, never forked: threads of torch may hold any lock. A forked child of the worker (a
data loader) inherits this object without owning the sidecar: there, all but `touch` and `training` do
nothing, and those two are the loop's to call.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shoal.elastic.detect import crash
from shoal.elastic.detect.progress import Progress, Where, new_memory
from shoal.elastic.wire import Message

__all__ = ["Child", "Guardian"]

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


_PAUSES_SECONDS = (0.0, 0.0, 0.1, 0.5, 2.0, 5.0)
"""Before a sidecar is started again, by how many have died young in a row."""
_YOUNG_SECONDS = 10.0
_CLOSE_SECONDS = 2.0


class Guardian:
    """Keeps one sidecar running beside this process until `close`. Thread-safe.

    `find` says where the coordinator is (`host:port`; None: not known yet); it is called by `joined` and
    on a thread of the guardian, and may raise OSError or ValueError. `address_file` is a JSON file
    with a member `address` that the sidecar reads itself: with it, a coordinator that has moved is found
    though this process is stopped or gone.

    Raises:
        OSError: the sidecar cannot be started.
    """

    def __init__(
        self,
        *,
        name: str,
        key: str,
        find: Callable[[], str | None],
        max_stall_seconds: float = 60.0,
        address_file: str | None = None,
        beat_seconds: float = 0.1,
    ) -> None:
        self._begin: Message = {
            "type": "begin",
            "name": name,
            "key": key,
            "max_stall": max_stall_seconds,
            "beat_seconds": beat_seconds,
            "address_file": address_file,
        }
        self._find = find
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._incarnation = 0
        self._address: str | None = None
        self._closing = False
        self._memory = new_memory()
        self._progress: Progress | None = Progress(self._memory)
        self.touch: Callable[[], None] = self._progress.mark
        """Mark progress: this worker does what it is to do. Costs a fraction of a microsecond."""
        self.training: Callable[[bool], None] = self._progress.train
        """Expect progress from now on (True), or do not: while this worker starts, ends, or waits for
        others. As cheap as `touch`."""
        self.at: Callable[[Where], None] = self._progress.at
        """The samples that the script is handed, for the case that it crashes on them."""
        try:
            self._child = Child(self._memory)
        except OSError:
            os.close(self._memory)
            raise
        self._heeds_crashes = crash.watch(self._memory)
        self._sees_exit = crash.watch_exit(self._memory)
        self._greet()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._attend, name="shoal-guardian", daemon=True)
        self._thread.start()

    @property
    def sidecar_pid(self) -> int:
        """The process id of the sidecar that runs now."""
        return self._child.pid

    def joined(self, incarnation: int) -> None:
        """This process is known to the coordinator under this number from now on.

        Calls `find` itself: what this thread does next may keep the guardian's own from running.
        """
        if os.getpid() != self._owner:
            return
        self._look_up()
        with self._lock:
            self._incarnation = incarnation
            self._child.send({"type": "joined", "incarnation": incarnation})

    def end(self, outcome: Message) -> None:
        """This process is about to end, or takes no part any more: its sidecar sends the outcome once it
        is gone, corrected by its exit status if that can be seen here."""
        if os.getpid() == self._owner and not self._closing:
            crash.keep_outcome(self._memory, outcome)
            if not self._sees_exit:
                self.close()

    def close(self) -> None:
        """End the sidecar without a message to the coordinator. Idempotent."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._child.send({"type": "close"})
        self._waker.send(b"x")
        self._thread.join()
        self._child.end(_CLOSE_SECONDS)
        self._wake.close()
        self._waker.close()
        if self._heeds_crashes:
            crash.ignore()
        crash.ignore_exit()
        os.close(self._memory)
        self.touch, self.training, self.at = _nothing, _nothing_either, _nothing_of
        self._progress = None  # unmapped once no thread is in the middle of a mark

    def _greet(self) -> None:
        """Send a new sidecar all that its predecessor knew."""
        with self._lock:
            if self._closing:
                return
            self._child.send(self._begin)
            if self._address is not None:
                self._child.send({"type": "at", "address": self._address})
            if self._incarnation:
                self._child.send({"type": "joined", "incarnation": self._incarnation})

    def _attend(self) -> None:
        deaths = 0
        started = time.monotonic()
        while True:
            messages = self._child.receive(self._wake)
            for message in messages or ():
                self._serve(message)
            if messages is not None:
                continue
            if self._closing:
                return
            self._child.end(0.0)
            deaths = deaths + 1 if time.monotonic() - started < _YOUNG_SECONDS else 0
            if not self._start_again(deaths):
                return
            started = time.monotonic()
            self._greet()

    def _start_again(self, deaths: int) -> bool:
        """Try until it works; False when this guardian is closed first."""
        while True:
            pause = _PAUSES_SECONDS[min(deaths, len(_PAUSES_SECONDS) - 1)]
            if select.select([self._wake], [], [], pause)[0]:
                return False
            try:
                child = Child(self._memory)
            except OSError:  # no process to be had at the moment
                deaths += 1
                continue
            with self._lock:
                self._child = child
            return True

    def _serve(self, message: Message) -> None:
        assert self._progress is not None
        if message["type"] == "answer":
            self._progress.answer()
        else:
            self._look_up()

    def _look_up(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # not known at the moment: it asks again
            self._address = self._find()
        if self._address is not None:
            with self._lock:
                self._child.send({"type": "at", "address": self._address})


def _nothing() -> None:
    pass


def _nothing_either(_on: bool) -> None:
    pass


def _nothing_of(_where: Where) -> None:
    pass
