"""The Store over HTTP: the same calls and errors as the store behind the server.

The server derives the caller from the connection, so `actor` is accepted, as the Protocol `Store` has
it, and ignored. Thread-safe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload
from urllib.parse import quote
from weakref import WeakSet

import msgspec

from shoal.client.transport import Transport
from shoal.client.wire import API, IDEMPOTENCY_HEADER, RESULT_HEADER
from shoal.objects import codec
from shoal.objects.errors import Conflict, Expired, Invalid, NotFound, Unavailable
from shoal.objects.kinds import Kind, as_kind, kind_of
from shoal.objects.meta import Object
from shoal.store.base import Actor, Lease, Page, Record, Watch

if TYPE_CHECKING:
    from shoal.client.watch import RemoteWatch

K = TypeVar("K", bound=Object)

AnyKind: TypeAlias = "Kind | type[Object] | str"
"""How callers may name a kind: `JOB`, `Job`, or `"job"` in any spelling that the command line takes."""


class Applied(NamedTuple):
    """What an apply did (or, as a dry run, would do)."""

    record: Record
    result: Literal["created", "changed", "unchanged"]


class RemoteStore:
    """See `shoal.store.base.Store`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._watches: WeakSet[RemoteWatch] = WeakSet()
        self._watching = threading.Lock()
        self._closed = False

    def create(
        self, obj: K, *, actor: Actor | None = None, dry_run: bool = False, idempotent: bool = True
    ) -> K:
        """See `Store.create`. A create that got no answer is sent again under the same key (kept
        in an annotation), so there is one object; unless not `idempotent`. `dry_run`: everything but
        the writing; the object as it would be.

        Raises:
            Invalid: the server does not admit the object; `problems` says everything that is wrong.
        """
        kind = kind_of(obj)
        if kind.namespaced and not obj.metadata.namespace:
            raise Invalid(f"{kind.name.lower()} {obj.metadata.name} needs a namespace")
        answer = self.transport.request(
            "POST",
            _collection(kind, obj.metadata.namespace),
            query={"dryRun": dry_run},
            body=_document(obj),
            headers={IDEMPOTENCY_HEADER: os.urandom(16).hex()} if idempotent else None,
            repeatable=idempotent,
        )
        return codec.decode(answer.body, type(obj))

    @overload
    def get(self, kind: type[K], namespace: str, name: str, *, actor: Actor | None = None) -> K: ...

    @overload
    def get(self, kind: Kind | str, namespace: str, name: str, *, actor: Actor | None = None) -> Any: ...

    def get(self, kind: AnyKind, namespace: str, name: str, *, actor: Actor | None = None) -> Any:
        """See `Store.get`."""
        return self.record(kind, namespace, name).object

    def record(self, kind: AnyKind, namespace: str, name: str, *, actor: Actor | None = None) -> Record:
        """See `Store.record`."""
        kind = as_kind(kind)
        return Record(kind, self.transport.request("GET", object_path(kind, namespace, name)).body)

    def list(
        self,
        kind: AnyKind,
        *,
        actor: Actor | None = None,
        namespace: str = "",
        selector: str = "",
        limit: int = 0,
        cursor: str = "",
    ) -> Page:
        """See `Store.list`."""
        kind = as_kind(kind)
        answer = self.transport.request(
            "GET",
            _collection(kind, namespace),
            query={"labelSelector": selector, "limit": limit or None, "cursor": cursor},
        )
        listed = _LIST.decode(answer.body)
        return Page(
            records=tuple(Record(kind, bytes(item)) for item in listed.items),
            version=listed.metadata.resource_version,
            cursor=listed.metadata.cursor,
            remaining=listed.metadata.remaining,
        )

    def update(self, obj: K, *, actor: Actor | None = None, dry_run: bool = False) -> K:
        """See `Store.update`; `dry_run` as for `create`.

        Raises:
            Invalid: the change is not admitted.
        """
        kind, key = kind_of(obj), obj.metadata
        if not key.resource_version:
            self.record(kind, key.namespace, key.name)
            raise Conflict(
                f"{kind.name.lower()} {key.name} does not say which version of it was read",
                hint="read it and change what was read, or apply it whatever its version",
            )
        answer = self.transport.request(
            "PUT",
            object_path(kind, key.namespace, key.name),
            query={"dryRun": dry_run},
            body=_document(obj),
        )
        return codec.decode(answer.body, type(obj))

    def apply(self, obj: Object, *, dry_run: bool = False) -> Applied:
        """Create the object, or make the one that is there have this spec, these labels and these
        annotations, whatever its version.

        Raises:
            Invalid: it is not admitted.
        """
        kind, key = kind_of(obj), obj.metadata
        wanted = msgspec.structs.replace(
            obj, metadata=msgspec.structs.replace(key, resource_version="", uid="")
        )
        answer = self.transport.request(
            "PUT",
            object_path(kind, key.namespace, key.name),
            query={"dryRun": dry_run},
            body=_document(wanted),
            repeatable=True,
        )
        result = cast(
            "Literal['created', 'changed', 'unchanged']",
            answer.headers.get(RESULT_HEADER.lower(), "changed"),
        )
        return Applied(Record(kind, answer.body), result)

    def patch_status(
        self,
        kind: AnyKind,
        namespace: str,
        name: str,
        *,
        writer: str,
        uid: str,
        counter: int,
        fields: Mapping[str, Any],
        generation: int | None = None,
        actor: Actor | None = None,
    ) -> Record:
        """See `Store.patch_status`."""
        patch = {
            "writer": writer, "uid": uid, "counter": counter, "fields": fields, "generation": generation,
        }  # fmt: skip
        kind = as_kind(kind)
        path = object_path(kind, namespace, name) + "/status"
        return Record(kind, self.transport.request("PATCH", path, body=_document(patch)).body)

    def delete(
        self,
        kind: AnyKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        actor: Actor | None = None,
        dry_run: bool = False,
    ) -> Record:
        """See `Store.delete`."""
        kind = as_kind(kind)
        answer = self.transport.request(
            "DELETE", object_path(kind, namespace, name), query={"uid": uid, "dryRun": dry_run}
        )
        return Record(kind, answer.body)

    def watch(
        self, kind: AnyKind, *, version: str, namespace: str = "", actor: Actor | None = None
    ) -> Watch:
        """See `Store.watch`; survives a restart of the server."""
        if not version:
            raise Expired("a watch needs the version to go on from", hint="list first")
        return self._watch(as_kind(kind), namespace, {"resourceVersion": version}, version)

    def watch_object(self, kind: AnyKind, namespace: str, name: str) -> Watch:
        """Watch one object: its present state first, as `Added`, if it is there, then a `Bookmark`;
        then each change."""
        return self._watch(as_kind(kind), namespace, {"name": name}, "")

    def acquire(
        self, name: str, holder: str, duration_seconds: float, *, actor: Actor | None = None
    ) -> Lease | None:
        """See `Store.acquire`."""
        body = {"holder": holder, "durationSeconds": duration_seconds}
        path = _lease_path(name)
        answer = self.transport.request("PUT", path, body=_document(body), repeatable=True)
        return msgspec.json.decode(answer.body, type=Lease | None)

    def release(self, lease: Lease, *, actor: Actor | None = None) -> None:
        """See `Store.release`."""
        path = _lease_path(lease.name)
        self.transport.request("DELETE", path, body=_document(lease), repeatable=True)

    def close(self) -> None:
        """See `Store.close`."""
        with self._watching:
            self._closed = True
            watches = list(self._watches)
        for watch in watches:
            watch.fail(Unavailable("the client has been closed"))
        self.transport.close()

    def _watch(self, kind: Kind, namespace: str, query: dict[str, str], version: str) -> Watch:
        from shoal.client.watch import RemoteWatch

        if self._closed:
            raise Unavailable("the client has been closed")
        watch = RemoteWatch(self.transport, kind, _collection(kind, namespace), query, version)
        with self._watching:
            self._watches.add(watch)
            closed = self._closed
        if closed:
            watch.fail(Unavailable("the client has been closed"))
        return watch


def object_path(kind: Kind, namespace: str, name: str) -> str:
    """Where one object is.

    Raises:
        NotFound: a name is empty, or can be no name.
    """
    if not name or (kind.namespaced and not namespace):
        raise NotFound(f"which {kind.name.lower()}? its name is empty")
    if "/" in name + namespace:  # which a server would take for another of its paths
        raise NotFound(f"no {kind.name.lower()} can be called {namespace}/{name}")
    return f"{_collection(kind, namespace)}/{quote(name, safe='')}"


def _document(value: Any) -> bytes:
    try:
        return codec.encode(value)
    except UnicodeEncodeError as error:
        raise Invalid(f"some text is no Unicode: {error}") from error


def _lease_path(name: str) -> str:
    if not name:
        raise Invalid("a lease needs a name")
    return f"{API}/leases/{quote(name, safe='')}"


def _collection(kind: Kind, namespace: str) -> str:
    if kind.namespaced and namespace:
        return f"{API}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    return f"{API}/{kind.plural}"


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    cursor: str = ""
    remaining: int = 0


class _ListDocument(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[msgspec.Raw, ...]


_LIST = msgspec.json.Decoder(_ListDocument)
