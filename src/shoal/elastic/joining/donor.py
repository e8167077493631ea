"""The peer that gives: a snapshot at a step boundary, then each step's gradients as they were applied.

Training only copies into memory; a thread a follower sends. How many gradients may wait to be sent is
bounded: a follower that falls further behind is cut off, and starts anew.
"""

from __future__ import annotations

import contextlib
import hmac
import pickle
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shoal.elastic import wire
from shoal.elastic.state import Packed
from shoal.elastic.view import Cursor

__all__ = ["Donor"]

_HELLO_SECONDS = 5.0
MOST_WAITING_BYTES = 1 << 30
LEAST_WAITING_STEPS = 4
"""So many may always wait, however large they are."""


class _Follower:
    """One joiner's connection, and what is to be sent to it."""

    def __init__(self, connection: wire.Connection) -> None:
        self.connection = connection
        self._pushed_bytes = self._sent_bytes = 0
        self.served = False
        self.gone = False
        self._queue: queue.SimpleQueue[tuple[wire.Message, tuple[memoryview, ...], int] | None]
        self._queue = queue.SimpleQueue()
        threading.Thread(target=self._run, name="shoal-donor", daemon=True).start()

    def push(self, message: wire.Message, payload: Sequence[memoryview] = ()) -> None:
        size = sum(len(part) for part in payload)
        counted = 0 if message["type"] == "snapshot" else size
        bound = max(MOST_WAITING_BYTES, LEAST_WAITING_STEPS * size)
        if self.gone or self._pushed_bytes - self._sent_bytes + counted > bound:
            self.close()
            return
        self._pushed_bytes += counted
        self._queue.put((message | {"bytes": size}, tuple(payload), counted))

    def close(self) -> None:
        self.gone = True
        self._queue.put(None)

    def _run(self) -> None:
        with contextlib.suppress(wire.Closed):
            while (item := self._queue.get()) is not None:
                message, payload, counted = item
                self.connection.send(message, payload)
                self._sent_bytes += counted
        self.gone = True
        self.connection.close()


class Donor:
    """Listens for joiners from the first moment; training serves them at its step boundaries."""

    def __init__(self, host: str, key: Callable[[], str]) -> None:
        """`key` gives the job's key, which every connection must show."""
        self._key = key
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        port = self._listener.getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._followers: list[_Follower] = []
        self._epoch = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="shoal-peers", daemon=True).start()

    @property
    def wanted(self) -> bool:
        """Whether a joiner waits for a snapshot."""
        return any(not follower.served and not follower.gone for follower in self._followers)

    @property
    def followed(self) -> bool:
        """Whether a joiner follows."""
        return any(follower.served and not follower.gone for follower in self._followers)

    def snapshot(self, packed: Packed, step: int, cursor: Cursor, digest: int) -> None:
        """Give it to the joiners that wait. The block must not be written any more until `idle`."""
        for follower in self._current(served=False):
            follower.served = True
            meta = memoryview(packed.meta)
            message = {
                "type": "snapshot",
                "step": step,
                "cursor": cursor.to_wire(),
                "meta": len(meta),
                "digest": digest,
            }
            follower.push(message, (meta, _bytes_of(packed.flat)))

    def update(self, number: int, groups: list[dict[str, Any]], gradients: Packed) -> None:
        """An optimizer is about to apply these gradients, with these options of its groups."""
        head = memoryview(pickle.dumps((groups, gradients.meta), pickle.HIGHEST_PROTOCOL))
        message = {"type": "update", "optimizer": number, "meta": len(head)}
        self._push(message, (head, _bytes_of(gradients.flat)))

    def applied(self, step: int, cursor: Cursor, rest: Packed) -> None:
        """A step is over; `rest`: buffers, and the state of schedulers and scalers after it."""
        message = {"type": "applied", "step": step, "cursor": cursor.to_wire()}
        meta = memoryview(rest.meta)
        self._push(message | {"meta": len(meta)}, (meta, _bytes_of(rest.flat)))

    def switched(self, epoch: int, step: int, loop: int) -> None:
        """The next step is the new epoch's. Its members follow no longer; the others go on."""
        message = {"type": "switch", "epoch": epoch, "step": step, "loop": loop}
        with self._lock:  # later joiners get it with the greeting
            self._epoch = epoch
            for follower in self._followers:
                follower.push(message)

    def drop(self) -> None:
        """Cut everybody off: what they followed is void."""
        for follower in [*self._current(served=True), *self._current(served=False)]:
            follower.close()

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def _current(self, *, served: bool) -> list[_Follower]:
        with self._lock:
            self._followers = [each for each in self._followers if not each.gone]
            return [each for each in self._followers if each.served == served]

    def _push(self, message: wire.Message, payload: Sequence[memoryview] = ()) -> None:
        for follower in self._current(served=True):
            follower.push(message, payload)

    def _listen(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        sock.settimeout(_HELLO_SECONDS)
        connection = wire.Connection(sock)
        try:
            hello = connection.receive()
        except (wire.Closed, TimeoutError):
            connection.close()
            return
        key = self._key()
        given = str(hello.get("key", ""))
        if not key or not hmac.compare_digest(given.encode(), key.encode()):
            connection.close()
            return
        sock.settimeout(None)
        follower = _Follower(connection)
        with self._lock:
            follower.push({"type": "epoch", "epoch": self._epoch})
            self._followers.append(follower)
        with contextlib.suppress(wire.Closed):
            connection.receive()  # it says nothing more: this is its end
        follower.close()


def _bytes_of(flat: torch.Tensor) -> memoryview:
    """Of a uint8 tensor on the CPU."""
    return memoryview(flat.numpy())  # pyright: ignore
