"""The collectives of one epoch, and the builder that makes them in the background.

A group is built by a thread of its own while training goes on with the one before. One that a newer
epoch has overtaken is abandoned. Whoever has a group may `interrupt` it from any thread: everybody who
waits in it, here and in its peers, wakes with an error within milliseconds.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import base64
import ctypes
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, cast

import torch
import torch.distributed as dist

from shoal.elastic.allreduce import sockets
from shoal.elastic.allreduce.relay import Abandoned, RelayStore
from shoal.elastic.errors import GroupFailed
from shoal.elastic.view import View
from shoal.elastic.wire import Message

__all__ = ["Group", "Groups", "Pending"]

_FOREVER = timedelta(days=30)
_LOOK = timedelta(milliseconds=200)
_STUCK_SECONDS = 1.0
BUILD_SECONDS = 5.0


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
    ) -> None:
        """`backend` None: a group of one."""
        self.view = view
        self.rank = rank
        self.size = view.size
        self._backend = backend
        self._store = store
        self._stuck = False
        self.failed = False

    @property
    def epoch(self) -> int:
        """Of its view."""
        return self.view.epoch

    def sum(self, tensor: torch.Tensor) -> Pending:
        """Begin to add up `tensor` over all ranks, in place.

        Raises:
            GroupFailed: the group is broken.
        """
        if self._backend is None:
            return _Done()
        return self._begin(lambda backend: backend.allreduce([tensor]))

    def wait(self, pending: Pending) -> None:
        """Until the operation is done.

        Raises:
            GroupFailed: it will never be.
        """
        broken_since = 0.0
        while True:
            try:
                pending.wait(_LOOK)
                return
            except RuntimeError as error:
                if pending.is_completed():
                    self.failed = True
                    raise GroupFailed(str(error)) from None
            if not self.failed:
                continue
            broken_since = broken_since or time.monotonic()
            self.interrupt()
            if time.monotonic() - broken_since > _STUCK_SECONDS:
                self._stuck = True
                raise GroupFailed("an operation that was under way in a broken group never ended")

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        """Everybody has `source`'s values afterwards.

        Raises:
            GroupFailed: the group broke.
        """
        if self._backend is not None and tensor.numel():
            self.wait(self._begin(lambda backend: backend.broadcast(tensor, root=source)))

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Everybody's tensor of this shape, in rank order.

        Raises:
            GroupFailed: the group broke.
        """
        if self._backend is None:
            return [tensor.clone()]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        self.wait(self._begin(lambda backend: backend.allgather(found, tensor)))
        return found

    def interrupt(self) -> None:
        """Wake everybody who waits in it; it is of no use any more. Any thread, idempotent."""
        self.failed = True
        store = self._store
        if store is not None:
            ports = {sockets.listening_port(blob) for blob in store.peers().values()}
            sockets.shut_down(sockets.connected(sockets.listening_port(store.own), ports))

    def close(self) -> None:
        """Let go of it: nothing may be under way here."""
        self.interrupt()
        if self._stuck and self._backend is not None:
            # its destructor would wait for the threads of what never ends: it is never called
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._backend))
        self._backend = None
        self._store = None

    def _begin(self, ask: Callable[[dist.ProcessGroup], Pending]) -> Pending:
        if self.failed or self._backend is None:
            raise GroupFailed(f"the group of epoch {self.epoch} is broken")
        try:
            return ask(self._backend)
        except RuntimeError as error:
            self.failed = True
            raise GroupFailed(str(error)) from None


class Groups:
    """Builds the groups of the views that come, newest last. Thread-safe.

    One instance a process; `me` is asked for its current name and incarnation, and `post` sends a
    message to the coordinator, which passes `blob`s on.
    """

    def __init__(
        self,
        host: str,
        me: Callable[[], tuple[str, int]],
        post: Callable[[Message], object],
        make: Callable[[str, RelayStore, int, int, timedelta], dist.ProcessGroup] | None = None,
    ) -> None:
        """`host`: the address to listen on and be reached at."""
        self._host = host
        self._me = me
        self._post = post
        self._make = make or gloo
        self._changed = threading.Condition()
        self._building: dict[int, tuple[View, RelayStore]] = {}
        self._early: dict[int, dict[int, bytes]] = {}
        self._built: dict[int, Group] = {}
        self._newest = 0
        self._dead: Exception | None = None

    def want(self, view: View) -> None:
        """Begin to build the group of this view. Idempotent.

        A view after a loss makes older ones void: those under way are abandoned. One that is planned
        does not: members may yet switch to the one planned before.
        """
        rank = view.rank_of(*self._me())
        with self._changed:
            if view.epoch <= self._newest:
                return
            self._newest = view.epoch
            if view.kind != "switch":
                self._abandon(view.epoch)
            if rank is None:
                return
            if view.size == 1:
                self._built[view.epoch] = Group(view, 0, None, None)
                self._changed.notify_all()
                return
            store = RelayStore(rank, lambda blob: self._post_blob(view.epoch, rank, blob))
            for peer, blob in self._early.pop(view.epoch, {}).items():
                store.put(peer, blob)
            self._building[view.epoch] = (view, store)
        thread = threading.Thread(
            target=self._build, args=(view, rank, store), name=f"shoal-group-{view.epoch}", daemon=True
        )
        thread.start()

    def heard(self, message: Message) -> None:
        """A `blob` has come; it may be of a view that is not known here yet."""
        epoch, rank = int(message["epoch"]), int(message["rank"])
        blob = base64.b64decode(message["data"])
        with self._changed:
            if epoch in self._building:
                self._building[epoch][1].put(rank, blob)
            elif epoch > self._newest:
                self._early.setdefault(epoch, {})[rank] = blob

    def repeat(self) -> None:
        """The coordinator is back: post again what it may have missed."""
        with self._changed:
            stores = [store for _, store in self._building.values()]
        for store in stores:
            store.repeat()

    def built(self, epoch: int) -> bool:
        """Whether this epoch's group is ready."""
        with self._changed:
            return epoch in self._built

    def take(self, epoch: int, timeout_seconds: float) -> Group | None:
        """The group of this epoch, when it is built in that time. It is the caller's from then on."""
        with self._changed:
            self._changed.wait_for(lambda: epoch not in self._building, timeout_seconds)
            return self._built.pop(epoch, None)

    def drop(self, before: int) -> None:
        """Close built groups of epochs before this one."""
        with self._changed:
            self._abandon(before)
            old = [self._built.pop(epoch) for epoch in list(self._built) if epoch < before]
            self._early = {epoch: blobs for epoch, blobs in self._early.items() if epoch >= before}
        for group in old:
            group.close()

    def close(self) -> None:
        """Abandon and close everything."""
        self.drop(1 << 62)

    def _abandon(self, before: int) -> None:
        for epoch in [epoch for epoch in self._building if epoch < before]:
            self._building.pop(epoch)[1].abandon()
        self._changed.notify_all()

    def _post_blob(self, epoch: int, rank: int, blob: bytes) -> None:
        data = base64.b64encode(blob).decode()
        self._post({"type": "blob", "epoch": epoch, "rank": rank, "data": data})

    def _build(self, view: View, rank: int, store: RelayStore) -> None:
        began = time.monotonic()
        try:
            backend = self._make(self._host, store, rank, view.size, timedelta(seconds=BUILD_SECONDS))
        except (Abandoned, RuntimeError):
            with self._changed:
                current = self._building.get(view.epoch)
            if current is not None and current[1] is store:
                self._retry(view, rank, store, began)
            return
        group = Group(view, rank, backend, store)
        del backend
        with self._changed:
            if self._building.pop(view.epoch, None) is not None:
                self._built[view.epoch] = group
                self._changed.notify_all()
                return
        group.close()

    def _retry(self, view: View, rank: int, store: RelayStore, began: float) -> None:
        """A peer could not be connected to: tell the coordinator, and leave it to decide."""
        reached = [view.members[rank].name]
        reached += [view.members[peer].name for peer in store.peers()]
        self._post({"type": "unbuilt", "epoch": view.epoch, "reached": reached})


def gloo(host: str, store: RelayStore, rank: int, size: int, timeout: timedelta) -> dist.ProcessGroup:
    """A gloo group over TCP; `timeout` bounds the connecting, operations have none.

    Raises:
        RuntimeError: a peer cannot be connected to.
    """
    options = dist.ProcessGroupGloo._Options()  # pyright: ignore
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
    backend = dist.ProcessGroupGloo(store, rank, size, options)
    backend._set_default_timeout(_FOREVER)
    return cast("dist.ProcessGroup", backend)  # its stub does not say that it is one
