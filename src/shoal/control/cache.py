"""The objects of one kind as this process knows them: list, then watch, and writes that show at once.

Three things tell the cache of an object: watch events (in the store's order), the results of this
process's own writes and reads (at any time), and relists. An older one must never replace a newer one,
and versions only compare for equality. So:

- A write or read is *in flight* from before it is sent. If the version it returns has been applied
  meanwhile, what is cached is as new or newer, and the result is dropped.
- Otherwise it is applied, and events of that object are skipped until the one with its version comes:
  they are older, for the watch is in order.
- Generation and the writers' counters only rise. Where they differ they decide, whatever the order.
- An object that is known to be gone stays gone until its `Deleted` event has passed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from shoal.clock import Clock
from shoal.control.workqueue import Key
from shoal.objects import codec
from shoal.objects.errors import Conflict, Expired, NotFound
from shoal.objects.kinds import Kind
from shoal.objects.meta import Object, Part
from shoal.store.base import Actor, Event, Store, Watch

__all__ = ["InFlightList", "InFlightWrite", "ObjectCache", "changed_fields", "compare"]

K = TypeVar("K", bound=Object)
_LOG = logging.getLogger("shoal.control")
_POLL_SECONDS = 5.0
"""`sync` is called so often even if the watch never says that it is ready."""


class ObjectCache(Generic[K]):
    """See the module's docstring. Reads and writes from any thread, `sync` from one at a time."""

    def __init__(self, store: Store, kind: Kind, *, actor: Actor, clock: Clock) -> None:
        self._store = store
        self._kind = kind
        self._actor = actor
        self._clock = clock
        self._lock = threading.RLock()
        self._objects: dict[Key, K] = {}
        self._awaited: dict[Key, str] = {}
        self._gone: dict[Key, str] = {}
        self._in_flight: list[InFlightWrite] = []
        self._callbacks: list[Callable[[K | None, K | None], None]] = []
        self._watch: Watch | None = None
        self._synced = False
        self.ready = threading.Event()

    @property
    def name(self) -> str:
        """See `Cache.name`."""
        return self._kind.plural

    @property
    def synced(self) -> bool:
        """See `Cache.synced`."""
        return self._synced

    def get(self, key: Key) -> K | None:
        """The object as last seen."""
        return self._objects.get(key)

    def all(self) -> list[K]:
        """All objects, in no particular order."""
        with self._lock:
            return list(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)

    def on_change(self, callback: Callable[[K | None, K | None], None]) -> None:
        """See `Cache.on_change`."""
        self._callbacks.append(callback)

    def sync(self) -> bool:
        """See `Cache.sync`."""
        self.ready.clear()
        if self._watch is None:
            return self._relist()
        try:
            events = self._watch.poll()
        except Expired:
            self.close()
            return self._relist()
        for event in events:
            self._apply_event(event)
        return bool(events)

    def sync_after(self) -> float:
        """See `Cache.sync_after`."""
        return _POLL_SECONDS

    def close(self) -> None:
        """See `Cache.close`."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def patch_status(
        self, obj: K, *, writer: str, fields: Mapping[str, Any], generation: int | None = None
    ) -> K:
        """`Store.patch_status` with the uid and counter of `obj`; the result shows in the cache.

        Raises:
            Conflict: somebody else wrote; the cache has been brought up to date.
            NotFound: it is gone, and gone from the cache.
        """
        meta = obj.metadata
        with self._writing(obj.key) as write:
            record = self._store.patch_status(
                self._kind,
                meta.namespace,
                meta.name,
                actor=self._actor,
                writer=writer,
                uid=meta.uid,
                counter=obj.status.writers.get(writer, 0),
                fields=fields,
                generation=generation,
            )
        return self._commit(write, record.object)

    def update(self, obj: K) -> K:
        """`Store.update`; the result shows in the cache.

        Raises:
            Conflict: somebody else wrote; the cache has been brought up to date.
            NotFound: it is gone, and gone from the cache.
        """
        with self._writing(obj.key) as write:
            result = self._store.update(obj, actor=self._actor)
        if result.metadata.deleted and not result.metadata.finalizers:
            self._commit_gone(write, result.metadata.uid)
            return result
        return self._commit(write, result)

    def create(self, obj: K) -> K:
        """`Store.create`; the result shows in the cache.

        Raises:
            Exists: there is one of this name; the cache has been brought up to date.
        """
        with self._writing(obj.key) as write:
            result = self._store.create(obj, actor=self._actor)
        return self._commit(write, result)

    def delete(self, obj: K) -> None:
        """`Store.delete` of this very object; fine if it is gone."""
        meta = obj.metadata
        write = self._begin(obj.key)
        try:
            record = self._store.delete(
                self._kind, meta.namespace, meta.name, actor=self._actor, uid=meta.uid
            )
        except NotFound:
            self._commit_gone(write, meta.uid)
        except BaseException:
            self._abort(write)
            raise
        else:
            if record.object.metadata.finalizers:
                self._commit(write, record.object)
            else:
                self._commit_gone(write, meta.uid)

    def refresh(self, key: Key) -> K | None:
        """Read the object from the store now."""
        write = self._begin(key)
        try:
            obj = self._store.get(self._kind.struct, key[0], key[1], actor=self._actor)
        except NotFound:
            self._commit_gone(write, write.uid)
            return None
        except BaseException:
            self._abort(write)
            raise
        return self._commit(write, obj)  # pyright: ignore[reportArgumentType] - the kind's own Struct

    @contextmanager
    def _writing(self, key: Key) -> Generator[InFlightWrite]:
        write = self._begin(key)
        try:
            yield write
        except (Conflict, NotFound):
            self._abort(write)
            self.refresh(key)
            raise
        except BaseException:
            self._abort(write)
            raise

    def _begin(self, key: Key) -> InFlightWrite:
        with self._lock:
            cached = self._objects.get(key)
            write = InFlightWrite(key, cached)
            self._in_flight.append(write)
            return write

    def _abort(self, write: InFlightWrite) -> None:
        with self._lock:
            self._in_flight = [other for other in self._in_flight if other is not write]

    def _commit(self, write: InFlightWrite, obj: K) -> K:
        with self._lock:
            self._abort(write)
            relisted = write.relisted
        if relisted:
            return self.refresh(write.key) or obj
        with self._lock:
            old = self._objects.get(write.key)
            version, uid = obj.metadata.resource_version, obj.metadata.uid
            if version in write.versions or uid in write.gone or self._gone.get(write.key) == uid:
                return old if old is not None and old.metadata.uid == uid else obj
            if old is not None and old.metadata.uid == uid and compare(obj, old) < 0:
                return old
            self._awaited[write.key] = version
            self._set(write.key, obj)
        self._tell(old, obj)
        return obj

    def _commit_gone(self, write: InFlightWrite, uid: str) -> None:
        with self._lock:
            self._abort(write)
            old = self._objects.get(write.key)
            if old is None or old.metadata.uid != uid:
                return
            self._gone[write.key] = uid
            self._remove(write.key, uid)
        self._tell(old, None)

    def _apply_event(self, event: Event) -> None:
        if event.record is None:
            return
        obj: K = event.record.object
        key, uid = obj.key, obj.metadata.uid
        with self._lock:
            old = self._objects.get(key)
            if event.type == "Deleted":
                if self._gone.get(key) == uid:
                    del self._gone[key]
                if old is None or old.metadata.uid != uid:
                    self._note_gone(key, uid)
                    return
                self._remove(key, uid)
                new = None
            else:
                if self._gone.get(key) == uid or not self._newer(key, old, obj):
                    return
                self._set(key, obj)
                new = obj
        self._tell(old, new)

    def _newer(self, key: Key, old: K | None, obj: K) -> bool:
        awaited = self._awaited.get(key)
        if awaited is None or old is None:
            return old is None or old.metadata.resource_version != obj.metadata.resource_version
        if obj.metadata.resource_version == awaited:
            del self._awaited[key]
            return False
        if old.metadata.uid == obj.metadata.uid and compare(obj, old) > 0:
            del self._awaited[key]
            return True
        return False

    def _relist(self) -> bool:
        with self._lock:
            listing = InFlightList()
            self._in_flight.append(listing)
        try:
            page = self._store.list(self._kind, actor=self._actor)
            watch = self._store.watch(self._kind, actor=self._actor, version=page.version)
        except BaseException:
            self._abort(listing)
            raise
        watch.on_ready(self.ready.set)
        self._watch = watch
        listed: dict[Key, K] = {record.object.key: record.object for record in page.records}
        with self._lock:
            self._abort(listing)
            changes = self._take_list(listed, listing)
        for old, new in changes:
            self._tell(old, new)
        for key in listing.touched:
            self._settle(key, listed.get(key))
        self._synced = True
        _LOG.debug("listed %d %s", len(listed), self.name)
        return True

    def _take_list(self, listed: dict[Key, K], listing: InFlightList) -> list[tuple[K | None, K | None]]:
        changes: list[tuple[K | None, K | None]] = []
        self._gone.clear()
        for write in self._in_flight:
            write.relisted = True
        for key, obj in listed.items():
            old = self._objects.get(key)
            if key in listing.touched:
                continue
            self._awaited.pop(key, None)
            if old is None or old.metadata.resource_version != obj.metadata.resource_version:
                self._set(key, obj)
                changes.append((old, obj))
        for key, old in list(self._objects.items()):
            if key not in listed and key not in listing.touched:
                self._remove(key, old.metadata.uid)
                changes.append((old, None))
        return changes

    def _settle(self, key: Key, listed: K | None) -> None:
        """A key that was written while the list was read: which of the two is newer is not known, so
        it is read again; its event is still to come unless it is the very version of the list."""
        with self._lock:
            self._awaited.pop(key, None)
        self.refresh(key)
        with self._lock:
            obj = self._objects.get(key)
            version = listed.metadata.resource_version if listed is not None else ""
            if obj is None or obj.metadata.resource_version == version:
                self._awaited.pop(key, None)
            else:
                self._awaited[key] = obj.metadata.resource_version

    def _set(self, key: Key, obj: K) -> None:
        self._objects[key] = obj
        for write in self._in_flight:
            write.applied(key, obj.metadata.resource_version)

    def _remove(self, key: Key, uid: str) -> None:
        del self._objects[key]
        self._awaited.pop(key, None)
        self._note_gone(key, uid)

    def _note_gone(self, key: Key, uid: str) -> None:
        for write in self._in_flight:
            write.deleted(key, uid)

    def _tell(self, old: K | None, new: K | None) -> None:
        for callback in self._callbacks:
            callback(old, new)


class InFlightWrite:
    """A write or read under way: which versions of its key have been applied since it began."""

    def __init__(self, key: Key, cached: Object | None) -> None:
        self.key = key
        self.uid = cached.metadata.uid if cached is not None else ""
        self.versions = {cached.metadata.resource_version} if cached is not None else set[str]()
        self.gone: set[str] = set()
        self.relisted = False
        """True: a whole list has been taken in since, so events may never tell of the result."""

    def applied(self, key: Key, version: str) -> None:
        """That version of the key shows in the cache now."""
        if key == self.key:
            self.versions.add(version)

    def deleted(self, key: Key, uid: str) -> None:
        """That uid is gone."""
        if key == self.key:
            self.gone.add(uid)


class InFlightList(InFlightWrite):
    """A list under way: which keys have been written meanwhile; those are read one by one."""

    def __init__(self) -> None:
        super().__init__(("", ""), None)
        self.touched: set[Key] = set()

    def applied(self, key: Key, version: str) -> None:
        """See `InFlightWrite.applied`."""
        self.touched.add(key)

    def deleted(self, key: Key, uid: str) -> None:
        """See `InFlightWrite.deleted`."""
        self.touched.add(key)


def compare(one: Object, other: Object) -> int:
    """1 when `one` is surely newer, -1 when surely older, 0 when neither shows."""
    if one.metadata.generation != other.metadata.generation:
        return 1 if one.metadata.generation > other.metadata.generation else -1
    mine: dict[str, int] = getattr(one.status, "writers", {})
    theirs: dict[str, int] = getattr(other.status, "writers", {})
    for writer in mine.keys() | theirs.keys():
        difference = mine.get(writer, 0) - theirs.get(writer, 0)
        if difference:
            return 1 if difference > 0 else -1
    return 0


def changed_fields(old: Part, new: Part) -> dict[str, Any]:
    """Wire name to value of the fields in which `new` differs; None where it has the default again.
    The store's own counters are left out."""
    before, after = codec.builtins(old), codec.builtins(new)
    before.pop("writers", None)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed | {name: None for name in before if name not in after}
