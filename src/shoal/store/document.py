"""Stored text: documents, and the versions and cursors that clients see.

A document is the complete JSON of an object. A `Draft` decodes its metadata and keeps every other part
as the bytes it was, so that a large spec or status costs nothing to carry along and fields that this
version does not know stay as they are.

Versions and cursors are opaque to clients, and `epoch.revision` to the stores of this package. A
revision counts the changes of one store, in the order in which they became durable. The epoch is drawn
when a store is made, so that a version from before the store was thrown away and made again is
recognised instead of pointing at something else.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

import msgspec

from shoal.objects import codec
from shoal.objects.errors import Expired, Invalid
from shoal.objects.meta import Object

_ORDER = ("apiVersion", "kind", "metadata", "spec", "status")
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()
_PLAIN = msgspec.json.Encoder()


def new_epoch() -> str:
    """Another store, another epoch."""
    return secrets.token_hex(4)


def version_text(epoch: str, revision: int) -> str:
    """The version that stands for a revision of this store."""
    return f"{epoch}.{revision}"


def read_version(text: str, epoch: str) -> int:
    """The revision behind a version.

    Raises:
        Expired: it is of another store, or nothing that a store of this package wrote.
    """
    theirs, _, digits = text.rpartition(".")
    if theirs != epoch or not (digits.isascii() and digits.isdecimal()):
        raise Expired("this version is not one of this store's", hint="list again and compare")
    return int(digits)


@dataclass(frozen=True)
class Cursor:
    """Where a list goes on: after `(namespace, name)`, with the version of its first page."""

    version: str
    namespace: str
    name: str

    def text(self) -> str:
        """As it travels."""
        plain = json.dumps([self.version, self.namespace, self.name], separators=(",", ":"))
        return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    """The cursor in `text`.

    Raises:
        Invalid: it cannot be read.
    """
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, TypeError):
        raise Invalid("the cursor cannot be read", hint="list from the start") from None
    if not all(isinstance(part, str) for part in (version, namespace, name)):
        raise Invalid("the cursor cannot be read", hint="list from the start")
    return Cursor(version, namespace, name)


class Draft:
    """A document being changed. `parts` are its top-level fields but for `metadata`, undecoded."""

    __slots__ = ("metadata", "parts")

    def __init__(self, document: bytes) -> None:
        self.parts: dict[str, msgspec.Raw] = _PARTS.decode(document)
        self.metadata: dict[str, Any] = _ANY.decode(self.parts.pop("metadata"))

    def status(self) -> dict[str, msgspec.Raw]:
        """The fields of the status, undecoded."""
        raw = self.parts.get("status")
        return {} if raw is None or bytes(raw) == b"null" else _PARTS.decode(raw)

    def set_status(self, status: dict[str, msgspec.Raw]) -> None:
        """Put the status back."""
        self.parts["status"] = msgspec.Raw(_PLAIN.encode(status))

    def people_part(self) -> bytes:
        """A document of the metadata and spec alone."""
        return _PLAIN.encode({"metadata": self.metadata, "spec": self.parts["spec"]})

    def seal(self) -> bytes:
        """The document as it is stored."""
        parts: dict[str, Any] = {**self.parts, "metadata": self.metadata}
        ordered = {name: parts[name] for name in _ORDER if name in parts}
        return _PLAIN.encode(ordered | parts)


def same(one: msgspec.Raw | None, other: msgspec.Raw | None) -> bool:
    """Whether two parts say the same, whatever their spacing and order of keys."""
    if one is None or other is None:
        return one is other
    left, right = bytes(one), bytes(other)
    return left == right or _ANY.decode(left) == _ANY.decode(right)


def encoded(value: Any, what: str) -> bytes:  # Any: whatever has a place on the wire
    """Its JSON.

    Raises:
        Invalid: it holds text that has none.
    """
    try:
        return codec.encode(value)
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} holds text that is not Unicode: {error}") from error


def validated(document: bytes, struct: type[Object], what: str) -> Any:  # Any: of that struct
    """The typed object in a document that is about to be stored.

    Raises:
        Invalid: a field has a type or value that could not be read back.
    """
    try:
        return codec.decode(document, struct)
    except msgspec.ValidationError as error:
        raise Invalid(f"{what} is not valid: {error}") from error


def status_of(fields: bytes, struct: type[Object], what: str) -> msgspec.Struct:
    """The status of that kind of object which `fields` (a JSON object) describe.

    Raises:
        Invalid: a field has a type or value that could not be read back.
    """
    try:
        return codec.decode(fields, _status_struct(struct))
    except msgspec.ValidationError as error:
        raise Invalid(f"the status of {what} is not valid: {error}") from error


def merged_status(
    stored: dict[str, msgspec.Raw], fields: bytes, status: msgspec.Struct
) -> dict[str, msgspec.Raw]:
    """The patched `fields` (a JSON object, decoded: `status`) in the form in which they are stored.

    What equals its default is left out, so that writing a default again is seen to change nothing;
    unknown fields, those given and those stored inside the same fields, are kept.
    """
    shape = type(status)
    given = _PARTS.decode(fields)
    before = _PLAIN.encode({name: stored[name] for name in given if name in stored})
    canonical = codec.merge_unknown(fields, codec.encode(status), shape)
    after = _PARTS.decode(codec.merge_unknown(before, canonical, shape))
    return {name: raw for name, raw in after.items() if name in given}


@cache
def _status_struct(struct: type[Object]) -> type[msgspec.Struct]:
    return get_type_hints(struct)["status"]
