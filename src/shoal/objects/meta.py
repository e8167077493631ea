"""What all kinds share: the shape of an object, its metadata, conditions, and references.

Structs are frozen, camelCase on the wire, and omit what equals its default. Stamps are wall time in
seconds since 1970 (floats in memory and on the wire).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

__all__ = [
    "API_VERSION",
    "Condition",
    "Metadata",
    "Name",
    "Namespace",
    "Object",
    "OwnerReference",
    "Part",
    "PartialObject",
    "Stamp",
    "is_name",
]

API_VERSION = "shoal.dev/v1alpha1"

Stamp = float
"""Wall time, seconds since 1970, UTC."""

_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_LABEL_MEANS = "a name of lower-case letters, digits and dashes, at most 63, with no dash at either end"

Name = Annotated[str, msgspec.Meta(pattern=f"^{_LABEL}$", max_length=63, description=_LABEL_MEANS)]
"""A DNS label: lower case letters, digits and dashes, at most 63, no dash at either end."""

Namespace = Annotated[
    str, msgspec.Meta(pattern=f"^({_LABEL})?$", max_length=63, description=_LABEL_MEANS)
]
"""A name, or empty for objects that belong to the whole cluster."""


def is_name(text: str) -> bool:
    """Whether the text can be a `Name`."""
    return re.fullmatch(_LABEL, text) is not None


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every nested structure of an object."""


class OwnerReference(Part, frozen=True, kw_only=True):
    """The object that this one belongs to: when the owner goes, this goes too."""

    kind: str
    name: str
    uid: str


class Metadata(Part, frozen=True, kw_only=True):
    """Identity and bookkeeping; only name, namespace, labels and annotations are people's to write."""

    name: Name
    namespace: Namespace = "default"
    """Ignored, and empty, for cluster-wide kinds."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    """Given by the store at creation, never reused."""
    resource_version: str = ""
    """Opaque: compare for equality only."""
    generation: int = 0
    """Counts changes of spec."""
    created: Stamp = 0.0
    deleted: Stamp = 0.0
    """When deletion was asked for; the object goes once `finalizers` is empty. 0: not asked."""
    finalizers: tuple[str, ...] = ()
    owners: tuple[OwnerReference, ...] = ()
    submitter: str = ""
    """The user that created the object; stamped by the server, immutable."""


class Condition(Part, frozen=True, kw_only=True):
    """One observed fact about an object, with when it last changed and why."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str = ""
    """A CamelCase code, for programs."""
    message: str = ""
    """One sentence, for people."""
    changed: Stamp = 0.0
    observed_generation: int = 0


class Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every kind. A kind's class adds `spec` and `status` and fixes `kind`'s default."""

    metadata: Metadata
    spec: Any  # Any: each kind narrows it to its own Struct
    status: Any = None
    api_version: str = API_VERSION
    kind: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name); the namespace is empty for cluster-wide kinds."""
        return (self.metadata.namespace, self.metadata.name)


class PartialObject(Object, frozen=True, kw_only=True):
    """Any object with its metadata alone: spec and status are the bytes that they are stored as. A store
    takes an update of its metadata, also where this version cannot decode the rest."""

    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"null")
