"""The schema of each kind, from its Structs: for custom resources, for editors, and for the docs.

It is *structural* in Kubernetes' sense: each node has one type, and the only union is "integer or
string" (quantities and priorities). Descriptions are the docstrings of the fields, read from the source
of the module, which is installed with it: Python keeps no docstring of an attribute. Without source
(only compiled files) there are none, and nothing else changes.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.util
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from typing import Any, cast

import msgspec
from msgspec import inspect

from shoal.objects import codec
from shoal.objects.kind import Kind
from shoal.objects.meta import API_VERSION
from shoal.objects.quantities import Quantity
from shoal.objects.validate import description, fields_of

Schema = dict[str, Any]


def openapi_schema(kind: Kind) -> Schema:
    """The `openAPIV3Schema` of the kind's custom resource definition.

    Metadata is left to Kubernetes, which has its own; unknown fields are left to its pruning.
    """
    schema = _Writer(closed=False).struct(kind.struct)
    schema["properties"] |= {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    return schema


def editor_schema(kind: Kind) -> Schema:
    """JSON Schema (draft 7) for editors: with metadata and defaults, and unknown fields refused."""
    schema = _Writer(closed=True).struct(kind.struct)
    schema["properties"] |= {
        "apiVersion": {"type": "string", "enum": [API_VERSION]},
        "kind": {"type": "string", "enum": [kind.name]},
    }
    schema["required"] = ["apiVersion", "kind", *schema.get("required", [])]
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": kind.name, **schema}


def field_paths(kind: Kind, part: str = "spec") -> tuple[str, ...]:
    """Every field of a part of the kind that holds no fields itself, as `spec.roles[].resources.cpu`.

    `part` is `spec`, `status` or `metadata`. Lists and maps of plain values are one field.
    """
    return tuple(_leaves(fields_of(kind.struct)[part].type, part))


class _Writer:
    """Types to schemas. `closed`: unknown fields are wrong, and defaults are shown."""

    def __init__(self, *, closed: bool) -> None:
        self._closed = closed

    def struct(self, struct: type[msgspec.Struct]) -> Schema:
        docs = field_docs(struct)
        fields = fields_of(struct)
        properties: dict[str, Schema] = {}
        for name, field in fields.items():
            schema = self.type(field.type)
            said = docs.get(field.name, "")
            if not isinstance(_inner(field.type), inspect.StructType):
                said = " ".join(filter(None, (said, schema.get("description", ""))))
            said = said or schema.get("description", "")
            properties[name] = {**schema, "description": said} if said else schema
            if self._closed:
                properties[name] |= _default(field)
        schema: Schema = {"type": "object", "description": summary(struct), "properties": properties}
        if required := [name for name, field in fields.items() if field.required]:
            schema["required"] = required
        if self._closed:
            schema["additionalProperties"] = False
        return schema

    def type(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.Metadata():
                said = description(kind)
                words = f"{said[:1].upper()}{said[1:]}." if said else ""
                return {**({"description": words} if words else {}), **self.type(kind.type)}
            case inspect.StructType():
                return self.struct(kind.cls)
            case inspect.VarTupleType() | inspect.ListType():
                return {"type": "array", "items": self.type(kind.item_type)}
            case inspect.DictType(value_type=inspect.AnyType()):
                return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            case inspect.DictType():
                return {"type": "object", "additionalProperties": self.type(kind.value_type)}
            case inspect.CustomType():
                quantity = cast("type[Quantity]", kind.cls)
                said = f"{quantity.wanted[:1].upper()}{quantity.wanted[1:]}."
                return {"description": said, **self._int_or_string(), "pattern": quantity.pattern}
            case inspect.UnionType():
                return self._int_or_string() if _inner(kind) is kind else self.type(_inner(kind))
            case _:
                return _scalar(kind)

    def _int_or_string(self) -> Schema:
        """The one union that a structural schema allows; files here may also say 0.5."""
        number = {"type": "number" if self._closed else "integer"}
        return {"x-kubernetes-int-or-string": True, "anyOf": [number, {"type": "string"}]}


def _scalar(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType() | inspect.FloatType():
            whole = isinstance(kind, inspect.IntType)
            schema: Schema = {"type": "integer", "format": "int64"} if whole else {"type": "number"}
            bounds = {"minimum": kind.ge, "maximum": kind.le}
            return schema | {name: bound for name, bound in bounds.items() if bound is not None}
        case inspect.StrType():
            bounds = {
                "pattern": kind.pattern,
                "minLength": kind.min_length,
                "maxLength": kind.max_length,
            }
            return {"type": "string"} | {name: b for name, b in bounds.items() if b is not None}
        case _:
            raise NotImplementedError(f"{kind} has no structural schema")


def _default(field: inspect.Field) -> Schema:
    default: Any = field.default
    if default in (msgspec.NODEFAULT, None, "") or isinstance(default, msgspec.Struct | tuple):
        return {}
    return {"default": codec.builtins(default)}


def _leaves(kind: inspect.Type, path: str) -> Iterator[str]:
    match kind:
        case inspect.StructType():
            for name, field in fields_of(kind.cls).items():
                yield from _leaves(field.type, f"{path}.{name}")
        case inspect.VarTupleType(item_type=inspect.StructType() as inner):
            yield from _leaves(inner, f"{path}[]")
        case inspect.UnionType():
            yield from [path] if _inner(kind) is kind else _leaves(_inner(kind), path)
        case _:
            yield path


def _inner(kind: inspect.Type) -> inspect.Type:
    """The X of `X | None`; the type itself where there is no such choice."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    return kinds[0] if len(kinds) == 1 else kind


@cache
def field_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Attribute to its docstring on one line; those without one are not there."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        docs |= _documented(base.__module__).get(base.__name__, {})
    return docs


def summary(struct: type[msgspec.Struct]) -> str:
    """The docstring of the class, on one line."""
    return _one_line(struct.__doc__ or "")


@cache
def _documented(module: str) -> dict[str, dict[str, str]]:
    """Class to attribute to docstring."""
    spec = importlib.util.find_spec(module)
    loader = spec.loader if spec is not None else None
    source = loader.get_source(module) if isinstance(loader, importlib.abc.InspectLoader) else None
    classes = (node for node in ast.parse(source or "").body if isinstance(node, ast.ClassDef))
    return {node.name: _attributes(node) for node in classes}


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as said)),
            ):
                docs[name] = _one_line(said)
            case _:
                pass
    return docs


def _one_line(text: str) -> str:
    return " ".join(cleandoc(text).split())
