"""Builds the groups of the views that come, in threads, while training goes on with the one before.

One that a newer epoch has overtaken is abandoned.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import base64
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast

import torch
import torch.distributed as dist

from shoal.elastic import wire
from shoal.elastic.allreduce import devices, nccl
from shoal.elastic.allreduce.group import Group, Pending
from shoal.elastic.allreduce.relay import Abandoned, RelayStore
from shoal.elastic.view import View
from shoal.elastic.wire import Message

__all__ = ["Group", "Groups", "Pending"]

_log = logging.getLogger(__name__)

_FOREVER = timedelta(days=30)
_PROBE_SECONDS = 1.0
BUILD_SECONDS = 5.0


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
        self._builders: list[threading.Thread] = []
        self._newest = 0
        self._device = torch.device("cpu")
        self._claim = ""
        self._insists = False
        self._communicators: list[nccl.Communicator] = []

    def train_on(self, device: torch.device, backend: str | None = None) -> None:
        """Buckets are on this device; before the first view. `backend`: one of `devices.BACKENDS`, else
        what the environment says.

        Raises:
            ElasticError: there is no such backend, or it cannot be used with this device.
        """
        backend = backend or devices.wanted(os.environ)
        self._claim = devices.claim(device, backend)
        self._device = device
        self._insists = backend == "nccl"
        if self._claim:
            os.environ.update(nccl.SETTINGS)

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
            store = RelayStore(rank, lambda blob: self._post_blob(view.epoch, rank, blob), self._claim)
            for peer, blob in self._early.pop(view.epoch, {}).items():
                store.put(peer, blob)
            self._building[view.epoch] = (view, store)
        thread = threading.Thread(
            target=self._build, args=(view, rank, store), name=f"shoal-group-{view.epoch}", daemon=True
        )
        self._builders = [each for each in self._builders if each.is_alive()] + [thread]
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
        """Abandon and close everything.

        Builders are awaited: a thread that comes back from torch while the interpreter ends would take
        the process down with SIGABRT.
        """
        self.drop(1 << 62)
        deadline = time.monotonic() + BUILD_SECONDS + _PROBE_SECONDS
        for builder in self._builders:
            builder.join(max(0.0, deadline - time.monotonic()))
        for communicator in self._communicators:
            communicator.join(BUILD_SECONDS)

    def _abandon(self, before: int) -> None:
        for epoch in [epoch for epoch in self._building if epoch < before]:
            self._building.pop(epoch)[1].abandon()
        self._changed.notify_all()

    def _post_blob(self, epoch: int, rank: int, blob: bytes) -> None:
        data = base64.b64encode(blob).decode()
        self._post({"type": "blob", "epoch": epoch, "rank": rank, "data": data})

    def _build(self, view: View, rank: int, store: RelayStore) -> None:
        try:
            backend = self._make(self._host, store, rank, view.size, timedelta(seconds=BUILD_SECONDS))
            communicator = self._connect(view, backend, store)
        except (Abandoned, RuntimeError):
            if self._wanted(view, store):
                self._retry(view, rank, store)
            return
        group = Group(view, rank, backend, store, communicator)
        del backend
        with self._changed:
            if self._building.pop(view.epoch, None) is not None:
                self._built[view.epoch] = group
                self._changed.notify_all()
                return
        group.close()

    def _connect(
        self, view: View, backend: dist.ProcessGroup, store: RelayStore
    ) -> nccl.Communicator | None:
        if not devices.over_nccl(store.claims()):
            return None
        try:
            made = nccl.connect(backend, store.rank, view.size, self._device)
        except RuntimeError as error:
            if self._wanted(view, store) and not self._insists:
                # no rank was lost: it does not work here, and one rank without a claim is enough for all
                _log.warning("%s; gradients go over gloo from now on", error)
                self._claim = ""
            raise
        self._communicators = [each for each in self._communicators if each.lives] + [made]
        return made

    def _wanted(self, view: View, store: RelayStore) -> bool:
        with self._changed:
            current = self._building.get(view.epoch)
            return current is not None and current[1] is store

    def _retry(self, view: View, rank: int, store: RelayStore) -> None:
        """A peer could not be connected to: report it to the coordinator, and leave it to decide."""
        others = [view.members[peer] for peer in store.peers()]
        with ThreadPoolExecutor(len(others) + 1) as probes:
            answers = list(probes.map(_answers, [member.address for member in others]))
        reached = [view.members[rank].name]
        reached += [member.name for member, there in zip(others, answers, strict=True) if there]
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


def _answers(address: str) -> bool:
    """Whether a peer can be reached: that its address has come says only that the coordinator is."""
    try:
        wire.connect(address, _PROBE_SECONDS).close()
    except wire.Closed:
        return False
    return True
