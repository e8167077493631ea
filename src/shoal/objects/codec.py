"""Bytes to Structs and back. JSON documents, camelCase, quantities in canonical text.

`decode` is lenient: it keeps what it knows and ignores the rest, for documents may come from a newer
version. `merge_unknown` puts the rest back before an update is stored, so an older writer loses
nothing of a newer one's (`shoal.objects.merge`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from shoal.objects.merge import merge_unknown
from shoal.objects.quantities import Quantity

__all__ = ["builtins", "decode", "encode", "merge_unknown"]

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """The JSON document of an object or of any part of one."""
    return _ENCODER.encode(value)


def decode(document: bytes | str, struct: type[T]) -> T:
    """The Struct in `document`; unknown fields are ignored.

    Raises:
        msgspec.ValidationError: a known field has a wrong type or value.
        msgspec.DecodeError: the document is not JSON.
    """
    decoder = _DECODERS.get(struct)
    if decoder is None:
        decoder = _DECODERS[struct] = msgspec.json.Decoder(struct, dec_hook=_from_wire)
    return decoder.decode(document)


def builtins(value: Any) -> Any:
    """The object as plain dicts, lists, strings and numbers."""
    return msgspec.to_builtins(value, enc_hook=_to_wire)


def _to_wire(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.text()
    raise NotImplementedError(f"{type(value).__name__} has no place on the wire")


def _from_wire(wanted: type, value: Any) -> Any:
    if issubclass(wanted, Quantity):
        return wanted.parse(value)
    raise NotImplementedError(f"{wanted} has no place on the wire")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_wire)
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
