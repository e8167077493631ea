"""What an elastic job's tasks ask of the platform, each with its own job's token."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from shoal.objects import codec
from shoal.objects.errors import Unavailable
from shoal.server.elastic import ElasticCaller, ElasticJobs, Report
from shoal.server.services import ServicesNow

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/elastic", tags=["elastic"])


class _Record(msgspec.Struct, frozen=True):
    version: str
    record: str


class _Resize(msgspec.Struct, frozen=True):
    replicas: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


async def _caller(request: Request, services: ServicesNow) -> ElasticCaller:
    if services.authenticator is None:
        raise Unavailable("the server is still starting")
    job, attempt = await services.authenticator.task(request.headers.get("authorization", ""))
    return ElasticCaller(job, attempt)


CallerNow = Annotated[ElasticCaller, Depends(_caller)]


@router.get("", operation_id="elastic", response_class=Response, response_model=None)
async def read(services: ServicesNow, caller: CallerNow) -> Response:
    """The caller's job: its record with the version that a write must name, how many members to expect
    (null: none yet), and how few and how many there may be."""
    wanted = await services.on_store.call(_jobs(services).read, caller)
    return _json(wanted)


@router.put("", operation_id="putElastic", response_class=Response, response_model=None)
async def write(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """Set the record, `{version, record}`, if it still has that version (empty: there is none yet). 409:
    it has another, or the caller is of an earlier attempt. On disk when this answers."""
    asked = codec.from_body(await request.body(), _Record, "a record")
    version = await services.on_store.call(_jobs(services).write, caller, asked.version, asked.record)
    return _json({"version": version})


@router.post("/report", operation_id="reportElastic", response_class=Response, response_model=None)
async def report(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """How the job does: `{world, step, goodput, stepSeconds, recoveries, state, message}`."""
    told = codec.from_body(await request.body(), Report, "a report")
    await services.on_store.call(_jobs(services).report, caller, told, services.recorder)
    return _json({})


@router.post("/resize", operation_id="resizeElastic", response_class=Response, response_model=None)
async def resize(request: Request, services: ServicesNow, caller: CallerNow) -> Response:
    """Ask for another number of members: `{replicas}`. The scheduler gives and takes them."""
    asked = codec.from_body(await request.body(), _Resize, "a size")
    await services.on_store.call(_jobs(services).resize, caller, asked.replicas)
    return _json({})


def _jobs(services: ServicesNow) -> ElasticJobs:
    return ElasticJobs(services.store, services.clock)


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
