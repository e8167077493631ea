"""Documents written straight into a store, past every rule: what another version, a damaged disk or an
intruder may leave there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from shoal.objects.kinds import Kind
from shoal.store.backend import Change, Row, Transaction
from shoal.store.base import SYSTEM
from shoal.store.transactional import TransactionalStore

__all__ = ["put_document", "rewrite"]

Document = dict[str, Any]  # Any: whatever the test writes


def put_document(store: TransactionalStore, kind: Kind, document: Document) -> None:
    """Store the document as it is, under the key in its metadata, with a version of its own."""
    metadata = document["metadata"]
    namespace, name = metadata.get("namespace", "") if kind.namespaced else "", metadata["name"]

    def operation(transaction: Transaction) -> None:
        there = transaction.find(kind.name, namespace, name)
        uid = there.uid if there is not None else metadata.get("uid") or f"raw-{namespace}-{name}"
        revision, version = transaction.next_version()
        stamped = {**metadata, "uid": uid, "resourceVersion": version}
        row = Row(
            kind=kind.name,
            uid=uid,
            document=msgspec.json.encode({**document, "metadata": stamped}),
            namespace=namespace,
            name=name,
            labels={},
            owners=(),
        )
        what: Literal["Added", "Modified"] = "Added" if there is None else "Modified"
        transaction.apply((Change(revision, what, row),))

    store._backend.write(operation)  # pyright: ignore[reportPrivateUsage] - past the rules on purpose


def rewrite(
    store: TransactionalStore,
    kind: Kind,
    name: str,
    spec: Callable[[Document], Document] = lambda spec: spec,
    status: Callable[[Document], Document] = lambda status: status,
    namespace: str = "default",
) -> None:
    """Change the stored spec and status of one object."""
    space = namespace if kind.namespaced else ""
    document = msgspec.json.decode(store.record(kind, space, name, actor=SYSTEM).document)
    document["spec"] = spec(document.get("spec") or {})
    document["status"] = status(document.get("status") or {})
    document["metadata"]["generation"] = document["metadata"].get("generation", 1) + 1
    put_document(store, kind, document)
