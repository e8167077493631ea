"""Events, attempts, explanations and usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response

from shoal.client.reports import Explanation
from shoal.history.base import About, Entry, EntryType, History
from shoal.objects import codec
from shoal.objects.kinds import kind_at, kind_named
from shoal.server.services import ActorNow, ServicesNow
from shoal.store.authorise import ACTIONS, allows, require
from shoal.store.base import Actor

router = APIRouter(prefix="/api/v1", tags=["history"], default_response_class=Response)

_MOST_ENTRIES = 10_000

_Namespace = Annotated[str, Query(description="Only of this namespace.")]
_KindName = Annotated[str, Query(alias="kind", description="Only of objects of this kind.")]
_Name = Annotated[str, Query(description="Only of the object of this name.")]
_Uid = Annotated[str, Query(description="Only of the object of this uid.")]
_Limit = Annotated[int, Query(ge=0, description="The newest so many; 0: all, ten thousand at most.")]


@router.get("/events", operation_id="events")
async def events(
    services: ServicesNow,
    actor: ActorNow,
    namespace: _Namespace = "",
    kind: _KindName = "",
    name: _Name = "",
    uid: _Uid = "",
    since: Annotated[float, Query(description="A stamp: seconds since 1970.")] = 0.0,
    after: Annotated[str, Query(description="An event's id, to go on behind it.")] = "",
    limit: _Limit = 0,
) -> Response:
    """Events, oldest first. Jobs of namespaces that the caller may not read are not named."""
    from shoal.server.reports import VisibleNames

    about = _about(kind, namespace, name, uid)
    if about is not None and not kind_named(about.kind).namespaced:
        require(actor, "inventory")
    else:
        require(actor, "history", namespace)
    found = await services.on_store.call(
        _entries, services.history, ("event",), about, namespace, since, after, limit
    )
    shown = VisibleNames(_readable(actor)).entries(found)
    return Response(codec.encode(shown), media_type="application/json")


@router.get("/attempts", operation_id="attempts")
async def attempts(
    services: ServicesNow,
    actor: ActorNow,
    namespace: str,
    name: str,
    uid: _Uid = "",
    usage: Annotated[bool, Query(description="Also what each task had used at its end.")] = False,
    limit: _Limit = 0,
) -> Response:
    """Starts and ends of a job's tasks, oldest first; also of a job that is gone."""
    require(actor, "history", namespace)
    about = _about("Job", namespace, name, uid)
    types: tuple[EntryType, ...] = ("attempt", "usage") if usage else ("attempt",)
    found = await services.on_store.call(
        _entries, services.history, types, about, namespace, 0.0, "", limit
    )
    return Response(codec.encode(found), media_type="application/json")


@router.get("/namespaces/{namespace}/{plural}/{name}/explain", operation_id="explainInNamespace")
@router.get("/{plural}/{name}/explain", operation_id="explain")
async def explain(
    services: ServicesNow, actor: ActorNow, plural: str, name: str, namespace: str = ""
) -> Response:
    """Why the object is in the state it is in: the scheduler's own reason, with its numbers. Jobs of
    namespaces that the caller may not read are counted, not named."""
    from shoal.server.reports import explanation_of

    kind = kind_at(plural)
    space = namespace if kind.namespaced else ""
    if kind.namespaced:
        require(actor, "explain", space, name)
    else:
        require(actor, "inventory")

    def work() -> Explanation:
        record = services.store.record(kind, space, name, actor=actor)
        return explanation_of(
            kind,
            record.object,
            history=services.history_part,
            cluster=services.cluster_part,
            control=services.control,
            readable=_readable(actor),
        )

    found = await services.on_nodes.call(work)
    return Response(codec.encode(found), media_type="application/json")


@router.get("/usage", operation_id="usage")
async def usage(services: ServicesNow, actor: ActorNow, namespace: _Namespace = "") -> Response:
    """What nodes and tasks use now; without a cluster-wide role only nodes, unless a namespace is
    named."""
    from shoal.server.reports import usage_report

    every = allows(actor, ACTIONS["usage"], "")
    require(actor, "usage" if namespace or every else "inventory", namespace)
    report = await services.on_nodes.call(
        usage_report, services.cluster, services.tasks, namespace, services.clock.now()
    )
    if not namespace and not every:
        report = msgspec.structs.replace(report, tasks=())
    return Response(codec.encode(report), media_type="application/json")


def _readable(actor: Actor) -> Callable[[str], bool]:
    """Whether the actor may know of the jobs of a namespace."""
    return lambda of: "system" in actor.roles or allows(actor, ACTIONS["explain"], of)


def _entries(
    history: History,
    types: tuple[EntryType, ...],
    about: About | None,
    namespace: str,
    since: float,
    after: str,
    limit: int,
) -> tuple[Entry, ...]:
    return history.entries(
        types=types,
        about=about,
        namespace=namespace,
        since=since,
        after=after,
        limit=min(limit or _MOST_ENTRIES, _MOST_ENTRIES),
        newest=not after,
    )


def _about(kind: str, namespace: str, name: str, uid: str) -> About | None:
    if not kind:
        return None
    known = kind_named(kind)
    return About(kind=known.name, namespace=namespace if known.namespaced else "", name=name, uid=uid)
