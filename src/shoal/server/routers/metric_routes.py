"""Metric points: tasks report them with their job's token, users read them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from shoal.client.reports import MetricPoint, MetricPoints
from shoal.history.base import Point
from shoal.objects import codec
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.kinds import JOB
from shoal.server.metric_points import Batch
from shoal.server.services import ActorNow, Services, ServicesNow
from shoal.store.authorise import require
from shoal.store.base import SYSTEM

router = APIRouter(prefix="/api/v1", tags=["metrics"], default_response_class=Response)

_MOST_POINTS = 10_000


@router.post("/metrics", operation_id="reportMetrics")
async def report(request: Request, services: ServicesNow) -> Response:
    """Points of the caller's own job: `{role, index, incarnation, name, points: [[sequence, metric,
    value, step, at]]}`; `name` is the reporting process. On disk when this answers; a point that is
    sent again is kept once."""
    if services.authenticator is None:
        raise Unavailable("the server is still starting")
    job, _ = await services.authenticator.task(request.headers.get("authorization", ""))
    batch = codec.from_body(await request.body(), Batch, "a batch of metric points")
    feed = services.control.metrics if services.control is not None else None
    added = await services.on_store.call(services.metrics.take, job, batch, services.history, feed)
    return Response(codec.encode({"added": added}), media_type="application/json")


@router.get("/namespaces/{namespace}/jobs/{name}/metrics", operation_id="jobMetrics")
async def read(
    services: ServicesNow,
    actor: ActorNow,
    namespace: str,
    name: str,
    uid: Annotated[str, Query(description="Of the job of this uid; empty: the newest.")] = "",
    metric: Annotated[list[str] | None, Query(description="Only these metrics.")] = None,
    after: Annotated[int, Query(ge=0, description="Points behind this order.")] = 0,
    limit: Annotated[int, Query(ge=0, description="At most so many; 0: ten thousand.")] = 0,
) -> Response:
    """The metric points of a job in the order in which they came; also of a job that is gone."""
    require(actor, "history", namespace)
    most = min(limit or _MOST_POINTS, _MOST_POINTS)
    found = await services.on_store.call(
        _points, services, namespace, name, uid, tuple(metric or ()), after, most
    )
    return Response(codec.encode(found), media_type="application/json")


def _points(
    services: Services,
    namespace: str,
    name: str,
    uid: str,
    metrics: tuple[str, ...],
    after: int,
    limit: int,
) -> MetricPoints:
    if not uid:
        try:
            job = services.store.record(JOB, namespace, name, actor=SYSTEM).object
            uid = job.metadata.uid
        except NotFound:
            uid = _last_uid(services, namespace, name)
    found = services.history.points(
        namespace, job=name, uid=uid, names=metrics, after=after, limit=limit
    )
    return MetricPoints(uid=uid, items=tuple(map(_described, found)), more=len(found) == limit)


def _last_uid(services: Services, namespace: str, name: str) -> str:
    """Of the last job of this name that has reported.

    Raises:
        NotFound: there is none.
    """
    points = services.history.points(namespace, job=name)
    if not points:
        raise NotFound(f"there is no job {name} in namespace {namespace}, nor metric points of one")
    return points[-1].job.uid


def _described(point: Point) -> MetricPoint:
    return MetricPoint(
        name=point.name,
        value=point.value,
        step=point.step,
        at=point.at,
        role=point.role,
        index=point.index,
        incarnation=point.incarnation,
        order=point.order,
    )
