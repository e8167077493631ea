"""Admission: completes, checks and stores each new or changed object.

The rules about objects alone are in `shoal.objects.admit`; here they meet the other objects: the queue
of a job, the stored object that a change is of, the nodes that there are. People's documents
come in through `create_document` and `put`, the objects that a controller makes through `create` with
their owner. Runs on any thread, and reads the store as the system.

An object with an owner counts for the owner's submitter: that user is its submitter too, its
jobs count for the owner's user, and it is deleted with the owner. Warnings about such an object have no
reader, so a job that its queue's quota can never hold is refused.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec

from shoal.objects import codec
from shoal.objects.admit import admit, admit_job, admit_to, check_update, invalid, problems_of
from shoal.objects.demand import about_job, about_queue
from shoal.objects.elastic import coordinator_of, with_coordinator
from shoal.objects.errors import Conflict, Exists, Forbidden, Invalid, NotFound, Problem
from shoal.objects.job import Job
from shoal.objects.job_kind import DEPENDENCIES_ANNOTATION
from shoal.objects.job_rules import unknown_levels
from shoal.objects.kinds import JOB, QUEUE, Kind, kind_of
from shoal.objects.meta import Object, OwnerReference
from shoal.objects.nearest import did_you_mean
from shoal.objects.node import Capacity, Node
from shoal.objects.paths import Finding, spell
from shoal.objects.queue import Queue, check_place, children_of
from shoal.store.base import SYSTEM, Actor, Authorise, Record, Store

DEFAULT_QUEUE = "default"

K = TypeVar("K", bound=Object)
_MOST_ATTEMPTS = 20
IDEMPOTENCY_ANNOTATION = "shoal.dev/idempotency-key"
"""Where the key of a create is kept: with the object, so that it lives exactly as long."""
_COUNT_FOR_OTHERS = frozenset({"manager", "admin", "system"})
"""Roles that may submit a job that counts for another user."""
_PLATFORM = "shoal.dev/"
"""Annotations with this prefix are the platform's: an apply that does not know them keeps them."""


class Put(NamedTuple):
    """What a put did: the object as it is now, and what that `changed` of it."""

    record: Record
    result: Literal["created", "changed", "unchanged"]
    fields: tuple[str, ...] = ()
    before: Object | None = None


class Admission:
    """See the module. `nodes` gives the Node objects, `levels` the labels that are levels of the
    topology."""

    def __init__(
        self,
        store: Store,
        nodes: Callable[[], Iterable[Node]] = tuple,
        levels: Callable[[], Sequence[str]] = tuple,
        *,
        authorise: Authorise,
    ) -> None:
        self._store = store
        self._authorise = authorise
        self._nodes = nodes
        self._levels = levels
        self._tree = threading.Lock()
        """Held from the look at the other queues to the write of one: two changes that are each right
        could put queues above themselves."""

    def create_document(
        self, kind: Kind, body: bytes, namespace: str, actor: Actor, *, key: str = "", dry_run: bool
    ) -> Put:
        """Admit and store the object that a body describes. One that was created under the same `key`
        is given back, unchanged.

        Raises:
            Invalid: something is wrong; `problems` holds everything that is.
            Forbidden: the actor may not create it, or the queue does not take the job.
            Exists: there is one of this name.
        """
        self._authorise(actor, "create", kind, namespace, "")
        obj = self._ready(admit(codec.from_body(body, object), kind, namespace=namespace), actor)
        if key:
            annotations = {**obj.metadata.annotations, IDEMPOTENCY_ANNOTATION: key}
            obj = _with_metadata(obj, annotations=annotations)
        if dry_run:
            self._check_absent(kind, obj, actor)
            return Put(Record(kind, codec.encode(obj)), "created")
        try:
            made = self._store.create(obj, actor=actor)
        except Exists:
            there = self._store.record(kind, *obj.key, actor=actor)
            if not key or there.object.metadata.annotations.get(IDEMPOTENCY_ANNOTATION) != key:
                raise
            return Put(there, "unchanged")
        return Put(Record(kind, codec.encode(made)), "created")

    def create(self, obj: K, *, actor: Actor, owner: Object | None = None) -> K:
        """Admit and store an object that a controller makes, for the owner's submitter.

        Raises:
            Invalid: something is wrong, or it is not in the namespace of its owner.
            Forbidden: the queue does not take the job, or its quota can never hold it.
            Conflict: the owner is gone, or is being deleted.
            Exists: there is one of this name.
        """
        admitted = cast("K", admit(codec.builtins(obj), kind_of(obj)))
        if owner is not None:
            actor = replace(actor, on_behalf_of=owner.metadata.submitter)
            admitted = _owned(admitted, owner)
        made = cast("K", self._ready(admitted, actor))
        if owner is not None and isinstance(made, Job):
            for sentence in about_job(made, self._path(made.spec.queue), ()):
                raise Forbidden(sentence, hint=f"it is made by {_name(owner)}, of {actor.submitter}")
        return self._store.create(made, actor=actor)

    def put(
        self,
        kind: Kind,
        body: bytes,
        key: tuple[str, str],
        actor: Actor,
        *,
        dry_run: bool = False,
    ) -> Put:
        """Update the version that the body names, or else apply.

        Raises:
            Invalid, Forbidden: as `create_document`, and where a change is not allowed.
            Conflict: the version that the body names is not the newest.
            NotFound: it names a version of an object that is not there.
        """
        namespace, name = key
        self._authorise(actor, "update", kind, namespace, name)
        obj = admit(codec.from_body(body, object), kind, namespace=namespace)
        if obj.metadata.name != name:
            message = f"the object is called {obj.metadata.name}, and its address {name}"
            raise Invalid(message, (Problem("metadata.name", message),))
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return self._put(kind, obj, key, actor, dry_run)
            except Conflict:
                if obj.metadata.resource_version or attempt == _MOST_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def check_delete(self, kind: Kind, namespace: str, name: str, actor: Actor) -> None:
        """Refuse to delete what must be there, and first of all what the actor may not delete.

        Raises:
            Forbidden: it must; the actor may not.
        """
        self._authorise(actor, "delete", kind, namespace, name)
        if kind.struct is not Queue:
            return
        if name == DEFAULT_QUEUE:
            raise Forbidden(f"the queue {name} is always there, and cannot be deleted")
        if below := children_of(name, self._queues()):
            raise Forbidden(
                f"queue {name} is above {', '.join(below)}",
                hint="delete those first, or give them another parent",
            )

    def advice(self, obj: Object) -> list[str]:
        """What is kept as it is, and yet surely not meant, in a sentence each."""
        if isinstance(obj, Queue):
            return about_queue(obj, self._queues(), self._capacities())
        if isinstance(obj, Job) and not obj.spec.cancelled:
            nodes = [node for node in self._nodes() if _is_listed(node)]
            found = about_job(obj, self._path(obj.spec.queue), known_capacities(nodes))
            return [*found, *_about_labels(obj, nodes), *_about_levels(obj, self._levels())]
        return []

    def _check_absent(self, kind: Kind, obj: Object, actor: Actor) -> None:
        try:
            self._store.record(kind, *obj.key, actor=actor)
        except NotFound:
            return
        raise Exists(f"{kind.name.lower()} {obj.metadata.name} exists already")

    def _put(self, kind: Kind, obj: Object, key: tuple[str, str], actor: Actor, dry_run: bool) -> Put:
        try:
            # as the system: whether the actor may write is tested above, and by the write itself
            old: Object = self._store.record(kind, *key, actor=SYSTEM).object
        except NotFound:
            if obj.metadata.resource_version:
                raise
            made = self._ready(obj, actor)
            if not dry_run:
                made = self._store.create(made, actor=actor)
            return Put(Record(kind, codec.encode(made)), "created")
        if obj.metadata.uid not in ("", old.metadata.uid):
            raise NotFound(f"{kind.name.lower()} {key[1]} is another object now, of the same name")
        if obj.metadata.resource_version not in ("", old.metadata.resource_version):
            raise Conflict(
                f"{kind.name.lower()} {key[1]} has been changed since it was read",
                hint="read it again, and make the change again",
            )
        new = _changed(old, _with_coordinator(obj, old))
        check_update(old, new)
        if isinstance(old, Job) and isinstance(new, Job) and _moves(old, new):
            self._admit_job(new)
        fields = _differing(old, new)
        with self._tree if isinstance(new, Queue) else nullcontext():
            if isinstance(new, Queue):
                self._check_place(new)
            if not dry_run:
                new = self._store.update(new, actor=actor)
        return Put(Record(kind, codec.encode(new)), "changed" if fields else "unchanged", fields, old)

    def _ready(self, obj: Object, actor: Actor) -> Object:
        """As it is to be stored: complete, its queue takes it, its submitter is known."""
        made = _with_metadata(_with_coordinator(obj), submitter=actor.submitter)
        if isinstance(made, Job):
            _check_user(made, actor)
            self._admit_job(made)
            made = self._with_dependencies(made)
        elif isinstance(made, Queue):
            self._check_place(made)
        else:
            self._check_queues(made)
        return made

    def _capacities(self) -> list[Capacity]:
        return known_capacities(self._nodes())

    def _admit_job(self, job: Job) -> None:
        admit_job(job, *self._named_queue(job.spec.queue))

    def _check_queues(self, obj: Object) -> None:
        """Jobs will be made from this object: the queues that they are for take them."""
        for each in kind_of(obj).references(obj):
            if each.kind == QUEUE.name:
                queue, known = self._named_queue(each.name)
                admit_to(queue, each.name, obj.metadata.namespace, known, each.path)

    def _named_queue(self, name: str) -> tuple[Queue | None, list[str]]:
        """A queue, and where there is none of this name those of all."""
        queue = self._queue(name)
        return queue, [] if queue is not None else [each.metadata.name for each in self._queues()]

    def _queues(self) -> list[Queue]:
        return [record.object for record in self._store.list(QUEUE, actor=SYSTEM).records]

    def _path(self, name: str) -> list[Queue]:
        """The queue and all above it."""
        path: list[Queue] = []
        while (queue := self._queue(name)) is not None and queue not in path:
            path.append(queue)
            name = queue.spec.parent
            if not name:
                break
        return path

    def _check_place(self, queue: Queue) -> None:
        problems = problems_of(check_place(queue, self._queues()))
        if problems:
            raise invalid(f"queue {queue.metadata.name}", problems)

    def _with_dependencies(self, job: Job) -> Job:
        """The job with the uids of the jobs that it waits for; each has to be there."""
        if not job.spec.after:
            return job
        namespace, uids, findings = job.metadata.namespace, dict[str, str](), list[Finding]()
        for at, each in enumerate(job.spec.after):
            try:
                uids[each.job] = self._store.get(Job, namespace, each.job, actor=SYSTEM).metadata.uid
            except NotFound:
                message = f"there is no job {each.job} in namespace {namespace}"
                if each.job == job.metadata.name:
                    message = "a job cannot wait for itself"
                elif near := did_you_mean(each.job, self._job_names(namespace)):
                    message += near
                findings.append(Finding(("spec", "after", at, "job"), message))
        if findings:
            raise invalid(f"job {job.metadata.name}", problems_of(findings))
        noted = ",".join(f"{name}={uid}" for name, uid in uids.items())
        annotations = {**job.metadata.annotations, DEPENDENCIES_ANNOTATION: noted}
        return _with_metadata(job, annotations=annotations)

    def _job_names(self, namespace: str) -> list[str]:
        listed = self._store.list(JOB, namespace=namespace, actor=SYSTEM).records
        return [record.identity.name for record in listed]

    def _queue(self, name: str) -> Queue | None:
        try:
            return self._store.get(Queue, "", name, actor=SYSTEM)
        except NotFound:
            return None


def _owned(obj: K, owner: Object) -> K:
    """The object with its owner's reference, counted for the owner's user."""
    kind, meta = kind_of(owner), owner.metadata
    if meta.deleted:
        raise Conflict(f"{_name(owner)} is being deleted and takes no new objects")
    if kind.namespaced and obj.metadata.namespace != meta.namespace:
        message = f"{_name(owner)} is of namespace {meta.namespace}: what it owns is there too"
        raise Invalid(message, (Problem("metadata.namespace", message),))
    reference = OwnerReference(kind=kind.name, name=meta.name, uid=meta.uid)
    others = tuple(each for each in obj.metadata.owners if each.uid != meta.uid)
    owned = _with_metadata(obj, owners=(reference, *others))
    if not isinstance(owned, Job):
        return owned
    user: str = getattr(owner.spec, "user", "")
    if owned.spec.user not in ("", user, meta.submitter):
        raise Forbidden(f"the jobs of {_name(owner)} count for {user or meta.submitter}")
    spec = msgspec.structs.replace(owned.spec, user=user)
    return cast("K", msgspec.structs.replace(owned, spec=spec))


def _check_user(job: Job, actor: Actor) -> None:
    """A job counts for its submitter, unless a manager says otherwise."""
    user, roles = job.spec.user, actor.roles_in(job.metadata.namespace)
    if user not in ("", actor.submitter) and not roles & _COUNT_FOR_OTHERS:
        raise Forbidden(
            f"a job of {actor.submitter} cannot count for {user}",
            hint="leave spec.user out, or let a manager submit the job",
        )


def known_capacities(nodes: Iterable[Node]) -> list[Capacity]:
    """The capacity of each node, but for lost nodes and those that the cluster no longer lists. Empty
    while the capacity of one of them is not observed yet: that node may be the largest."""
    listed = [node.status.capacity for node in nodes if _is_listed(node)]
    return listed if all(capacity != Capacity() for capacity in listed) else []


def _is_listed(node: Node) -> bool:
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    return not node.spec.lost and (ready is None or ready.reason != "NotListed")


def _about_labels(job: Job, nodes: list[Node]) -> list[str]:
    """A sentence for each label that the job asks of its nodes and that none has. Nodes and labels may
    still come, so it is a warning."""
    wanted = {pair for role in job.spec.roles for pair in role.node_selector.items()}
    found: list[str] = []
    for key, value in sorted(wanted) if nodes else ():
        values = sorted({node.spec.labels[key] for node in nodes if key in node.spec.labels})
        if value in values:
            continue
        keys = sorted({label for node in nodes for label in node.spec.labels})
        have = f"{key}={'|'.join(values)}" if values else f"the labels {', '.join(keys) or '(none)'}"
        near = did_you_mean(value, values) if values else did_you_mean(key, keys)
        found.append(
            f"job {job.metadata.name} waits for a node with the label {key}={value}, which no node has: "
            f"nodes have {have}{near}"
        )
    return found


def _about_levels(job: Job, levels: Sequence[str]) -> list[str]:
    """A sentence for each level that the job names and that the topology does not have. It may come."""
    return [
        f"job {job.metadata.name} waits until there is such a level ({spell(each.path)}): {each.message}"
        for each in unknown_levels(job.spec, levels)
    ]


def _name(obj: Object) -> str:
    return f"{obj.kind.lower()}/{obj.metadata.name}"


def _with_metadata(obj: K, **fields: object) -> K:
    metadata = msgspec.structs.replace(obj.metadata, **fields)
    return msgspec.structs.replace(obj, metadata=metadata)


def _with_coordinator(obj: Object, old: Object | None = None) -> Object:
    """An elastic job with the platform's own role; the one that `old` has, where there is one. Python
    is this server's, where the job's command does not say."""
    if not isinstance(obj, Job):
        return obj
    there = coordinator_of(old.spec) if isinstance(old, Job) else None
    python = there.command[0] if there is not None else sys.executable
    return msgspec.structs.replace(obj, spec=with_coordinator(obj.spec, python))


def _changed(old: Object, obj: Object) -> Object:
    """What is there, with what people own of `obj` in it. An apply (no version) leaves finalizers and
    owners alone, for no file names them."""
    given = obj.metadata
    metadata = msgspec.structs.replace(old.metadata, labels=given.labels, annotations=given.annotations)
    if given.resource_version:
        metadata = msgspec.structs.replace(
            metadata,
            uid=given.uid or old.metadata.uid,
            resource_version=given.resource_version,
            finalizers=given.finalizers,
            owners=given.owners,
        )
    else:
        kept = {k: v for k, v in old.metadata.annotations.items() if k.startswith(_PLATFORM)}
        metadata = msgspec.structs.replace(metadata, annotations={**kept, **given.annotations})
    return msgspec.structs.replace(old, metadata=metadata, spec=cast("Any", obj).spec)


def _differing(old: Object, new: Object) -> tuple[str, ...]:
    """Wire names of what a person has changed: fields of spec, and of metadata."""
    parts: tuple[tuple[msgspec.Struct, msgspec.Struct], ...] = (
        (old.spec, new.spec),
        (old.metadata, new.metadata),
    )
    return tuple(
        field.encode_name
        for before, after in parts
        for field in msgspec.structs.fields(before)
        if getattr(before, field.name) != getattr(after, field.name)
    )


def _moves(old: Job, new: Job) -> bool:
    return (old.spec.queue, old.spec.priority) != (new.spec.queue, new.spec.priority)
