"""The Store over anything that has transactions: asks `authorise`, runs the rules, wakes the watches."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from shoal import metrics
from shoal.clock import Clock
from shoal.objects import codec
from shoal.objects.errors import Invalid, NotFound, ShoalError
from shoal.objects.kinds import LEASE, Kind, kind_called
from shoal.objects.meta import Object
from shoal.objects.selectors import Selector
from shoal.store import rules
from shoal.store.backend import (
    Backend,
    Cursor,
    LeaseRow,
    Query,
    Transaction,
    read_cursor,
    read_version,
    version_text,
)
from shoal.store.base import Actor, Authorise, Lease, Page, Record, Watch
from shoal.store.watch_cache import expired

K = TypeVar("K", bound=Object)


class TransactionalStore:
    """See `shoal.store.base.Store`. Owns its backend."""

    def __init__(
        self,
        backend: Backend,
        *,
        authorise: Authorise,
        clock: Clock,
        new_uid: Callable[[], str] | None = None,
    ) -> None:
        self._backend = backend
        self._authorise = authorise
        self._clock = clock
        self._new_uid = new_uid or _random_uid
        self._observations = _LeaseObservations(clock)

    def create(self, obj: K, *, actor: Actor) -> K:
        kind = _kind(obj)
        self._authorise(actor, "create", kind, *_key(kind, obj.metadata.namespace, obj.metadata.name))
        uid, now = self._new_uid(), self._clock.now()

        def operation(transaction: Transaction) -> bytes:
            return _applied(
                transaction,
                rules.create(transaction, kind, obj, submitter=actor.submitter, uid=uid, now=now),
            )

        with _Measured("create", kind):
            return codec.decode(self._backend.write(operation), type(obj))

    def get(self, kind: type[K], namespace: str, name: str, *, actor: Actor) -> K:
        return self.record(_kind(kind), namespace, name, actor=actor).decode(kind)

    def record(self, kind: Kind, namespace: str, name: str, *, actor: Actor) -> Record:
        namespace, name = _key(kind, namespace, name)
        self._authorise(actor, "get", kind, namespace, name)
        with _Measured("get", kind), self._backend.read() as snapshot:
            document = snapshot.document(kind.name, namespace, name)
        if document is None:
            raise NotFound(f"{rules.described(kind, namespace, name)} does not exist")
        return Record(kind, document)

    def list(
        self,
        kind: Kind,
        *,
        actor: Actor,
        namespace: str = "",
        selector: str = "",
        limit: int = 0,
        cursor: str = "",
    ) -> Page:
        namespace, _ = _key(kind, namespace, "")
        self._authorise(actor, "list", kind, namespace, "")
        begun = read_cursor(cursor) if cursor else None
        if limit < 0:
            raise Invalid(f"a list's limit cannot be {limit}")
        query = Query(
            kind.name,
            namespace,
            Selector.parse(selector),
            after=(begun.namespace, begun.name) if begun else None,
            limit=limit + 1 if limit else 0,
        )
        epoch = self._backend.epoch
        with _Measured("list", kind), self._backend.read() as snapshot:
            if begun and read_version(begun.version, epoch) < snapshot.compacted_revision:
                raise expired()
            version = begun.version if begun else version_text(epoch, snapshot.head)
            found = snapshot.documents(query)
            shown = found[:limit] if limit else found
            records = tuple(Record(kind, document) for _, _, document in shown)
            if len(shown) == len(found):
                return Page(records, version)
            last = shown[-1][:2]
            remaining = snapshot.count(replace(query, after=last))
        return Page(records, version, Cursor(version, *last).text(), remaining)

    def update(self, obj: K, *, actor: Actor) -> K:
        kind = _kind(obj)
        self._authorise(actor, "update", kind, *_key(kind, obj.metadata.namespace, obj.metadata.name))
        now = self._clock.now()

        def operation(transaction: Transaction) -> bytes:
            return _applied(transaction, rules.update(transaction, kind, obj, now=now))

        with _Measured("update", kind):
            return codec.decode(self._backend.write(operation), type(obj))

    def patch_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        actor: Actor,
        writer: str,
        uid: str,
        counter: int,
        fields: Mapping[str, Any],
        generation: int | None = None,
    ) -> Record:
        namespace, name = _key(kind, namespace, name)
        self._authorise(actor, "patch_status", kind, namespace, name)
        patch = rules.Patch(actor, writer, uid, counter, fields, generation)

        def operation(transaction: Transaction) -> bytes:
            return _applied(transaction, rules.patch_status(transaction, kind, namespace, name, patch))

        with _Measured("patch_status", kind):
            return Record(kind, self._backend.write(operation))

    def delete(self, kind: Kind, namespace: str, name: str, *, actor: Actor, uid: str = "") -> Record:
        namespace, name = _key(kind, namespace, name)
        self._authorise(actor, "delete", kind, namespace, name)
        now = self._clock.now()

        def operation(transaction: Transaction) -> bytes:
            return _applied(
                transaction, rules.delete(transaction, kind, namespace, name, uid=uid, now=now)
            )

        with _Measured("delete", kind):
            return Record(kind, self._backend.write(operation))

    def watch(self, kind: Kind, *, actor: Actor, version: str, namespace: str = "") -> Watch:
        namespace, _ = _key(kind, namespace, "")
        self._authorise(actor, "watch", kind, namespace, "")
        with _Measured("watch", kind):
            return self._backend.watch(kind, namespace, version)

    def acquire(self, name: str, holder: str, duration_seconds: float, *, actor: Actor) -> Lease | None:
        self._authorise(actor, "lease", LEASE, "", name)
        if not (name and holder and duration_seconds > 0):
            raise Invalid("a lease needs a name, a holder and a duration above zero")
        _check_text("a lease", name, holder)

        def operation(transaction: Transaction) -> Lease | None:
            row = self._observations.taken(transaction.lease(name), name, holder, duration_seconds)
            if row is None:
                return None
            transaction.put_lease(row)
            return Lease(row.name, row.holder, row.token, row.duration_seconds)

        with _Measured("acquire", LEASE):
            return self._backend.write(operation)

    def release(self, lease: Lease, *, actor: Actor) -> None:
        self._authorise(actor, "lease", LEASE, "", lease.name)
        _check_text("a lease", lease.name)

        def operation(transaction: Transaction) -> None:
            row = self._observations.released(transaction.lease(lease.name), lease.holder, lease.token)
            if row is not None:
                transaction.put_lease(row)

        with _Measured("release", LEASE):
            self._backend.write(operation)

    def close(self) -> None:
        self._backend.close()


class _Measured:
    """Measures one store call; a context manager, and no generator, for it is on every call's path."""

    def __init__(self, operation: str, kind: Kind) -> None:
        self._labels = (operation, kind.name)

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        metrics.STORE_SECONDS.labels(*self._labels).observe(time.perf_counter() - self._begun)
        if error is not None:
            code = error.code if isinstance(error, ShoalError) else "Failure"
            metrics.STORE_FAILURES.labels(*self._labels, code).inc()


class _LeaseObservations:
    """When this process last saw each lease change. Thread-safe.

    Whether a lease has run out is judged by how long it has been seen unchanged, never by a wall clock.
    Two processes may each believe for a moment that they hold it (a stalled holder does not know that
    its time is over), so what a holder writes is guarded by preconditions as well; see `base`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, float]] = {}

    def taken(self, row: LeaseRow | None, name: str, holder: str, duration: float) -> LeaseRow | None:
        """The lease as `holder` would store it, None while another holds it."""
        if row is None:
            return self._note(LeaseRow(name, holder, 1, duration, 1))
        renewed = replace(row, duration_seconds=duration, renewals=row.renewals + 1)
        if row.holder == holder:
            return self._note(renewed)
        if row.holder and not self._run_out(row):
            return None
        return self._note(replace(renewed, holder=holder, token=row.token + 1))

    def released(self, row: LeaseRow | None, holder: str, token: int) -> LeaseRow | None:
        """The lease without a holder; None when it was not this holder's."""
        if row is None or (row.holder, row.token) != (holder, token):
            return None
        return self._note(replace(row, holder="", renewals=row.renewals + 1))

    def _run_out(self, row: LeaseRow) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            seen = self._seen.get(row.name)
            if seen is None or seen[0] != row.renewals:
                self._seen[row.name] = (row.renewals, now)
                return False
            return now - seen[1] >= row.duration_seconds

    def _note(self, row: LeaseRow) -> LeaseRow:
        with self._lock:
            self._seen[row.name] = (row.renewals, self._clock.monotonic())
        return row


def _random_uid() -> str:
    return str(uuid.uuid4())


def _kind(obj: Object | type[Object]) -> Kind:
    """The kind by its name on the wire, so that a class with more fields than ours finds its own."""
    if isinstance(obj, Object):
        name = obj.kind
    else:
        name = next(f.default for f in msgspec.structs.fields(obj) if f.name == "kind")
    kind = kind_called(name)
    if kind is None:
        raise NotFound(f"there is no kind called {name!r}")
    return kind


def _key(kind: Kind, namespace: str, name: str) -> tuple[str, str]:
    """The key as stored: what is cluster-wide has no namespace, whatever the caller says."""
    _check_text(f"the key of a {kind.name.lower()}", namespace, name)
    return (namespace if kind.namespaced else "", name)


def _check_text(what: str, *parts: str) -> None:
    """Databases differ in the odd text that they take; no key has any.

    Raises:
        Invalid: a part holds more than printable ASCII.
    """
    for part in parts:
        if not (part.isascii() and part.isprintable()):
            raise Invalid(f"{part!r} cannot be in {what}")


def _applied(transaction: Transaction, outcome: rules.Outcome) -> bytes:
    if outcome.changes:
        transaction.apply(outcome.changes)
    return outcome.document
