"""Putting back what an older version does not know.

A document written by a newer Shoal may hold fields that this one has no place for. Reading drops
them; `merge_unknown` takes them from the stored document into the new one before it is stored, so an
older writer loses nothing of a newer one's.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

_IDENTITIES = ("name", "type")
"""Fields that identify the items of a list, whatever their order."""


def merge_unknown(old_document: bytes, new_document: bytes, struct: type[msgspec.Struct]) -> bytes:
    """The new document, with the fields of the old one that `struct` does not know, at every depth.

    Items of a list are matched by their `name` (or `type`, for conditions) where they have one, by
    position otherwise; entries of a map by key. Whatever the new document removed takes its unknown
    fields along; a part left out because it is at its default has not been removed.

    Raises:
        msgspec.DecodeError: one of the documents is not JSON.
    """
    old = msgspec.json.decode(old_document)
    shape = _shape_of_struct(struct)
    if not _has_unknown(old, shape):
        return new_document
    return msgspec.json.encode(_merge(old, msgspec.json.decode(new_document), shape))


@dataclass(frozen=True)
class _Shape:
    """Where to look for Structs inside a type. At most one of the three is set."""

    fields: dict[str, _Field] | None = None
    item: _Shape | None = None
    value: _Shape | None = None


@dataclass(frozen=True)
class _Field:
    shape: _Shape | None
    default: Any
    """What absence on the wire means; `msgspec.NODEFAULT` for a required field."""

    @property
    def kept(self) -> bool:
        """Whether absence means a default Struct, rather than that it was removed."""
        return isinstance(self.default, msgspec.Struct)


def _has_unknown(old: Any, shape: _Shape | None) -> bool:
    if shape is None:
        return False
    if shape.fields is not None and isinstance(old, dict):
        fields = shape.fields
        return any(
            key not in fields or _has_unknown(value, fields[key].shape)
            for key, value in cast("dict[str, Any]", old).items()
        )
    if shape.item is not None and isinstance(old, list):
        return any(_has_unknown(item, shape.item) for item in cast("list[Any]", old))
    if shape.value is not None and isinstance(old, dict):
        return any(_has_unknown(value, shape.value) for value in cast("dict[str, Any]", old).values())
    return False


def _merge(old: Any, new: Any, shape: _Shape) -> Any:
    if shape.fields is not None and isinstance(old, dict) and isinstance(new, dict):
        return _merge_struct(cast("dict[str, Any]", old), cast("dict[str, Any]", new), shape.fields)
    if shape.item is not None and isinstance(old, list) and isinstance(new, list):
        return _merge_list(cast("list[Any]", old), cast("list[Any]", new), shape.item)
    if shape.value is not None and isinstance(old, dict) and isinstance(new, dict):
        before = cast("dict[str, Any]", old)
        after = cast("dict[str, Any]", new)
        inner = shape.value
        return {k: _merge(before[k], v, inner) if k in before else v for k, v in after.items()}
    return new


def _merge_struct(old: dict[str, Any], new: dict[str, Any], fields: dict[str, _Field]) -> dict[str, Any]:
    merged = dict(new)
    for key, value in old.items():
        field = fields.get(key)
        if field is None:
            merged.setdefault(key, value)
        elif field.shape is not None and _has_unknown(value, field.shape):
            if key in new:
                merged[key] = _merge(value, new[key], field.shape)
            elif field.kept:
                merged[key] = _merge(value, {}, field.shape)
    return merged


def _merge_list(old: list[Any], new: list[Any], item: _Shape) -> list[Any]:
    identity = next((name for name in _IDENTITIES if name in (item.fields or {})), "")
    if not identity:
        return [_merge(old[i], v, item) if i < len(old) else v for i, v in enumerate(new)]
    absent = (item.fields or {})[identity].default
    before: dict[Any, list[Any]] = {}
    for value in old:
        before.setdefault(_identity(value, identity, absent), []).append(value)
    merged: list[Any] = []
    for value in new:
        same = before.get(_identity(value, identity, absent))
        merged.append(_merge(same.pop(0), value, item) if same else value)
    return merged


def _identity(value: Any, field: str, absent: Any) -> Any:
    """The name of an item, which is left out of the document where it is the default one."""
    return cast("dict[str, Any]", value).get(field, absent) if isinstance(value, dict) else None


@cache
def _shape_of_struct(struct: type[msgspec.Struct]) -> _Shape:
    hints = get_type_hints(struct)
    fields: dict[str, _Field] = {}
    for field in msgspec.structs.fields(struct):
        fields[field.encode_name] = _Field(_shape_of(hints[field.name]), field.default)
    return _Shape(fields=fields)


def _shape_of(hint: Any) -> _Shape | None:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _shape_of_struct(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        inner = _shape_of(arguments[0])
        return None if inner is None else _Shape(item=inner)
    if origin is dict:
        inner = _shape_of(arguments[1])
        return None if inner is None else _Shape(value=inner)
    if origin in (Union, types.UnionType):
        return next(filter(None, map(_shape_of, arguments)), None)
    return None
