"""Users, roles and tokens; the caller's own identity; audit events; metrics."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from shoal import metrics
from shoal.client.reports import Identity, TokenReport, UserReport
from shoal.history.base import About, Entry
from shoal.objects import codec
from shoal.objects.account import RoleBinding, Token, User
from shoal.objects.errors import Invalid, NotFound
from shoal.objects.kinds import kind_named
from shoal.server.services import ActorNow, ServicesNow
from shoal.store.authorise import require

router = APIRouter(tags=["accounts"], default_response_class=Response)

_LONGEST_DESCRIPTION = 200
_LONGEST_LIFETIME_SECONDS = 10 * 366 * 86400.0
_MOST_ENTRIES = 10_000

_Namespace = Annotated[str, Query(description="The namespace; empty: the whole cluster.")]


class _NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    bindings: tuple[RoleBinding, ...] = ()


class _NewToken(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    user: str = ""
    description: Annotated[str, msgspec.Meta(max_length=_LONGEST_DESCRIPTION)] = ""
    lifetime_seconds: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_LIFETIME_SECONDS)] = 0.0


@router.get("/api/v1/whoami", operation_id="whoami")
async def whoami(actor: ActorNow) -> Response:
    """The caller's name and roles. Needs no right."""
    job = f"{actor.job[0]}/{actor.job[1]}" if actor.job is not None else ""
    bindings = (*(("", role) for role in actor.roles if actor.job is None), *actor.bindings)
    identity = Identity(
        name=actor.name,
        job=job,
        bindings=tuple({"namespace": space, "role": role} for space, role in bindings),
    )
    return _json(identity)


@router.get("/api/v1/users", operation_id="listUsers")
async def list_users(services: ServicesNow, actor: ActorNow) -> Response:
    """All users for admins; for managers the users of their namespaces; for others themselves."""
    found = await services.on_store.call(services.accounts.users, actor=actor)
    return _json({"items": [_user(each) for each in found]})


@router.post("/api/v1/users", operation_id="createUser")
async def create_user(request: Request, services: ServicesNow, actor: ActorNow) -> Response:
    """Add a user: `{name, bindings: [{role, namespace}]}`."""
    require(actor, "users")
    asked = codec.from_body(await request.body(), _NewUser)
    made = await services.on_store.call(
        services.accounts.create_user, asked.name, asked.bindings, actor=actor
    )
    services.audit.audited("create", actor, None, made)
    return _json(_user(made), 201)


@router.delete("/api/v1/users/{name}", operation_id="deleteUser")
async def delete_user(services: ServicesNow, actor: ActorNow, name: str) -> Response:
    """Remove a user with its tokens, at once. Its jobs stay."""
    gone = await services.on_store.call(services.accounts.delete_user, name, actor=actor)
    services.audit.audited("delete", actor, gone, None)
    return _json(_user(gone))


@router.put("/api/v1/users/{name}/role", operation_id="grantRole")
async def grant(request: Request, services: ServicesNow, actor: ActorNow, name: str) -> Response:
    """Give a user a role, `{role, namespace}`, in place of the one that it has there."""
    asked = codec.from_body(await request.body(), RoleBinding)
    before, after = await services.on_store.call(
        services.accounts.grant, name, asked.role, asked.namespace, actor=actor
    )
    services.audit.audited("grant", actor, before, after)
    return _json(_user(after))


@router.delete("/api/v1/users/{name}/role", operation_id="revokeRole")
async def revoke(
    services: ServicesNow, actor: ActorNow, name: str, namespace: _Namespace = ""
) -> Response:
    """Take a user's role in a namespace."""
    before, after = await services.on_store.call(services.accounts.revoke, name, namespace, actor=actor)
    services.audit.audited("revoke", actor, before, after)
    return _json(_user(after))


@router.get("/api/v1/tokens", operation_id="listTokens")
async def list_tokens(services: ServicesNow, actor: ActorNow) -> Response:
    """The caller's tokens, all users' for admins; never their secrets."""
    found = await services.on_store.call(services.accounts.tokens, actor=actor)
    return _json({"items": [_token(each) for each in found]})


@router.post("/api/v1/tokens", operation_id="createToken")
async def create_token(request: Request, services: ServicesNow, actor: ActorNow) -> Response:
    """A new bearer token: `{user, description, lifetimeSeconds}`, all optional. It is shown this once
    and kept hashed."""
    asked = codec.from_body(await request.body() or b"{}", _NewToken)
    made, text = await services.on_store.call(
        services.accounts.create_token,
        asked.user,
        asked.description,
        asked.lifetime_seconds,
        actor=actor,
    )
    services.audit.audited("create", actor, None, made)
    return _json(msgspec.structs.replace(_token(made), token=text), 201)


@router.delete("/api/v1/tokens/{name}", operation_id="revokeToken")
async def revoke_token(services: ServicesNow, actor: ActorNow, name: str) -> Response:
    """Make a token invalid from the next request on."""
    gone = await services.on_store.call(services.accounts.revoke_token, name, actor=actor)
    services.audit.audited("delete", actor, gone, None)
    return _json(_token(gone))


@router.get("/api/v1/audit", operation_id="audit")
async def audit(
    services: ServicesNow,
    actor: ActorNow,
    namespace: _Namespace = "",
    kind: Annotated[str, Query(description="Only of objects of this kind.")] = "",
    name: Annotated[str, Query(description="Only of the object of this name.")] = "",
    since: Annotated[float, Query(description="A stamp: seconds since 1970.")] = 0.0,
    after: Annotated[str, Query(description="An event's id, to go on behind it.")] = "",
    limit: Annotated[int, Query(ge=0, description="The newest so many; 0: all.")] = 0,
) -> Response:
    """Audit events, oldest first: one for each write, with its actor, verb and digests."""
    require(actor, "audit", namespace)

    def work() -> tuple[Entry, ...]:
        about = None
        if kind:
            known = kind_named(kind)
            space = namespace if known.namespaced else ""
            about = About(kind=known.name, namespace=space, name=name)
        elif name:
            raise Invalid("a name needs its kind")
        if about is not None and namespace and not about.namespace:
            raise NotFound(f"{about.kind} objects are in no namespace")
        return services.history.entries(
            types=("audit",),
            about=about,
            namespace=namespace,
            since=since,
            after=after,
            limit=min(limit or _MOST_ENTRIES, _MOST_ENTRIES),
            newest=not after,
        )

    return _json(await services.on_store.call(work))


@router.get("/metrics", operation_id="metrics")
async def read_metrics(services: ServicesNow, actor: ActorNow) -> Response:
    """The control plane's metrics in Prometheus' text format."""
    require(actor, "metrics")
    text = await services.on_store.call(metrics.render)
    return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})


def _user(user: User) -> UserReport:
    return UserReport(
        name=user.metadata.name,
        created=user.metadata.created,
        bindings=tuple({"namespace": b.namespace, "role": b.role} for b in user.spec.bindings),
    )


def _token(token: Token) -> TokenReport:
    return TokenReport(
        id=token.metadata.name,
        user=token.spec.user,
        description=token.spec.description,
        created=token.metadata.created,
        expires=token.spec.expires,
    )


def _json(document: object, status: int = 200) -> Response:
    body = codec.encode(document)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
