"""The words that messages about a value use: what was wanted, what was found, what to write instead."""

from __future__ import annotations

import math
import re
from typing import Any, cast

from msgspec import inspect, structs

from shoal.objects.quantities import Quantity

__all__ = ["description", "scalar_hint", "shown", "wanted"]


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


def scalar_hint(value: Any, kind: inspect.Type) -> str:
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
