"""The collectives of one epoch, over gloo, and NCCL where it can be.

Whatever is on the CPU goes over gloo. What is on a GPU goes over NCCL where every rank has a GPU of its
own, and over gloo too where ranks share one. The owner of a group may `interrupt` it from any thread:
all that wait in it, here and in its peers, wake with an error within milliseconds.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from shoal.elastic.allreduce import nccl, sockets
from shoal.elastic.allreduce.relay import RelayStore
from shoal.elastic.errors import GroupFailed
from shoal.elastic.view import View

__all__ = ["Group", "Pending"]

_FOREVER = timedelta(days=30)
_LOOK = timedelta(milliseconds=200)
_STUCK_SECONDS = 1.0
_MESSAGES = 1


class Pending(Protocol):
    """An operation under way."""

    def wait(self, timeout: timedelta = ...) -> bool:
        """Until it is done; RuntimeError when it fails, or the time is up."""
        ...

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        ...


class _Done:
    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Group:
    """The group of one view. Operations are asked for by one thread, the same on every rank."""

    def __init__(
        self,
        view: View,
        rank: int,
        backend: dist.ProcessGroup | None,
        store: RelayStore | None,
        communicator: nccl.Communicator | None = None,
    ) -> None:
        """`backend` None: a group of one. `communicator`: for tensors of a GPU, if they go over NCCL.
        `stuck`: an operation that never ends may still write to its tensor."""
        self.view = view
        self.rank = rank
        self.size = view.size
        self._backend = backend
        self._store = store
        self._communicator = communicator
        self._patience = _STUCK_SECONDS if communicator is None else nccl.PATIENCE_SECONDS
        self.stuck = False
        self.failed = False

    @property
    def epoch(self) -> int:
        """Of its view."""
        return self.view.epoch

    @property
    def over_nccl(self) -> bool:
        """Whether tensors of a GPU go over NCCL."""
        return self._communicator is not None

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Begin to add up `tensor` over all ranks, in place.

        Raises:
            GroupFailed: the group is broken.
        """
        if self._backend is None:
            return _Done()
        return self._begin(tensor, lambda backend: backend.allreduce([tensor]))

    def wait(self, pending: Pending) -> None:
        """Until the operation is done; the current stream of a GPU comes after it.

        Raises:
            GroupFailed: it will never be.
        """
        broken_since = 0.0
        while True:
            try:
                pending.wait(_LOOK)
                return
            except RuntimeError:
                if pending.is_completed():
                    self._end(pending)
                    return
            if not self.failed:
                if self._store is not None and sockets.unanswered(_connected(self._store)):
                    self.interrupt()
                continue
            broken_since = broken_since or time.monotonic()
            self.interrupt()
            if time.monotonic() - broken_since > self._patience:
                self.stuck = True
                raise GroupFailed("an operation that was under way in a broken group never ended")

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Everybody has `source`'s values afterwards.

        Raises:
            GroupFailed: the group broke.
        """
        if self._backend is not None and tensor.numel():
            self.wait(self._begin(tensor, lambda backend: backend.broadcast(tensor, root=source)))

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Everybody's tensor of this shape, in rank order.

        Raises:
            GroupFailed: the group broke.
        """
        if self._backend is None:
            return [tensor.clone()]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        self.wait(self._begin(tensor, lambda backend: backend.allgather(found, tensor)))
        return found

    def send(self, tensor: torch.Tensor, to: int) -> Pending:
        """Begin to send this to one rank; what is returned has to be held until it is there. CPU; any
        thread, beside operations.

        Raises:
            GroupFailed: the connection is gone.
        """
        return self._one_to_one(lambda backend: backend.send([tensor], to, _MESSAGES))

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        """Wait for what that rank sends next, of this shape. CPU; any thread, beside operations.

        Raises:
            GroupFailed: nothing will come.
        """
        pending = self._one_to_one(lambda backend: backend.recv([tensor], source, _MESSAGES))
        try:
            # any limit that passes would close the connection
            pending.wait(_FOREVER)
        except RuntimeError as error:
            raise GroupFailed(str(error)) from None

    def interrupt(self) -> None:
        """Wake all that wait in it; it is of no use any more. Any thread, idempotent."""
        self.failed = True
        store, communicator = self._store, self._communicator
        if communicator is not None:
            communicator.abort()
        if store is not None:
            sockets.shut_down(_connected(store))

    def close(self) -> None:
        """Let go of it: nothing may be under way here."""
        communicator = self._communicator
        if communicator is not None and not self.failed:
            # peers may still be reading what this rank has sent: an abort would take it from them
            communicator.shut_down()
        self._communicator = None
        self.interrupt()
        if self.stuck and self._backend is not None:
            # its destructor would wait for the threads of what never ends: it is never called
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._backend))
        self._backend = None
        self._store = None

    def _end(self, pending: Pending) -> None:
        """How it ended: it may have gone well in the very moment in which a wait for it was given up."""
        try:
            pending.wait(_LOOK)
        except RuntimeError as error:
            self.failed = True
            raise GroupFailed(str(error)) from None

    def _one_to_one(self, ask: Callable[[dist.ProcessGroup], Pending]) -> Pending:
        """A failure does not mark the group: a peer that has switched hangs up, and sums still end."""
        backend = self._backend
        if self.failed or backend is None:
            raise GroupFailed(f"the group of epoch {self.epoch} is broken")
        try:
            return ask(backend)
        except RuntimeError as error:
            raise GroupFailed(str(error)) from None

    def _begin(self, tensor: torch.Tensor, ask: Callable[[dist.ProcessGroup], Pending]) -> Pending:
        if self.failed or self._backend is None:
            raise GroupFailed(f"the group of epoch {self.epoch} is broken")
        try:
            if self._communicator is not None and tensor.is_cuda:
                return self._communicator.begin(ask)
            return ask(self._backend)
        except RuntimeError as error:
            self.failed = True
            raise GroupFailed(str(error)) from None


def _connected(store: RelayStore) -> list[sockets.Held]:
    ports = {sockets.listening_port(blob) for blob in store.peers().values()}
    return sockets.connected(sockets.listening_port(store.own), ports)
