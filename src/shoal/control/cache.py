"""The objects of one kind as this process knows them: list, then watch, and writes that show at once.

Objects reach the cache in three ways: watch events (in the store's order), the results of this
process's own writes and reads (at any time), and relists. An older one must never replace a newer one,
and versions only compare for equality. So:

- A write or read is *in flight* from before it is sent. If the version it returns has been applied
  by then, what is cached is as new or newer, and the result is dropped.
- Otherwise it is applied, and events of that object are skipped until the one with its version comes:
  they are older, for the watch is in order.
- Generation and the writers' counters only rise. Where they differ they decide, whatever the order.
- An object that is known to be gone stays gone until its `Deleted` event has passed.

A document that cannot be decoded (an enum of a newer version, a damaged field) is *quarantined*: the
object is not in the cache, `undecodable` lists it with the reason, and everything else goes on. It
comes back with the version that can be decoded; a controller with a finalizer on it finishes its
deletion by the metadata alone (`Source.undecodable`, `ObjectCache.remove_finalizer`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from zlib import crc32

import msgspec

from shoal.admission.admission import Admission
from shoal.clock import Clock
from shoal.control.runner import Key
from shoal.metrics import UNDECODABLE
from shoal.objects import codec
from shoal.objects.errors import Conflict, Expired, Invalid, NotFound, Unavailable, VersionSkew
from shoal.objects.kinds import Kind
from shoal.objects.meta import Object, Part, PartialObject
from shoal.store.base import Actor, Event, Record, Store, Watch, allow_all

K = TypeVar("K", bound=Object)
S = TypeVar("S")
_LOG = logging.getLogger("shoal.control")
_POLL_SECONDS = 5.0
"""`sync` is called so often even if the watch never says that it is ready."""
_RETRY_SECONDS = 1.0
"""A callback that raised is called again after so long at the latest."""


@dataclass(frozen=True)
class Undecodable:
    """An object that is left out of a cache because its document cannot be decoded."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    error: str
    partial: PartialObject | None = None
    """What can be read of it all the same; None: not even its metadata."""

    @property
    def key(self) -> Key:
        """As `Object.key`."""
        return (self.namespace, self.name)

    def __str__(self) -> str:
        what = "/".join(part for part in (self.kind.lower(), self.namespace, self.name) if part)
        return f"{what} cannot be decoded and is left as it is: {self.error}"


class Closable(Protocol):
    """A watch."""

    def close(self) -> None:
        """End it; idempotent."""


W = TypeVar("W", bound=Closable)


class WatchedCache(Generic[S, W]):
    """What the implementations of `shoal.control.runner.Cache` share: readiness, and subscribers.

    A callback that raises is called again before the next sync, with what has changed since it last took
    a change in; the other callbacks and changes are not affected. Thread-safe.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """See `Cache.name`."""
        self.ready = threading.Event()
        self._synced = False
        self._watch: W | None = None
        self._callbacks: list[Callable[[S | None, S | None], None]] = []
        self._undelivered_lock = threading.Lock()
        self._undelivered: dict[tuple[int, Hashable], tuple[S | None, S | None]] = {}
        self._error = ""

    @property
    def synced(self) -> bool:
        return self._synced

    def on_change(self, callback: Callable[[S | None, S | None], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _due_after(self, seconds: float) -> float:
        """`sync_after` of a cache that is due after that time: sooner while a callback has to be called
        again."""
        return max(0.001, min(seconds, _RETRY_SECONDS) if self._undelivered else seconds)

    def _notify(self, key: Hashable, old: S | None, new: S | None) -> None:
        """Call all callbacks with a change of that key."""
        for number in range(len(self._callbacks)):
            self._call(number, key, old, new)

    def _notify_again(self) -> None:
        """Call each callback that raised again: `sync` begins with it."""
        if self._undelivered:
            with self._undelivered_lock:
                undelivered, self._undelivered = self._undelivered, {}
            for (number, key), (old, new) in undelivered.items():
                self._call(number, key, old, new)

    def _call(self, number: int, key: Hashable, old: S | None, new: S | None) -> None:
        if self._undelivered:
            with self._undelivered_lock:
                old = self._undelivered.pop((number, key), (old, None))[0]
        try:
            self._callbacks[number](old, new)
        except Exception as error:  # noqa: BLE001 - logged and tried again; the others must get theirs
            with self._undelivered_lock:
                old = self._undelivered.get((number, key), (old, None))[0]
                self._undelivered[number, key] = (old, new)
                text = f"{type(error).__name__}: {error}"
                known, self._error = text == self._error, text
            if not known:
                _LOG.exception("a change of %s %s was not taken in; it is tried again", self.name, key)


class ObjectCache(WatchedCache[K, Watch]):
    """See the module's docstring. Reads and writes from any thread, `sync` from one at a time."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        *,
        actor: Actor,
        clock: Clock,
        admission: Admission | None = None,
    ) -> None:
        """`admission` is what new objects pass; absent: one that knows the store alone."""
        super().__init__(kind.plural)
        self._store = store
        self._kind = kind
        self._actor = actor
        self._clock = clock
        self._admission = admission or Admission(store, authorise=allow_all)
        self._lock = threading.RLock()
        self._objects: dict[Key, K] = {}
        self._owned: dict[str, set[Key]] = {}
        """Uid of an owner to the keys of the objects that name it."""
        self._awaited: dict[Key, str] = {}
        self._gone: dict[Key, str] = {}
        self._in_flight: list[InFlightWrite] = []
        self._undecodable: dict[Key, Undecodable] = {}
        self._last_known: dict[Key, K] = {}
        """Of undecodable objects: what they were before."""
        self._quarantined: list[Callable[[Undecodable], None]] = []

    def get(self, key: Key) -> K | None:
        """The object as last seen."""
        return self._objects.get(key)

    def all(self) -> list[K]:
        """All objects, in no particular order."""
        with self._lock:
            return list(self._objects.values())

    def owned_by(self, uid: str) -> list[K]:
        """The objects that name the object of this uid as an owner, in the order of their keys."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._owned.get(uid, ()))]

    def __len__(self) -> int:
        return len(self._objects)

    def on_undecodable(self, callback: Callable[[Undecodable], None]) -> None:
        """Call `callback` once for each version that is quarantined; it must not block or raise."""
        self._quarantined.append(callback)

    def undecodable(self) -> tuple[Undecodable, ...]:
        """The objects that are left out, by key."""
        with self._lock:
            return tuple(self._undecodable[key] for key in sorted(self._undecodable))

    def quarantined(self, key: Key) -> Undecodable | None:
        """The object of that key which is left out; None: there is none, or `get` has it."""
        return self._undecodable.get(key)

    def last_known(self) -> list[K]:
        """The undecodable objects as they were when they could be decoded last, where that was seen."""
        with self._lock:
            return [obj for key, obj in self._last_known.items() if key in self._undecodable]

    def sync(self) -> bool:
        self.ready.clear()
        self._notify_again()
        if self._watch is None:
            return self._relist()
        try:
            events = self._watch.poll()
        except Expired:
            self.close()
            return self._relist()
        except Unavailable:
            raise  # the watch goes on where it is once the store answers
        except Exception:
            self.close()  # what this poll took may be lost with it: the next call lists again
            raise
        for event in events:
            self._apply_event(event)
        return bool(events)

    def sync_after(self) -> float:
        return self._due_after(_POLL_SECONDS)

    def patch_status(
        self, obj: K, *, writer: str, fields: Mapping[str, Any], generation: int | None = None
    ) -> K:
        """`Store.patch_status` with the uid and counter of `obj`; the result shows in the cache.

        Raises:
            Conflict: another writer was first; the cache has been brought up to date.
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
        return self._commit_record(write, record)

    def update(self, obj: K) -> K:
        """`Store.update`; the result shows in the cache.

        Raises:
            Conflict: another writer was first; the cache has been brought up to date.
            NotFound: it is gone, and gone from the cache.
        """
        with self._writing(obj.key) as write:
            result = self._store.update(obj, actor=self._actor)
        if result.metadata.deleted and not result.metadata.finalizers:
            self._commit_gone(write, result.metadata.uid)
            return result
        return self._commit(write, result)

    def remove_finalizer(self, obj: Object, finalizer: str) -> None:
        """Write the object without that finalizer; only its metadata need be readable. It goes with its
        last one, when its deletion was asked for.

        Raises:
            Conflict: another writer was first; the cache has been brought up to date.
            NotFound: it is gone, and gone from the cache.
        """
        kept = tuple(each for each in obj.metadata.finalizers if each != finalizer)
        metadata = msgspec.structs.replace(obj.metadata, finalizers=kept)
        with self._writing(obj.key) as write:
            without = msgspec.structs.replace(obj, metadata=metadata, kind=self._kind.name)
            result = self._store.update(without, actor=self._actor)
        if result.metadata.deleted and not kept:
            self._commit_gone(write, result.metadata.uid)
        else:
            self._abort(write)
            self.refresh(obj.key)

    def create(self, obj: K, *, owner: Object | None = None) -> K:
        """`Admission.create`, for the owner's submitter; the result shows in the cache.

        Raises:
            Exists: there is one of this name; the cache has been brought up to date.
            Invalid, Forbidden, Conflict: it is not admitted.
        """
        with self._writing(obj.key) as write:
            result = self._admission.create(obj, actor=self._actor, owner=owner)
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
            kept = codec.decode(record.document, _Kept).metadata.finalizers
            if kept:
                self._commit_record(write, record)
            else:
                self._commit_gone(write, meta.uid)

    def refresh(self, key: Key) -> K | None:
        """Read the object from the store now; None also when it cannot be decoded."""
        write = self._begin(key)
        try:
            record = self._store.record(self._kind, key[0], key[1], actor=self._actor)
        except NotFound:
            self._commit_gone(write, write.uid)
            return None
        except BaseException:
            self._abort(write)
            raise
        try:
            return self._commit_record(write, record)
        except Invalid:  # quarantined
            return None

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

    def _commit_record(self, write: InFlightWrite, record: Record) -> K:
        """As `_commit`.

        Raises:
            Invalid: it cannot be decoded, and is quarantined.
        """
        obj = self._decoded(record)
        if not isinstance(obj, Undecodable):
            return self._commit(write, obj)
        with self._lock:
            self._abort(write)
            stale = obj.version in write.versions or obj.uid in write.gone
        if not stale:
            self._quarantine(write.key, obj)
        raise Invalid(str(obj))

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
        self._notify(obj.key, old, obj)
        return obj

    def _commit_gone(self, write: InFlightWrite, uid: str) -> None:
        with self._lock:
            self._abort(write)
            old = self._objects.get(write.key)
            if old is None or old.metadata.uid != uid:
                return
            self._gone[write.key] = uid
            self._remove(write.key, uid)
        self._notify(old.key, old, None)

    def _apply_event(self, event: Event) -> None:
        if event.record is None:
            return
        if event.type == "Deleted":
            self._apply_deleted(event.record)
            return
        obj = self._decoded(event.record)
        if isinstance(obj, Undecodable):
            self._apply_undecodable(_key_of(event.record), obj)
            return
        key, uid = obj.key, obj.metadata.uid
        with self._lock:
            old = self._objects.get(key)
            if self._gone.get(key) == uid or not self._newer(key, old, obj):
                return
            self._set(key, obj)
        self._notify(obj.key, old, obj)

    def _apply_deleted(self, record: Record) -> None:
        key, uid = _key_of(record), record.identity.uid
        with self._lock:
            held = self._undecodable.get(key)
            if held is not None and held.uid == uid:
                self._release(key)
            if self._gone.get(key) == uid:
                del self._gone[key]
            old = self._objects.get(key)
            if old is None or old.metadata.uid != uid:
                self._note_gone(key, uid)
                return
            self._remove(key, uid)
        self._notify(old.key, old, None)

    def _apply_undecodable(self, key: Key, found: Undecodable) -> None:
        with self._lock:
            awaited = self._awaited.get(key)
            if awaited is not None:
                if awaited == found.version:
                    del self._awaited[key]
                return  # older than what is known, or that very version
            if self._gone.get(key) == found.uid:
                return
        self._quarantine(key, found)

    def _quarantine(self, key: Key, found: Undecodable) -> None:
        """Leave the object out of the cache; its tasks and capacity stay as they are."""
        with self._lock:
            known = self._undecodable.get(key)
            self._undecodable[key] = found
            old = self._objects.get(key)
            if old is not None:
                self._remove(key, old.metadata.uid)
                self._last_known[key] = old
            UNDECODABLE.labels(self._kind.name).set(len(self._undecodable))
            for write in self._in_flight:
                write.applied(key, found.version)
        if known is None or known.version != found.version:
            _LOG.warning("%s", found)
            for callback in self._quarantined:
                callback(found)
        if old is not None:
            self._notify(old.key, old, None)

    def _release(self, key: Key) -> None:
        del self._undecodable[key]
        self._last_known.pop(key, None)
        UNDECODABLE.labels(self._kind.name).set(len(self._undecodable))

    def _decoded(self, record: Record) -> K | Undecodable:
        try:
            return record.object
        except VersionSkew as error:
            namespace, name, uid, version = record.identity
            text = f"{type(error.__cause__).__name__}: {error.__cause__}"
            return Undecodable(self._kind.name, namespace, name, uid, version, text, _partial(record))

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
        listed: dict[Key, K] = {}
        undecodable: dict[Key, Undecodable] = {}
        for record in page.records:
            obj = self._decoded(record)
            if isinstance(obj, Undecodable):
                undecodable[_key_of(record)] = obj
            else:
                listed[obj.key] = obj
        with self._lock:
            self._abort(listing)
            changes = self._take_list(listed, listing, undecodable)
        for key, old, new in changes:
            self._notify(key, old, new)
        for key, found in undecodable.items():
            if key not in listing.touched:
                self._quarantine(key, found)
        for key in listing.touched:
            self._settle(key, listed.get(key))
        self._synced = True
        _LOG.debug("listed %d %s", len(listed), self.name)
        return True

    def _take_list(
        self, listed: dict[Key, K], listing: InFlightList, undecodable: Mapping[Key, Undecodable]
    ) -> list[tuple[Key, K | None, K | None]]:
        changes: list[tuple[Key, K | None, K | None]] = []
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
                changes.append((key, old, obj))
        for key, old in list(self._objects.items()):
            if key not in listed and key not in listing.touched and key not in undecodable:
                self._remove(key, old.metadata.uid)
                changes.append((key, old, None))
        for key in [key for key in self._undecodable if key not in undecodable]:
            if key not in listing.touched:
                self._release(key)
        for key in undecodable:
            if key not in listing.touched:
                self._awaited.pop(key, None)
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
        self._index(key, self._objects.get(key), obj)
        self._objects[key] = obj
        if self._undecodable.pop(key, None) is not None:
            self._last_known.pop(key, None)
            UNDECODABLE.labels(self._kind.name).set(len(self._undecodable))
            _LOG.info("%s %s can be decoded again", self.name, "/".join(key))
        for write in self._in_flight:
            write.applied(key, obj.metadata.resource_version)

    def _index(self, key: Key, old: K | None, new: K | None) -> None:
        """Keep `_owned` right when `new` takes the place of `old`."""
        for uid in _owners(old):
            self._owned[uid].discard(key)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in _owners(new):
            self._owned.setdefault(uid, set()).add(key)

    def _remove(self, key: Key, uid: str) -> None:
        self._index(key, self._objects.pop(key), None)
        self._awaited.pop(key, None)
        self._note_gone(key, uid)

    def _note_gone(self, key: Key, uid: str) -> None:
        for write in self._in_flight:
            write.deleted(key, uid)


def _partial(record: Record) -> PartialObject | None:
    try:
        return record.decode(PartialObject)
    except VersionSkew:
        return None


def _key_of(record: Record) -> Key:
    """The record's key; of a document that does not say it, one that stands for its bytes."""
    identity = record.identity
    if not identity.name:
        return ("", f"unreadable-{crc32(record.document):08x}")
    return (identity.namespace if record.kind.namespaced else "", identity.name)


class _Finalizers(msgspec.Struct):
    finalizers: tuple[str, ...] = ()


class _Kept(msgspec.Struct):
    """As much of a deleted object as says whether it is still there."""

    metadata: _Finalizers


class InFlightWrite:
    """A write or read under way: which versions of its key have been applied since it began."""

    def __init__(self, key: Key, cached: Object | None) -> None:
        self.key = key
        self.uid = cached.metadata.uid if cached is not None else ""
        self.versions = {cached.metadata.resource_version} if cached is not None else set[str]()
        self.gone: set[str] = set()
        self.relisted = False
        """True: a whole list has been taken in since, so its event may never come."""

    def applied(self, key: Key, version: str) -> None:
        """That version of the key shows in the cache now."""
        if key == self.key:
            self.versions.add(version)

    def deleted(self, key: Key, uid: str) -> None:
        """That uid is gone."""
        if key == self.key:
            self.gone.add(uid)


class InFlightList(InFlightWrite):
    """A list under way: which keys have been written since it was sent; those are read one by one."""

    def __init__(self) -> None:
        super().__init__(("", ""), None)
        self.touched: set[Key] = set()

    def applied(self, key: Key, version: str) -> None:
        self.touched.add(key)

    def deleted(self, key: Key, uid: str) -> None:
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


def _owners(obj: Object | None) -> set[str]:
    return set() if obj is None else {owner.uid for owner in obj.metadata.owners}
