"""Secrets: set, listed and deleted. No route answers with a value, and no error repeats one."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from shoal.client.reports import SecretReport
from shoal.objects import codec
from shoal.objects.secret import Secret
from shoal.server.services import ActorNow, ServicesNow
from shoal.store.authorise import require

router = APIRouter(tags=["secrets"], default_response_class=Response)

_PATH = "/api/v1/namespaces/{namespace}/secrets"


class _Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: dict[str, bytes]
    """Base64."""
    replace: bool = False
    """In place of the secret of this name, if there is one."""
    keep: bool = False
    """In the secret of this name, if there is one: its other keys stay."""


@router.get(_PATH, operation_id="listSecrets")
async def list_secrets(services: ServicesNow, actor: ActorNow, namespace: str) -> Response:
    """The secrets of a namespace: names and keys, never values."""
    found = await services.on_store.call(services.secrets.list, namespace, actor=actor)
    return _json({"items": [_report(each) for each in found]})


@router.get(_PATH + "/{name}", operation_id="getSecret")
async def get_secret(services: ServicesNow, actor: ActorNow, namespace: str, name: str) -> Response:
    """One secret: its keys, never its values."""
    return _json(
        _report(await services.on_store.call(services.secrets.get, namespace, name, actor=actor))
    )


@router.put(_PATH + "/{name}", operation_id="putSecret")
async def put_secret(
    request: Request, services: ServicesNow, actor: ActorNow, namespace: str, name: str
) -> Response:
    """Store a secret: `{values: {KEY: BASE64}, replace, keep}`. Values are never read."""
    require(actor, "secrets", namespace)
    asked = codec.from_body(await request.body(), _Values)

    def work() -> tuple[Secret | None, Secret]:
        return services.secrets.set(
            namespace, name, asked.values, replace=asked.replace, keep=asked.keep, actor=actor
        )

    before, after = await services.on_store.call(work)
    services.audit.audited("create" if before is None else "update", actor, before, after)
    return _json(_report(after), 201 if before is None else 200)


@router.delete(_PATH + "/{name}", operation_id="deleteSecret")
async def delete_secret(services: ServicesNow, actor: ActorNow, namespace: str, name: str) -> Response:
    """Remove a secret, at once. Tasks that have its values keep them until they end."""
    gone = await services.on_store.call(services.secrets.delete, namespace, name, actor=actor)
    services.audit.audited("delete", actor, gone, None)
    return _json(_report(gone))


@router.post("/api/v1/secrets/rotate-key", operation_id="rotateSecretKey")
async def rotate_key(services: ServicesNow, actor: ActorNow) -> Response:
    """Encrypt all secrets with a new key, and remove the old one: `{secrets: NUMBER}`."""
    number = await services.on_store.call(services.secrets.rotate, actor=actor)
    return _json({"secrets": number})


def _report(secret: Secret) -> SecretReport:
    return SecretReport(
        namespace=secret.metadata.namespace,
        name=secret.metadata.name,
        keys=tuple(secret.spec.sealed),
        created=secret.metadata.created,
        updated=secret.spec.updated,
        submitter=secret.metadata.submitter,
    )


def _json(document: object, status: int = 200) -> Response:
    body = codec.encode(document)
    return Response(body, status, {"Cache-Control": "no-store"}, "application/json")
