"""What files may say, as a page of the documentation: each field, what it wants, its default, its
docstring. `docs/manifests.md` is this page, and a test keeps it so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import inspect

from shoal.objects import codec
from shoal.objects.kinds import KINDS, Kind
from shoal.objects.meta import API_VERSION, Metadata
from shoal.objects.quantities import Quantity
from shoal.objects.schema import field_docs, summary
from shoal.objects.validate import fields_of, wanted

_HEAD = f"""# Manifests

What files of `shoal apply -f FILE` may say, field by field. A file holds documents in YAML or JSON,
separated by `---`; each begins with `apiVersion: {API_VERSION}`, `kind` and `metadata`.
How queues share a cluster is on [a page of its own](queues.md), with an example. This page is made from
the code (`python -m tools.reference > docs/manifests.md`); `/schema/KIND` of the API says the
same to editors.
"""
_WRITTEN = ("name", "namespace", "labels", "annotations")
"""Of metadata, what people write."""


def page() -> str:
    """The page, whole."""
    parts = [_HEAD, *_table("metadata", "What all kinds have.", Metadata, only=_WRITTEN)]
    for kind in KINDS.values():
        parts += _kind(kind)
    return "\n".join(parts)


def _kind(kind: Kind) -> Iterator[str]:
    yield f"\n# {kind.name}\n\n{summary(kind.struct)}\n"
    spec = fields_of(kind.struct)["spec"].type
    if isinstance(spec, inspect.StructType):
        paths: dict[type[msgspec.Struct], str] = {}
        _find(spec.cls, "spec", paths)
        for struct, path in paths.items():
            yield from _table(path, summary(struct), struct, paths=paths)


def _find(struct: type[msgspec.Struct], path: str, paths: dict[type[msgspec.Struct], str]) -> None:
    """Where each Struct stands first: there it is described."""
    if struct in paths:
        return
    paths[struct] = path
    for name, field in fields_of(struct).items():
        inner, mark = _inner(field.type)
        if inner is not None:
            _find(inner, f"{path}.{name}{mark}", paths)


def _table(
    path: str,
    said: str,
    struct: type[msgspec.Struct],
    only: tuple[str, ...] = (),
    paths: Mapping[type[msgspec.Struct], str] = MappingProxyType({}),
) -> Iterator[str]:
    docs = field_docs(struct)
    yield f"## {path}\n\n{said}\n\n| field | wants | default | |\n| --- | --- | --- | --- |"
    for name, field in fields_of(struct).items():
        if not only or name in only:
            inner, mark = _inner(field.type)
            listed = "a list, " if mark else ""
            wants = _cell(_wants(field.type)) if inner is None else f"{listed}see `{paths[inner]}`"
            yield f"| `{name}` | {wants} | {_default(field)} | {_cell(docs.get(field.name, ''))} |"
    yield ""


def _inner(kind: inspect.Type) -> tuple[type[msgspec.Struct] | None, str]:
    """The Struct that a field holds, and `[]` where it holds a list of them."""
    match kind:
        case inspect.StructType():
            return kind.cls, ""
        case inspect.VarTupleType(item_type=inspect.StructType() as item):
            return item.cls, "[]"
        case inspect.UnionType():
            kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            return _inner(kinds[0]) if len(kinds) == 1 else (None, "")
        case _:
            return None, ""


def _wants(kind: inspect.Type) -> str:
    """Shorter than in a message, where a reader has no page beside it."""
    match kind:
        case inspect.AnyType():
            return "anything"
        case inspect.DictType(value_type=inspect.AnyType()):
            return "a map"
        case _:
            return wanted(kind)


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        made = field.default_factory
        value = made() if callable(made) else None
    if isinstance(value, msgspec.Struct) or value in (None, "", (), {}, []):
        return ""
    spelt = value.text() if isinstance(value, Quantity) else codec.builtins(value)
    return f"`{spelt if isinstance(spelt, str) else json.dumps(spelt)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201
