"""The Store: objects with versions, watches and leases. The rules here are the contract.

**Versions.** A `resource_version` is opaque: two are equal or they are not. Every change of an object
gives it a new one.

**Writes.** `update` replaces labels, annotations, finalizers, owners and spec, and tests the
resource_version it was read at; a change of spec raises `generation`. `patch_status` changes the
named fields of one writer, tests uid, that writer's own counter and (when given) the generation, and
leaves every other field alone, so two writers never overwrite each other. A writer's name is bound to
the actor: the platform's own components (role `system`) may use every name, an actor with the role
`controller:NAME` that one, others none. Values are checked by meaning too
(`shoal.objects.status_rules`). An acknowledged write is durable. A write that would change nothing gives
no event and no new version.

**Deletion.** `delete` stamps `metadata.deleted`; the object goes, with a `Deleted` event, when its
last finalizer is removed, at once if it has none. Objects that name it as owner are then deleted too.
A deleted object takes no change of spec, only finalizers and status. Nothing stays that names an
owner which is gone: it is refused (Conflict), or deleted soon after.

**Watches.** A watch is per kind and delivers, in order, every version after the one it started at;
`Bookmark` events say how far it has come. When the window of kept events no longer reaches back to
its version it ends with `Expired`; the client lists again and compares. Deleted events carry the last
state. Closing the store ends its watches with `Unavailable`.

**Unknown fields** of a stored document survive reads and updates by writers that do not know them.

**Actors.** Every call names its actor, and `authorise` sees it before anything is read or changed.

**Threads.** All methods may be called from any thread. None waits for another client's writes longer
than a transaction takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from shoal.objects import codec
from shoal.objects.errors import Forbidden, VersionSkew
from shoal.objects.kinds import Kind
from shoal.objects.meta import Object

K = TypeVar("K", bound=Object)
Verb = Literal["create", "get", "list", "update", "patch_status", "delete", "watch", "lease"]


@dataclass(frozen=True)
class Actor:
    """The caller: a user, a controller or the tasks of a job. `job` limits the actor to one job:
    (namespace, name, uid)."""

    name: str
    roles: tuple[str, ...] = ()
    """Cluster-wide roles: they hold in every namespace and for cluster-wide kinds."""
    job: tuple[str, str, str] | None = None
    bindings: tuple[tuple[str, str], ...] = ()
    """Roles in single namespaces: (namespace, role)."""
    on_behalf_of: str = ""
    """The submitter of what a controller creates; empty: the actor acts for itself."""

    @property
    def submitter(self) -> str:
        """The submitter of what the actor creates."""
        return self.on_behalf_of or self.name

    def roles_in(self, namespace: str) -> frozenset[str]:
        """The roles that hold in a namespace ("": for the whole cluster)."""
        own = {role for space, role in self.bindings if space == namespace and namespace}
        return frozenset({*self.roles, *own})


SYSTEM = Actor("system", ("system",))
"""The platform's own components."""


class Authorise(Protocol):
    """Decides whether a call may go on; called before the store is touched.

    Raises:
        Forbidden: it may not.
    """

    def __call__(self, actor: Actor, verb: Verb, kind: Kind, namespace: str, name: str) -> None:
        """`name` is empty for lists and watches, `namespace` for all namespaces and for
        cluster-wide kinds."""


def allow_all(actor: Actor, verb: Verb, kind: Kind, namespace: str, name: str) -> None:
    """The single user of a laptop may do everything; an actor limited to a job reads only that job."""
    if actor.job is None:
        return
    reads = verb in ("get", "watch")
    if not (reads and kind.name == "Job" and (namespace, name) == actor.job[:2]):
        raise Forbidden(f"the token of job {actor.job[1]} does not allow {verb} of {kind.plural}")


class Identity(NamedTuple):
    """What a record is, read without decoding the object; empty where the document does not say."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: str = ""


@dataclass(frozen=True)
class Record:
    """An object as stored: `document` is its JSON, complete; `object` decodes it on first use.

    A document may come from a newer version, or be damaged: lists and watches carry it undecoded.
    """

    kind: Kind
    document: bytes

    @cached_property
    def object(self) -> Any:  # Any: the kind's Struct; `get` and friends of typed callers narrow it
        """The typed object.

        Raises:
            VersionSkew: a field has a type or value that this version does not know.
        """
        return self.decode(self.kind.struct)

    def decode(self, struct: type[K]) -> K:
        """As `object`, in that class."""
        try:
            return codec.decode(self.document, struct)
        except Exception as error:
            namespace, name, _, _ = self.identity
            what = "/".join(part for part in (self.kind.name.lower(), namespace, name) if part)
            raise VersionSkew(
                f"{what} cannot be decoded by this version of Shoal: {error}",
                hint="a newer Shoal has written it, or it is damaged; -o json shows the document",
            ) from error

    @property
    def problem(self) -> str:
        """Why `object` cannot be decoded; empty when it can."""
        try:
            _ = self.object
        except VersionSkew as error:
            return error.message
        return ""

    @cached_property
    def identity(self) -> Identity:
        """The record's key, uid and version, also when `object` cannot be decoded."""
        try:
            metadata = msgspec.json.decode(self.document, type=_Outline).metadata
        except (msgspec.MsgspecError, ValueError):  # the latter: bytes that are no text
            return Identity()
        fields = ("namespace", "name", "uid", "resourceVersion")
        found = [value if isinstance(value := metadata.get(field), str) else "" for field in fields]
        return Identity(*found)


@dataclass(frozen=True)
class Page:
    """Part of a list: `version` is where a watch continues; `cursor` is empty on the last page."""

    records: tuple[Record, ...]
    version: str
    cursor: str = ""
    remaining: int = 0
    """How many matching objects follow this page."""


@dataclass(frozen=True)
class Event:
    """One step of a watch. A Bookmark has no record."""

    type: Literal["Added", "Modified", "Deleted", "Bookmark"]
    version: str
    record: Record | None = None


class Watch(Protocol):
    """A subscription. Not shared between threads; the caller that opened it closes it."""

    def poll(self) -> list[Event]:
        """What has come since the last call, oldest first; does not wait.

        Raises:
            Expired: the window is gone (once everything before the gap has been delivered).
        """
        ...

    @property
    def reads(self) -> bool:
        """Whether `poll` would read from a disk or a network now: no call for an event loop."""
        ...

    def wait(self, timeout_seconds: float) -> list[Event]:
        """As `poll`, but waits up to the timeout for the first event; [] when none came."""
        ...

    def on_ready(self, wake: Callable[[], None]) -> None:
        """Call `wake` (from any thread, must not block) whenever `poll` may have something: at once
        when it may now, again when `poll` left something over."""

    def close(self) -> None:
        """End the subscription; idempotent."""


@dataclass(frozen=True)
class Lease:
    """A named right, held by one at a time. `token` rises with each change of holder."""

    name: str
    holder: str
    token: int
    duration_seconds: float


@runtime_checkable
class Store(Protocol):
    """Where objects live; see the module's docstring for the rules."""

    def create(self, obj: K, *, actor: Actor) -> K:
        """Store a new object; gives it uid, version, generation 1 and its creation stamp.

        A status given with it is dropped: status has writers of its own.

        Raises:
            Exists: one of this kind and key is there (also while it is being deleted).
            Conflict: an owner that it names is not there.
            Invalid: it could not be read back.
            Forbidden: `authorise` said so.
        """
        ...

    def get(self, kind: type[K], namespace: str, name: str, *, actor: Actor) -> K:
        """The object.

        Raises:
            NotFound: there is none.
        """
        ...

    def record(self, kind: Kind, namespace: str, name: str, *, actor: Actor) -> Record:
        """As `get`, undecoded, with the fields that this version does not know.

        Raises:
            NotFound: there is none.
        """
        ...

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
        """Objects ordered by (namespace, name); namespace "" is all; limit 0 is everything.

        Each page shows the moment it was read at, and all carry the first page's version: a watch
        from there delivers whatever has changed since, so list then watch misses nothing.

        Raises:
            Expired: the cursor's version has left the watch window.
            Invalid: the selector or cursor cannot be read.
        """
        ...

    def update(self, obj: K, *, actor: Actor) -> K:
        """Replace what people own of the object; see **Writes**.

        Raises:
            NotFound: it is gone, or another uid has its name.
            Conflict: its version is not the one in `obj`, or a new owner is not there.
            Invalid: it could not be read back, or more than finalizers of a deleted object changes.
        """
        ...

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
        """Set the status fields (wire names) that belong to `writer`; None removes a field.

        `counter` is `status.writers[writer]` as last read (0 when absent); the write raises it by 1.

        Raises:
            NotFound: no object of this name and uid.
            Conflict: counter or generation differ.
            Forbidden: the actor is not this writer, or a field is not this writer's.
            Invalid: a field could not be read back, or has a value that cannot be.
        """
        ...

    def delete(self, kind: Kind, namespace: str, name: str, *, actor: Actor, uid: str = "") -> Record:
        """Ask for deletion; idempotent while finalizers remain. Returns the last state.

        Raises:
            NotFound: no object of this name (and uid, when given).
        """
        ...

    def watch(self, kind: Kind, *, actor: Actor, version: str, namespace: str = "") -> Watch:
        """Every change after `version`.

        Raises:
            Expired: the window does not reach back so far.
        """
        ...

    def acquire(self, name: str, holder: str, duration_seconds: float, *, actor: Actor) -> Lease | None:
        """Take or renew the lease; None while another holds it.

        Whether another's lease has run out is judged by this store's monotonic clock since it last
        saw the lease change, never by comparing wall times.
        """
        ...

    def release(self, lease: Lease, *, actor: Actor) -> None:
        """Give the lease back if it is still ours; else nothing."""

    def close(self) -> None:
        """Let go of files and connections; idempotent."""


class _Outline(msgspec.Struct):
    metadata: dict[str, Any]  # Any: whatever the document has there
