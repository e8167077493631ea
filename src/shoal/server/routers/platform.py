"""The server itself: version and health, schemas, leases for controllers elsewhere."""

from __future__ import annotations

import os
import platform
from functools import partial
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from shoal import __version__
from shoal.client.reports import Readiness, VersionReport
from shoal.objects import codec
from shoal.objects.errors import Forbidden, Invalid, Unauthenticated
from shoal.objects.kinds import LEASE, kind_named
from shoal.objects.meta import API_VERSION
from shoal.server.services import ActorNow, ServicesNow, actor_of_request, body_of
from shoal.store.authorise import allows, authorise
from shoal.store.base import Actor, Lease

router = APIRouter(tags=["platform"], default_response_class=Response)


class _Acquire(msgspec.Struct, frozen=True, rename="camel"):
    holder: str
    duration_seconds: float


@router.get("/version", operation_id="version")
async def version(request: Request, services: ServicesNow) -> Response:
    """The server's version; for admins with its process and home. Needs no right."""
    try:
        actor = await actor_of_request(request, services)
    except (Unauthenticated, Forbidden):
        actor = Actor("anonymous")
    inside = allows(actor, "admin", "")
    report = VersionReport(
        version=__version__,
        api_version=API_VERSION,
        python=platform.python_version(),
        pid=os.getpid() if inside else 0,
        started=services.started,
        home=services.home if inside else "",
    )
    return Response(codec.encode(report), media_type="application/json")


@router.get("/healthz", operation_id="healthz")
async def healthz() -> Response:
    """200 while the server answers at all. Needs no right."""
    return Response(b"ok\n", media_type="text/plain")


@router.get("/readyz", operation_id="readyz")
async def readyz(
    services: ServicesNow,
    verbose: Annotated[bool, Query(description="Answer 200 with all parts, ready or not.")] = False,
) -> Response:
    """200 once every part is up, 503 before; says which are not. Needs no right."""
    parts = services.readiness()
    ready = all(state == "ok" for state in parts.values())
    failing = services.failing()
    warnings = await services.on_store.call(services.warnings)  # it may read the settings file
    report = Readiness(ready=ready, parts=parts, warnings=warnings, failing=failing)
    body = codec.encode(report)
    return Response(body, 200 if ready or verbose else 503, media_type="application/json")


@router.get("/schema/{kind}", operation_id="schema")
async def schema(kind: str) -> Response:
    """The JSON schema of a kind, for editors. Needs no right."""
    from shoal.objects.schema import editor_schema

    document = msgspec.json.encode(editor_schema(kind_named(kind)))
    return Response(document, media_type="application/schema+json")


@router.put("/api/v1/leases/{name:path}", operation_id="acquireLease")
async def acquire(request: Request, services: ServicesNow, actor: ActorNow, name: str) -> Response:
    """Take or renew a lease: `{holder, durationSeconds}`. The answer is the lease, or null while
    another holds it."""
    asked = await body_of(request, _Acquire, partial(authorise, actor, "lease", LEASE, "", name))
    lease = await services.on_store.call(
        services.store.acquire, name, asked.holder, asked.duration_seconds, actor=actor
    )
    return Response(msgspec.json.encode(lease), media_type="application/json")


@router.delete("/api/v1/leases/{name:path}", operation_id="releaseLease")
async def release(request: Request, services: ServicesNow, actor: ActorNow, name: str) -> Response:
    """Give a lease (the body) back if it is still held by its holder."""
    lease = await body_of(request, Lease, partial(authorise, actor, "lease", LEASE, "", name))
    if lease.name != name:
        raise Invalid(f"the lease is called {lease.name}, and its address {name}")
    await services.on_store.call(services.store.release, lease, actor=actor)
    return Response(b"null", media_type="application/json")
