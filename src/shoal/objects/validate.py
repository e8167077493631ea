"""A plain document against the Struct of its kind: every problem at once, each with its path.

Decoding stops at the first problem and names no neighbours; the author of forty lines wants all
of them, with what was meant. This walks the document beside the type and leaves what is wrong out of
the value it gives back, so that the rules of the kind can be tried on the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import msgspec
from msgspec import inspect, structs

from shoal.objects.nearest import nearest
from shoal.objects.paths import Finding, Path
from shoal.objects.quantities import Quantity, QuantityError

_WORTH_A_HINT = 100
"""Findings; more are not read, and looking for the nearest name takes time."""


_DEEPEST = 100


_MOST_FINDINGS = 1000
"""What is wrong beyond so many places is not looked for."""

_MOST_PARTS = 1000
"""Structures in one list, and fields that one structure may name."""


class _TooMany(Exception):
    """The walk ends: there are enough findings."""


class _Left:
    """What stands for a value that is wrong, until its place is filled or left out."""


_LEFT_OUT = _Left()


def check_structure(document: Any, struct: type[msgspec.Struct]) -> tuple[Any, list[Finding]]:
    """(the document without what is wrong, what is wrong).

    The first can always be made into the Struct: an optional part that is wrong is left out, a required
    one stands there as some value of its type. Null means absence, as it does in Kubernetes.
    """
    findings: list[Finding] = []
    try:
        value = _Walk(findings).struct(document, fields_of(struct), ())
    except _TooMany:
        findings.append(Finding((), f"more than {_MOST_FINDINGS} problems; the rest is not checked"))
        value = _LEFT_OUT
    return (_some_fields(fields_of(struct)) if value is _LEFT_OUT else value), findings


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    """The fields of a Struct by their names on the wire."""
    described = cast("inspect.StructType", inspect.type_info(struct))
    return {field.encode_name: field for field in described.fields}


class _Walk:
    """One pass over a document; each method returns the value to keep, or `_LEFT_OUT`."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    def wrong(self, path: Path, message: str, *involves: Path) -> _Left:
        if len(self.findings) >= _MOST_FINDINGS:
            raise _TooMany
        self.findings.append(Finding(path, message, involves))
        return _LEFT_OUT

    def struct(self, value: Any, fields: dict[str, inspect.Field], path: Path) -> Any:
        if not isinstance(value, dict):
            names = ", ".join(list(fields)[:4])
            return self.wrong(path, f"wants fields such as {names}; found {shown(value)}")
        document = cast("dict[str, Any]", value)
        kept: dict[str, Any] = {}
        for name, item in document.items():
            field = fields.get(name)
            if field is None:
                self.unknown(name, fields, path)
            elif item is not None:
                made = self.value(item, field.type, (*path, name))
                if made is not _LEFT_OUT:
                    kept[name] = made
        for name, field in fields.items():
            if field.required and name not in kept:
                if document.get(name) is None:
                    self.wrong((*path, name), f"is required: {wanted(field.type)}")
                kept[name] = _some(field.type)
        return kept

    def unknown(self, name: str, fields: dict[str, inspect.Field], path: Path) -> None:
        near = nearest(name, fields) if len(self.findings) < _WORTH_A_HINT else ""
        if near:
            # What was meant is not missing either: rules about it stay silent.
            self.wrong((*path, name), f"unknown field; did you mean {near}?", (*path, near))
        else:
            self.wrong((*path, name), f"unknown field; known here: {', '.join(sorted(fields))}")

    def value(self, value: Any, kind: inspect.Type, path: Path) -> Any:
        match kind:
            case inspect.Metadata():
                return self.scalar(value, kind.type, path, wanted(kind))
            case inspect.StructType():
                return self.struct(value, fields_of(kind.cls), path)
            case inspect.VarTupleType() | inspect.ListType():
                return self.items(value, kind, path)
            case inspect.DictType():
                return self.entries(value, kind, path)
            case inspect.CustomType():
                return self.quantity(value, kind, path)
            case inspect.UnionType():
                return self.union(value, kind, path)
            case inspect.LiteralType():
                return self.choice(value, kind, path)
            case inspect.AnyType():
                return self.anything(value, path)
            case _:
                return self.scalar(value, kind, path, wanted(kind))

    def items(self, value: Any, kind: inspect.VarTupleType | inspect.ListType, path: Path) -> Any:
        if not isinstance(value, list):
            return self.wrong(path, f"wants {wanted(kind)}; found {shown(value)}")
        structures = isinstance(kind.item_type, inspect.StructType)
        if structures and (count := len(cast("list[Any]", value))) > _MOST_PARTS:
            return self.wrong(path, f"has at most {_MOST_PARTS} entries; found {count}")
        made = [
            self.value(item, kind.item_type, (*path, i))
            for i, item in enumerate(cast("list[Any]", value))
        ]
        # An item that is wrong keeps its place: what follows must be found where the text has it.
        return [_some(kind.item_type) if item is _LEFT_OUT else item for item in made]

    def entries(self, value: Any, kind: inspect.DictType, path: Path) -> Any:
        if not isinstance(value, dict):
            return self.wrong(path, f"wants {wanted(kind)}; found {shown(value)}")
        made = {
            key: self.value(item, kind.value_type, (*path, key))
            for key, item in cast("dict[str, Any]", value).items()
        }
        return {key: item for key, item in made.items() if item is not _LEFT_OUT}

    def quantity(self, value: Any, kind: inspect.CustomType, path: Path) -> Any:
        try:
            cast("type[Quantity]", kind.cls).parse(value)
        except QuantityError as error:
            return self.wrong(path, str(error))
        return value

    def union(self, value: Any, kind: inspect.UnionType, path: Path) -> Any:
        """`X | None`, or a number or text."""
        kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        if len(kinds) == 1:
            return self.value(value, kinds[0], path)
        for each in kinds:
            if _Walk([]).value(value, each, path) is not _LEFT_OUT:
                return value
        return self.wrong(path, f"wants {' or '.join(map(wanted, kinds))}; found {shown(value)}")

    def anything(self, value: Any, path: Path) -> Any:
        """Opaque: all that can be wrong is that it is too deep for what comes after."""
        layer: list[Any] = [value]
        for _ in range(_DEEPEST):
            layer = [inner for each in layer for inner in _inside(each)]
            if not layer:
                return value
        return self.wrong(path, f"nested deeper than {_DEEPEST} levels")

    def choice(self, value: Any, kind: inspect.LiteralType, path: Path) -> Any:
        if isinstance(value, str) and value in kind.values:
            return value
        near = nearest(value, map(str, kind.values)) if isinstance(value, str) else ""
        hint = f"; did you mean {near}?" if near else ""
        return self.wrong(path, f"wants {wanted(kind)}; found {shown(value)}{hint}")

    def scalar(self, value: Any, kind: inspect.Type, path: Path, words: str) -> Any:
        if _fits(value, kind):
            return value
        return self.wrong(path, f"wants {words}; found {shown(value)}{_scalar_hint(value, kind)}")


def _fits(value: Any, kind: inspect.Type) -> bool:
    match kind:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType():
            number = int if isinstance(kind, inspect.IntType) else int | float
            if isinstance(value, bool) or not isinstance(value, number):
                return False
            low = kind.ge is None or value >= kind.ge
            return low and (kind.le is None or value <= kind.le)
        case inspect.StrType():
            return isinstance(value, str) and _text_fits(value, kind)
        case _:
            raise NotImplementedError(f"no field of a kind has the type {kind}")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _text_fits(value: str, kind: inspect.StrType) -> bool:
    if kind.max_length is not None and len(value) > kind.max_length:
        return False
    if kind.min_length is not None and len(value) < kind.min_length:
        return False
    # `$` also matches before a final line break.
    return kind.pattern is None or (
        re.search(kind.pattern, value) is not None and not value.endswith("\n")
    )


def _some(kind: inspect.Type) -> Any:
    """Some value of the type; its path is reported, so no rule will speak of it."""
    match kind:
        case inspect.Metadata():
            return _some(kind.type)
        case inspect.StructType():
            return _some_fields(fields_of(kind.cls))
        case inspect.VarTupleType() | inspect.ListType():
            return []
        case inspect.StrType():
            return "left-out"
        case inspect.IntType() | inspect.FloatType():
            return kind.ge or 0
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.BoolType():
            return False
        case inspect.CustomType():
            return 0
        case inspect.UnionType():
            return _some(kind.types[0])
        case _:
            return {}


def _some_fields(fields: dict[str, inspect.Field]) -> dict[str, Any]:
    return {name: _some(field.type) for name, field in fields.items() if field.required}


def wanted(kind: inspect.Type) -> str:
    """What a value of this type is, in words."""
    match kind:
        case inspect.Metadata():
            return description(kind) or wanted(kind.type)
        case inspect.IntType() | inspect.FloatType():
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            if kind.ge is not None and kind.le is not None:
                return f"{number} from {kind.ge} to {kind.le}"
            return number if kind.ge is None else f"{number} of at least {kind.ge}"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text that is not empty" if kind.min_length else "text"
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, kind.values))}"
        case inspect.VarTupleType() | inspect.ListType():
            inner = kind.item_type
            return "a list" if isinstance(inner, inspect.StructType) else f"a list of {_plural(inner)}"
        case inspect.DictType():
            return f"a map of names to {_plural(kind.value_type)}"
        case inspect.StructType():
            return f"fields such as {', '.join(_field_names(kind)[:4])}"
        case inspect.CustomType():
            return cast("type[Quantity]", kind.cls).wanted
        case inspect.UnionType():
            kinds = (each for each in kind.types if not isinstance(each, inspect.NoneType))
            return " or ".join(map(wanted, kinds))
        case _:
            return "a value"


def description(kind: inspect.Type) -> str:
    """What the declaration says of the type itself."""
    extra = cast("dict[str, Any] | None", getattr(kind, "extra_json_schema", None))
    return str((extra or {}).get("description", ""))


def shown(value: Any) -> str:
    """A value as a message names it, never long."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isnan(value):
        return "NaN, which is no number"
    if isinstance(value, int | float):
        return f"the number {value}" if abs(value) < 1e20 else "a very large number"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    return "a list" if isinstance(value, list) else "a map"


def _scalar_hint(value: Any, kind: inspect.Type) -> str:
    """What to write instead, when the value was right but for its quotes."""
    if isinstance(kind, inspect.StrType) and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if not isinstance(value, str):
        return ""
    if isinstance(kind, inspect.BoolType):
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}
        word = meant.get(value.lower(), value.lower())
        return f"; write {word}, without quotes" if word in ("true", "false") else ""
    number = isinstance(kind, inspect.IntType) and re.fullmatch(r"[-+]?[0-9]{1,18}", value)
    return f"; write {int(value)}, without quotes" if number else ""


def _plural(kind: inspect.Type) -> str:
    match kind:
        case inspect.StrType() | inspect.Metadata():
            return "texts"
        case inspect.IntType():
            return wanted(kind).replace("a whole number", "whole numbers")
        case inspect.FloatType():
            return wanted(kind).replace("a number", "numbers")
        case _:
            return "values"


def _field_names(kind: inspect.StructType) -> list[str]:
    return [field.encode_name for field in structs.fields(kind.cls)]
