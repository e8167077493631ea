"""Watches as server-sent events: the resource version is the event's id, the object its data.

    id: VERSION
    event: Added | Modified | Deleted | Bookmark | Error
    data: the object; {} for a Bookmark; a problem document for an Error, which is the last

A comment every ten seconds keeps the connection alive. A client that comes back shows the last id it
has seen (`Last-Event-ID`) and misses nothing, or gets 410 when that is too long ago. A slow reader
holds no events here: it keeps its place in the store's window until the window has passed it by.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse

from shoal.client.sse import ServerEvent, render
from shoal.objects.errors import NotFound, ShoalError
from shoal.objects.kinds import Kind
from shoal.objects.meta import API_VERSION
from shoal.server.middleware import document_of
from shoal.server.services import Services
from shoal.store.base import Actor, Event, Page, Record, Watch

__all__ = ["stream_list", "watch_stream"]

_LIST_PORTION = 500

_KEEP_ALIVE_SECONDS = 10.0
_KEEP_ALIVE = b": still here\n\n"
_MOST_BYTES = 256 * 1024


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
    events = [Event("Added", page.version, record) for record in page.records]
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
        for portion in _portions(first):
            yield portion
        while not services.signals.stopping:
            events = await services.on_store.call(watch.poll)
            for portion in _portions([event for event in events if _concerns(event, name)]):
                yield portion
            if not events and not await signal.wait(_KEEP_ALIVE_SECONDS):
                yield _KEEP_ALIVE
    except ShoalError as error:
        yield render(ServerEvent("", "Error", msgspec.json.encode(document_of(error))))
    finally:
        watch.close()


def _portions(events: list[Event]) -> list[bytes]:
    portions, now, size = list[bytes](), list[bytes](), 0
    for event in events:
        text = _text(event)
        now.append(text)
        size += len(text)
        if size >= _MOST_BYTES:
            portions.append(b"".join(now))
            now, size = [], 0
    return [*portions, b"".join(now)] if now else portions


def _text(event: Event) -> bytes:
    return render(
        ServerEvent(event.version, event.type, event.record.document if event.record else b"{}")
    )


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
