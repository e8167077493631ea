"""The Store in a dict: for tests and simulations, and the plainest reading of the contract."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from shoal.clock import Clock, SystemClock
from shoal.objects.kinds import Kind
from shoal.store.backend import (
    Change,
    LeaseRow,
    Query,
    Row,
    Step,
    Transaction,
    Window,
    new_epoch,
    version_text,
)
from shoal.store.base import Authorise, allow_all
from shoal.store.transactional import TransactionalStore
from shoal.store.watch_cache import CacheWatch, WatchCache

__all__ = ["MemoryStore", "Window"]

T = TypeVar("T")
_Key = tuple[str, str]
_LAST = "\U0010ffff"
"""Sorts behind every name."""


class MemoryStore(TransactionalStore):
    """A `Store` that lives as long as the process. What it acknowledges is not durable."""

    def __init__(
        self,
        *,
        authorise: Authorise = allow_all,
        clock: Clock | None = None,
        window: Window | None = None,
        new_uid: Callable[[], str] | None = None,
    ) -> None:
        """`new_uid` gives each object its uid; a simulation passes one that repeats itself."""
        clock = clock or SystemClock()
        backend = _Dicts(clock, window or Window())
        super().__init__(backend, authorise=authorise, clock=clock, new_uid=new_uid)


class _Dicts:
    """A `Backend`, and both sides of it: its one lock makes a transaction and a snapshot alike."""

    def __init__(self, clock: Clock, window: Window) -> None:
        self.epoch = new_epoch()
        self._watch_cache = WatchCache(epoch=self.epoch, window=window, clock=clock)
        self._lock = threading.RLock()
        self._revision = 0
        self._kinds: dict[str, _Shelf] = {}
        self._uids: set[str] = set()
        self._owned: dict[str, set[tuple[str, _Key]]] = {}
        self._leases: dict[str, LeaseRow] = {}
        self._told: list[Step] = []

    def write(self, operation: Callable[[Transaction], T]) -> T:
        with self._lock:
            before = self._revision
            self._told = []
            result = operation(self)
            wake = self._watch_cache.extend(before, self._told, self._revision)
        # outside the lock: a woken reader may be about to call the store
        for watch in wake:
            watch.wake()
        return result

    @contextmanager
    def read(self) -> Generator[_Dicts]:
        with self._lock:
            yield self

    def watch(self, kind: Kind, namespace: str, version: str) -> CacheWatch:
        return self._watch_cache.watch(kind, namespace, version, lambda: self._revision)

    def close(self) -> None:
        self._watch_cache.close()

    @property
    def head(self) -> int:
        return self._revision

    @property
    def compacted_revision(self) -> int:
        return self._watch_cache.compacted_revision

    def document(self, kind: str, namespace: str, name: str) -> bytes | None:
        row = self.find(kind, namespace, name)
        return None if row is None else row.document

    def documents(self, query: Query) -> list[tuple[str, str, bytes]]:
        rows = islice(self._matching(query), query.limit or None)
        return [(row.namespace, row.name, row.document) for row in rows]

    def count(self, query: Query) -> int:
        return sum(1 for _ in self._matching(query))

    def find(self, kind: str, namespace: str, name: str) -> Row | None:
        shelf = self._kinds.get(kind)
        return None if shelf is None else shelf.rows.get((namespace, name))

    def has_uid(self, uid: str) -> bool:
        return uid in self._uids

    def owned_by(self, uid: str) -> list[Row]:
        return [self._kinds[kind].rows[key] for kind, key in sorted(self._owned.get(uid, ()))]

    def next_version(self) -> tuple[int, str]:
        self._revision += 1
        return self._revision, version_text(self.epoch, self._revision)

    def apply(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            row, key = change.row, (change.row.namespace, change.row.name)
            shelf = self._kinds.setdefault(row.kind, _Shelf())
            self._disown(row.kind, key, shelf.rows.get(key))
            if change.type == "Deleted":
                shelf.remove(key)
                self._uids.discard(row.uid)
            else:
                shelf.put(key, row)
                self._uids.add(row.uid)
                for owner in row.owners:
                    self._owned.setdefault(owner, set()).add((row.kind, key))
            self._told.append(change.step())

    def lease(self, name: str) -> LeaseRow | None:
        return self._leases.get(name)

    def put_lease(self, row: LeaseRow) -> None:
        self._leases[row.name] = row

    def _matching(self, query: Query) -> Iterator[Row]:
        shelf = self._kinds.get(query.kind)
        if shelf is None:
            return
        selector = query.selector
        for key in shelf.keys_between(query.namespace, query.after):
            row = shelf.rows[key]
            if not selector.requirements or selector.matches(row.labels):
                yield row

    def _disown(self, kind: str, key: _Key, row: Row | None) -> None:
        for owner in row.owners if row else ():
            owned = self._owned[owner]
            owned.discard((kind, key))
            if not owned:
                del self._owned[owner]


class _Shelf:
    """The objects of one kind, and their keys in order."""

    def __init__(self) -> None:
        self.rows: dict[_Key, Row] = {}
        self._keys: list[_Key] = []

    def put(self, key: _Key, row: Row) -> None:
        if key not in self.rows:
            insort(self._keys, key)
        self.rows[key] = row

    def remove(self, key: _Key) -> None:
        del self.rows[key]
        del self._keys[bisect_left(self._keys, key)]

    def keys_between(self, namespace: str, after: _Key | None) -> Iterator[_Key]:
        """The keys behind `after`, of one namespace or of all."""
        start = bisect_right(self._keys, after) if after else 0
        end = len(self._keys)
        if namespace:
            start = max(start, bisect_left(self._keys, (namespace, "")))
            end = bisect_right(self._keys, (namespace, _LAST))
        return islice(self._keys, start, end)
