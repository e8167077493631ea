"""Bytes to Structs and back. JSON documents, camelCase, quantities in canonical text.

`encode` is canonical: equal objects give equal bytes, and what equals its default is left out, however
the object came to be. `decode` is lenient: it keeps what it knows and ignores the rest, for documents
may come from a newer version. `merge_unknown` puts the rest back before an update is stored, so an
older writer loses nothing of a newer one's (`shoal.objects.merge`).
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from shoal.objects.errors import Invalid
from shoal.objects.quantities import Quantity

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """The JSON document of an object or of any part of one."""
    return _ENCODER.encode(canonical(value))


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


def from_body(body: bytes, wanted: type[T], what: str = "the body") -> T:
    """The value of a type in a request's body.

    Raises:
        Invalid: it is not UTF-8, not JSON, nested too deeply, or not of that type.
    """
    try:
        return msgspec.json.decode(body, type=wanted)
    except UnicodeDecodeError as error:
        raise Invalid(f"{what} is not UTF-8: byte {error.start} cannot be read") from error
    except msgspec.ValidationError as error:
        raise Invalid(f"{what} is not valid: {error}") from error
    except msgspec.DecodeError as error:
        raise Invalid(f"{what} is not JSON: {error}") from error
    except RecursionError as error:
        raise Invalid(f"{what} is nested too deeply") from error


def builtins(value: Any) -> Any:
    """The object as plain dicts, lists, strings and numbers, as `encode` would write it."""
    return msgspec.json.decode(encode(value))


def convert(value: Any, struct: type[T]) -> T:
    """The Struct that plain dicts, lists, strings and numbers describe.

    Raises:
        msgspec.ValidationError: a known field has a wrong type or value.
    """
    return msgspec.convert(value, struct, dec_hook=_from_wire)


def merge_unknown(old_document: bytes, new_document: bytes, struct: type[msgspec.Struct]) -> bytes:
    """The new document with the unknown fields of the old one: see `shoal.objects.merge`."""
    from shoal.objects import merge  # only stores write: other programs start without it

    return merge.merge_unknown(old_document, new_document, struct)


def canonical(value: T) -> T:
    """The same value with every default in place of what equals it; itself when there is nothing to do.

    msgspec leaves out a field that *is* its default object. One that merely equals it (another `"1s"`,
    another empty `Limits`) it writes, so that equal objects would have different documents.
    """
    return cast("T", _canonical(value))


def changed_fields(old: msgspec.Struct, new: msgspec.Struct) -> list[str]:
    """Wire names of the fields in which two Structs of one type differ."""
    before, after = canonical(old), canonical(new)
    return [
        field.encode_name
        for field in msgspec.structs.fields(type(before))
        if getattr(before, field.name) != getattr(after, field.name)
    ]


def _canonical(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _canonical_struct(value)
    if isinstance(value, tuple | list):
        items = cast("tuple[Any, ...] | list[Any]", value)
        made = [_canonical(item) for item in items]
        same = all(a is b for a, b in zip(items, made, strict=True))
        return items if same else type(items)(made)
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        made_entries = {key: _canonical(item) for key, item in entries.items()}
        return entries if all(made_entries[key] is entries[key] for key in entries) else made_entries
    return value


def _canonical_struct(value: msgspec.Struct) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        item: Any = getattr(value, name)
        if item is default:
            continue
        made: Any = _canonical(item)
        if made == default and type(made) is type(default):
            changes[name] = default
        elif made is not item:
            changes[name] = made
    return msgspec.structs.replace(value, **changes) if changes else value


def _defaults(struct: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """(attribute, default) of each field; a required field's default equals nothing."""
    known = _DEFAULTS.get(struct)
    if known is None:
        known = _DEFAULTS[struct] = tuple((f.name, f.default) for f in msgspec.structs.fields(struct))
    return known


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
_DEFAULTS: dict[type[msgspec.Struct], tuple[tuple[str, Any], ...]] = {}
