"""Lists as they go over the wire: the stored documents, byte for byte, in one envelope.

Nothing is decoded, and a list of everything is read and sent in portions, so that ten thousand jobs
cost no memory and nobody else's time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse

from shoal.objects.kinds import Kind
from shoal.objects.meta import API_VERSION
from shoal.server.services import Services
from shoal.store.base import Actor, Page

__all__ = ["stream_list"]

_PORTION = 500


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

    first = await page(min(limit or _PORTION, _PORTION), cursor)
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
            now = await page(min(limit - sent, _PORTION) if limit else _PORTION, now.cursor)
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
