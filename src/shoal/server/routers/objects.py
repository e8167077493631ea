"""Objects: create, get, list, apply, update, delete, and status."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache, partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from shoal.admission.admission import Put
from shoal.client.sse import ServerEvent, render
from shoal.client.wire import RESULT_HEADER, WARNINGS_HEADER
from shoal.objects.errors import NotFound, ShoalError
from shoal.objects.kinds import Kind, kind_at
from shoal.objects.meta import API_VERSION
from shoal.server.middleware import document_of
from shoal.server.services import ActorNow, Services, ServicesNow, body_of
from shoal.store.authorise import authorise
from shoal.store.base import Actor, Event, Page, Record, Watch

router = APIRouter(prefix="/api/v1", tags=["objects"], default_response_class=Response)

DryRun = Annotated[
    bool, Query(alias="dryRun", description="Do everything but the writing: the answer is the same.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=128,
        description="A create that is sent again under the same key gives the same object.",
    ),
]
_LIST_PORTION = 500

_KEEP_ALIVE_SECONDS = 10.0
_KEEP_ALIVE = b": still here\n\n"
_MOST_BYTES = 256 * 1024
_SHARED_EVENTS = 256
_SHARED_BYTES = 16 * 1024


class _Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    writer: str
    uid: str
    counter: int
    fields: dict[str, Any]
    generation: int | None = None


async def get_list(
    request: Request,
    services: ServicesNow,
    actor: ActorNow,
    plural: str,
    namespace: str = "",
    selector: Annotated[str, Query(alias="labelSelector")] = "",
    limit: Annotated[int, Query(ge=0, description="At most so many; 0: all.")] = 0,
    cursor: Annotated[str, Query(description="From the page before.")] = "",
    watch: Annotated[bool, Query(description="Stream changes instead (server-sent events).")] = False,
    version: Annotated[
        str, Query(alias="resourceVersion", description="Watch: the version to go on from.")
    ] = "",
    name: Annotated[str, Query(description="Watch: only this object.")] = "",
    last: Annotated[
        str, Header(alias="Last-Event-ID", description="Watch: the id of the last event seen.")
    ] = "",
) -> Response:
    """A list of objects, or a watch. Lists are ordered by namespace and name; `metadata` says where a
    watch goes on (`resourceVersion`), where the next page begins (`cursor`) and how many objects
    follow this page (`remaining`). A watch without a version begins with what there is now."""
    kind = kind_at(plural)
    if watch:
        return await watch_stream(services, actor, kind, namespace, name, last or version)
    return await stream_list(services, actor, kind, namespace, selector, limit, cursor)


async def create(
    request: Request,
    services: ServicesNow,
    actor: ActorNow,
    plural: str,
    namespace: str = "",
    dry_run: DryRun = False,
    key: Key = None,
) -> Response:
    """Create an object. 422 lists everything that is wrong with it; the header `Shoal-Warnings` (a JSON
    list of sentences) what is taken as it is and surely not meant, such as a job larger than the
    cluster."""
    kind, body = kind_at(plural), await request.body()

    def work() -> Put:
        return services.admission.create_document(
            kind, body, namespace, actor, key=key or "", dry_run=dry_run
        )

    put = await services.on_store.call(work)
    record = put.record
    if put.result == "created" and not dry_run:
        message = f"created by {actor.name}"
        services.audit.wrote("create", actor, None, record.object, reason="Created", message=message)
    headers = await _warnings(services, record)
    return _json(record.document, 200 if dry_run else 201, headers)


async def get(
    services: ServicesNow, actor: ActorNow, plural: str, name: str, namespace: str = ""
) -> Response:
    """One object, complete."""
    kind = kind_at(plural)
    record = await services.on_store.call(
        services.store.record, kind, _space(kind, namespace), name, actor=actor
    )
    return _json(record.document)


async def put(
    request: Request,
    services: ServicesNow,
    actor: ActorNow,
    plural: str,
    name: str,
    namespace: str = "",
    dry_run: DryRun = False,
) -> Response:
    """With `metadata.resourceVersion`: replace spec, labels, annotations, finalizers and owners of
    that version (409 if there is a newer one). Without: apply, that is create the object, or give the
    one that is there this spec, these labels and these annotations. The header `Shoal-Result` says
    `created`, `changed` or `unchanged`; `Shoal-Warnings` is as for a create. Status is left alone."""
    kind, body = kind_at(plural), await request.body()

    def work() -> Put:
        key = (_space(kind, namespace), name)
        return services.admission.put(kind, body, key, actor, dry_run=dry_run)

    record, result, fields, before = await services.on_store.call(work)
    if result != "unchanged" and not dry_run:
        message = f"{result} by {actor.name}{': ' if fields else ''}{', '.join(fields)}"
        verb = "create" if result == "created" else "update"
        services.audit.wrote(
            verb, actor, before, record.object, reason=result.capitalize(), message=message
        )
    status = 201 if result == "created" and not dry_run else 200
    headers = {} if result == "unchanged" else await _warnings(services, record)
    return _json(record.document, status, {RESULT_HEADER: result, **headers})


async def delete(
    services: ServicesNow,
    actor: ActorNow,
    plural: str,
    name: str,
    namespace: str = "",
    uid: Annotated[str, Query(description="Only if the object still has this uid.")] = "",
    dry_run: DryRun = False,
) -> Response:
    """Ask for deletion. The object goes when its last finalizer is removed; the answer is its last
    state."""
    kind = kind_at(plural)

    def work() -> Record:
        space = _space(kind, namespace)
        services.admission.check_delete(kind, space, name, actor)
        if not dry_run:
            gone = services.store.delete(kind, space, name, uid=uid, actor=actor)
            message = f"deleted by {actor.name}"
            services.audit.deleted(gone, message, actor)
            return gone
        record = services.store.record(kind, space, name, actor=actor)
        if uid and record.identity.uid != uid:
            raise NotFound(f"{kind.name.lower()} {name} has another uid now")
        return record

    return _json((await services.on_store.call(work)).document)


async def patch_status(
    request: Request,
    services: ServicesNow,
    actor: ActorNow,
    plural: str,
    name: str,
    namespace: str = "",
) -> Response:
    """Set the status fields of one writer (for controllers outside this server): `{writer, uid,
    counter, fields, generation}`; null removes a field."""
    kind = kind_at(plural)
    space = _space(kind, namespace)
    refuse = partial(authorise, actor, "patch_status", kind, space, name)
    patch = await body_of(request, _Patch, refuse, "the patch of a status")
    record = await services.on_store.call(
        services.store.patch_status,
        kind,
        space,
        name,
        actor=actor,
        writer=patch.writer,
        uid=patch.uid,
        counter=patch.counter,
        fields=patch.fields,
        generation=patch.generation,
    )
    services.audit.audited("patch_status", actor, record.object, record.object)
    return _json(record.document)


def _add_routes() -> None:
    """Each route twice: below a namespace, and for cluster-wide kinds (and lists of all namespaces)."""
    for prefix, suffix in (("/namespaces/{namespace}/{plural}", "InNamespace"), ("/{plural}", "")):
        for path, method, endpoint, name in (
            ("", "GET", get_list, "list"),
            ("", "POST", create, "create"),
            ("/{name}", "GET", get, "get"),
            ("/{name}", "PUT", put, "put"),
            ("/{name}", "DELETE", delete, "delete"),
            ("/{name}/status", "PATCH", patch_status, "patchStatus"),
        ):
            router.add_api_route(prefix + path, endpoint, methods=[method], operation_id=name + suffix)


def _space(kind: Kind, namespace: str) -> str:
    if kind.namespaced and not namespace:
        raise NotFound(
            f"a {kind.name.lower()} is in a namespace", hint=f"/api/v1/namespaces/NAME/{kind.plural}"
        )
    return namespace if kind.namespaced else ""


async def _warnings(services: Services, record: Record) -> dict[str, str]:
    """The header with the warnings about an object; none where there are none."""
    warnings = await services.on_store.call(services.admission.advice, record.object)
    return {WARNINGS_HEADER: json.dumps(warnings)} if warnings else {}


def _json(document: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(document, status, headers, "application/json")


_add_routes()


async def watch_stream(
    services: Services, actor: Actor, kind: Kind, namespace: str, name: str, version: str
) -> Response:
    """The answer to a watch; without a version it begins with what there is now.

    Raises:
        Expired: the version has left the window.
    """
    first: list[Event] = []
    if not version:
        first, version = await services.on_store.call(_present, services, actor, kind, namespace, name)
    watch = await services.on_store.call(
        services.store.watch, kind, actor=actor, version=version, namespace=namespace
    )
    return StreamingResponse(
        _events(services, watch, first, name),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


def _present(
    services: Services, actor: Actor, kind: Kind, namespace: str, name: str
) -> tuple[list[Event], str]:
    """What there is, as events, closed by a Bookmark; and the version to go on from."""
    if name:
        return _present_one(services, actor, kind, namespace, name)
    page = services.store.list(kind, actor=actor, namespace=namespace)
    documents = services.first_documents.shared(kind.name, [each.document for each in page.records])
    events = [Event("Added", page.version, Record(kind, document)) for document in documents]
    return [*events, Event("Bookmark", page.version)], page.version


def _present_one(
    services: Services, actor: Actor, kind: Kind, namespace: str, name: str
) -> tuple[list[Event], str]:
    """An object that is the same before and after a version is read was so at that version."""
    before = _find(services, actor, kind, namespace, name)
    while True:
        version = services.store.list(kind, actor=actor, namespace=namespace, limit=1).version
        record = _find(services, actor, kind, namespace, name)
        if (record and record.document) == (before and before.document):
            break
        before = record
    events = [Event("Added", version, record)] if record else []
    return [*events, Event("Bookmark", version)], version


def _find(services: Services, actor: Actor, kind: Kind, namespace: str, name: str) -> Record | None:
    try:
        return services.store.record(kind, namespace, name, actor=actor)
    except NotFound:
        return None


async def _events(
    services: Services, watch: Watch, first: list[Event], name: str
) -> AsyncIterator[bytes]:
    signal = services.signals.new()
    try:
        watch.on_ready(signal.set)
        with services.first_documents:
            for portion in _portions(first, _new_text):
                yield portion
            first.clear()  # the watch may stay for days
        while not services.signals.stopping:
            # a thread for each watch would cost more than most polls: those only look into memory
            events = await services.on_store.call(watch.poll) if watch.reads else watch.poll()
            for portion in _portions([event for event in events if _concerns(event, name)], _text):
                yield portion
            await asyncio.sleep(0)  # a watch of one object may have nothing to send for long
            if not events and not await signal.wait(_KEEP_ALIVE_SECONDS):
                yield _KEEP_ALIVE
    except ShoalError as error:
        yield render(ServerEvent("", "Error", msgspec.json.encode(document_of(error))))
    finally:
        watch.close()


def _portions(events: list[Event], text_of: Callable[[Event], bytes]) -> Iterator[bytes]:
    """The events as they go over the wire, made when they are sent."""
    now, size = list[bytes](), 0
    for event in events:
        text = text_of(event)
        now.append(text)
        size += len(text)
        if size >= _MOST_BYTES:
            yield b"".join(now)
            now, size = [], 0
    if now:
        yield b"".join(now)


def _text(event: Event) -> bytes:
    """The event's text; one for all the watches that get it at about the same time."""
    if event.record is None or len(event.record.document) > _SHARED_BYTES:
        return _new_text(event)
    return _shared_text(event.version, event.type, event.record.document)


def _new_text(event: Event) -> bytes:
    document = event.record.document if event.record else b"{}"
    return render(ServerEvent(event.version, event.type, document))


@lru_cache(_SHARED_EVENTS)
def _shared_text(version: str, kind: str, document: bytes) -> bytes:
    return render(ServerEvent(version, kind, document))


def _concerns(event: Event, name: str) -> bool:
    if not name or event.record is None:
        return True
    return _NAME.decode(event.record.document).metadata.name == name


class _NamedMetadata(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _NamedMetadata


_NAME = msgspec.json.Decoder(_Named)


async def stream_list(
    services: Services, actor: Actor, kind: Kind, namespace: str, selector: str, limit: int, cursor: str
) -> Response:
    """The answer to a list. The first portion is read before the answer begins, so errors come as
    errors; if the store loses its place later, the answer ends early and is no JSON."""

    async def page(most: int, after: str) -> Page:
        return await services.on_store.call(
            services.store.list,
            kind,
            actor=actor,
            namespace=namespace,
            selector=selector,
            limit=most,
            cursor=after,
        )

    first = await page(min(limit or _LIST_PORTION, _LIST_PORTION), cursor)
    if not first.cursor or len(first.records) == limit:
        return Response(
            _head(kind, first, first.cursor, first.remaining) + _items(first) + b"]}",
            media_type="application/json",
        )

    async def body() -> AsyncIterator[bytes]:
        # `metadata` comes last here: only the last portion knows where the next page begins
        yield b'{"items":[' + _items(first)
        now, sent = first, len(first.records)
        while now.cursor and (not limit or sent < limit):
            now = await page(min(limit - sent, _LIST_PORTION) if limit else _LIST_PORTION, now.cursor)
            sent += len(now.records)
            if now.records:
                yield b"," + _items(now)
        yield b"]," + _head(kind, first, now.cursor, now.remaining)[1 : -len(b',"items":[')] + b"}"

    return StreamingResponse(body(), media_type="application/json")


def _head(kind: Kind, page: Page, cursor: str, remaining: int) -> bytes:
    metadata = {"resourceVersion": page.version, "cursor": cursor, "remaining": remaining}
    head = {"apiVersion": API_VERSION, "kind": f"{kind.name}List", "metadata": metadata}
    return msgspec.json.encode(head)[:-1] + b',"items":['


def _items(page: Page) -> bytes:
    return b",".join(record.document for record in page.records)
