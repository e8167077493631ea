"""How the ends of a group learn each other's addresses: posted to the coordinator, which passes them on.

A `torch.distributed.Store` in this process's memory, for one epoch: gloo's rendezvous asks it for its
peers' addresses, and waits here until they have come. So a group of four is built in about two
milliseconds, and nothing of an earlier epoch can be met: the store is gone with its group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

__all__ = ["Abandoned", "RelayStore"]


class Abandoned(Exception):
    """This epoch's group is not wanted any more."""


class RelayStore(dist.Store):  # pyright: ignore[reportPrivateImportUsage]
    """Keys are `0/<rank>`, as gloo asks for them. Thread-safe."""

    def __init__(self, rank: int, post: Callable[[bytes], None], claim: str = "") -> None:
        """`post` gives this end's address to the others, and with it what this rank claims (at most 255
        bytes; see `devices`)."""
        super().__init__()
        self.rank = rank
        self._post = post
        self._claims = {rank: claim}
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._abandoned = False
        self.own: bytes = b""

    def put(self, rank: int, posted: bytes) -> None:
        """What a peer has posted has come. Idempotent."""
        end = 1 + posted[0]
        with self._changed:
            self._claims[rank] = posted[1:end].decode()
            self._values[f"0/{rank}"] = posted[end:]
            self._changed.notify_all()

    def claims(self) -> list[str]:
        """Of all ranks with addresses that are here, in rank order."""
        with self._changed:
            return [self._claims[rank] for rank in sorted(self._claims)]

    def peers(self) -> dict[int, bytes]:
        """The addresses of all others that have come."""
        with self._changed:
            return {int(k[2:]): v for k, v in self._values.items() if k != f"0/{self.rank}"}

    def abandon(self) -> None:
        """Threads that wait here stop waiting, with an error."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def repeat(self) -> None:
        """Post the own address, if it is known: the coordinator may have missed it before."""
        if self.own:
            claim = self._claims[self.rank].encode()
            self._post(bytes([len(claim)]) + claim + self.own)

    # what torch calls

    def set(self, key: str, value: bytes | str) -> None:
        """Keep; the own address is posted."""
        blob = value.encode() if isinstance(value, str) else bytes(value)
        with self._changed:
            self._values[key] = blob
            self._changed.notify_all()
        if key == f"0/{self.rank}":
            self.own = blob
            self.repeat()

    def get(self, key: str) -> bytes:
        """Wait for a value.

        Raises:
            Abandoned: it is not wanted any more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned or key in self._values)
            if self._abandoned:
                raise Abandoned(key)
            return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for all of them; only `abandon` ends it early."""
        for key in keys:
            self.get(key)

    def check(self, keys: list[str]) -> bool:
        """Whether all are there."""
        with self._changed:
            return all(key in self._values for key in keys)

    def add(self, key: str, value: int) -> int:
        """Count up."""
        with self._changed:
            total = int(self._values.get(key, b"0")) + value
            self._values[key] = str(total).encode()
            self._changed.notify_all()
        return total

    def set_timeout(self, timeout: timedelta) -> None:
        """Deadlines are the builder's."""
