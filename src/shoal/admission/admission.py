"""What every write of a person passes on its way to the store.

The rules about objects alone are in `shoal.objects.admit`; here they meet what is there: the queue
that a job names, the object that a change is of, the nodes that a task would have to fit on. Runs on
a thread, reads the store as the system.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any, Literal, NamedTuple, cast

import msgspec

from shoal.objects import codec
from shoal.objects.admit import admit, admit_job, check_update, invalid, problems_of
from shoal.objects.demand import about_job, about_queue, fitting
from shoal.objects.elastic import coordinator_of, with_coordinator
from shoal.objects.errors import Conflict, Forbidden, Invalid, NotFound, Problem
from shoal.objects.job import Job, Resources
from shoal.objects.job_rules import unknown_levels
from shoal.objects.kinds import QUEUE, Kind
from shoal.objects.meta import Object
from shoal.objects.node import Capacity
from shoal.objects.queue import Queue, check_place, children_of
from shoal.store.base import SYSTEM, Actor, Authorise, Record, Store

__all__ = ["DEFAULT_QUEUE", "Admission", "Put"]

DEFAULT_QUEUE = "default"

_MOST_ATTEMPTS = 20
_PLATFORM = "shoal.dev/"
"""Annotations with this prefix are the platform's: an apply that does not know them keeps them."""


class Put(NamedTuple):
    """What a put did: the object as it is now, and what that `changed` of it."""

    record: Record
    result: Literal["created", "changed", "unchanged"]
    fields: tuple[str, ...] = ()


class Admission:
    """See the module. `declared` gives what each declared node can hold, `levels` the labels that are
    levels of the topology."""

    def __init__(
        self,
        store: Store,
        declared: Callable[[], Iterable[Capacity]],
        levels: Callable[[], Sequence[str]] = tuple,
        *,
        authorise: Authorise,
    ) -> None:
        self._store = store
        self._authorise = authorise
        self._declared = declared
        self._levels = levels
        self._tree = threading.Lock()
        """Held from the look at the other queues to the write of one: two changes that are each right
        could put queues above themselves."""

    def of_create(self, kind: Kind, body: bytes, namespace: str, actor: Actor) -> Object:
        """The object that a body describes, ready to be created by the actor.

        Raises:
            Invalid: something is wrong; `problems` holds everything that is.
            Forbidden: the actor creates nothing, or the job may not be in its queue.
        """
        self._authorise(actor, "create", kind, namespace, "")
        obj = admit(_document(body), kind, namespace=namespace)
        return self._ready(obj, actor)

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
            Invalid, Forbidden: as `of_create`, and where a change is not allowed.
            Conflict: the version that the body names is not the newest.
            NotFound: it names a version of an object that is not there.
        """
        namespace, name = key
        self._authorise(actor, "update", kind, namespace, name)
        obj = admit(_document(body), kind, namespace=namespace)
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

    def check_delete(self, kind: Kind, name: str) -> None:
        """Refuse to delete what must be there.

        Raises:
            Forbidden: it must.
        """
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
            return about_queue(obj, self._queues(), list(self._declared()))
        if isinstance(obj, Job) and not obj.spec.cancelled:
            return about_job(obj, self._path(obj.spec.queue), list(self._declared()))
        return []

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
            admit_job(new, self._queue(new.spec.queue))
        fields = _differing(old, new)
        with self._tree if isinstance(new, Queue) else nullcontext():
            if isinstance(new, Queue):
                self._check_place(new)
            if not dry_run:
                new = self._store.update(new, actor=actor)
        return Put(Record(kind, codec.encode(new)), "changed" if fields else "unchanged", fields)

    def _ready(self, obj: Object, actor: Actor) -> Object:
        """As it is to be stored: complete, its queue takes it, a node could hold it, its submitter is
        known."""
        metadata = msgspec.structs.replace(obj.metadata, submitter=actor.name)
        made = msgspec.structs.replace(_with_coordinator(obj), metadata=metadata)
        if isinstance(made, Job):
            admit_job(made, self._queue(made.spec.queue))
            self._check_levels(made)
            self._check_sizes(made)
        elif isinstance(made, Queue):
            self._check_place(made)
        return made

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

    def _check_levels(self, job: Job) -> None:
        """Waiting cannot help who wants to be near others by a word that means nothing here."""
        if all(part.topology is None for part in (job.spec, *job.spec.roles)):
            return
        if problems := problems_of(unknown_levels(job.spec, self._levels())):
            raise invalid(f"job {job.metadata.name}", problems)

    def _queue(self, name: str) -> Queue | None:
        try:
            return self._store.get(Queue, "", name, actor=SYSTEM)
        except NotFound:
            return None

    def _check_sizes(self, job: Job) -> None:
        """Waiting cannot help a task that is larger than every node there is."""
        nodes = list(self._declared())
        if not nodes:
            return  # none is known yet, so nothing is known to be too much
        problems = [
            Problem(f"spec.roles[{at}].resources", f"a {role.name} {_too_much(role.resources, nodes)}")
            for at, role in enumerate(job.spec.roles)
            if not any(_holds(node, role.resources) for node in nodes)
        ]
        if problems:
            raise Invalid(
                f"no node can ever run this: {problems[0].message}",
                tuple(problems),
                hint="ask for less, or declare a larger node: shoal get nodes shows what there is",
            )


def _document(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise Invalid("the body is nested too deeply") from error


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


def _holds(node: Capacity, asked: Resources) -> bool:
    return fitting(asked, (node,)) > 0


def _too_much(asked: Resources, nodes: list[Capacity]) -> str:
    cpu, memory = max(node.cpu for node in nodes), max(node.memory for node in nodes)
    gpus = max(len(node.gpus) for node in nodes)
    if asked.cpu > cpu:
        return f"asks for {asked.cpu.text()} cpu, and the largest node has {cpu.text()}"
    if asked.memory is not None and asked.memory > memory:
        has = f"{round(memory / 2**30, 1):g}Gi" if memory >= 2**30 else memory.text()
        return f"asks for {asked.memory.text()} memory, and the largest node has {has}"
    if asked.gpu_share is not None and not gpus:
        return "asks for a part of a GPU, and no node has one"
    if asked.gpu > gpus:
        return f"asks for {asked.gpu} GPUs, and the largest node has {gpus or 'none'}"
    return "asks for more than any one node has, though other nodes have enough of each"
