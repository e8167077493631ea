"""What may stand in an option: durations, cores, sizes, counts. Wrong values are told as Click tells
them, with the option's name."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from shoal.objects.errors import Invalid
from shoal.objects.quantities import Bytes, CpuMillis, QuantityError, Seconds

__all__ = [
    "CPU",
    "DEVICES",
    "DURATION",
    "HOURS",
    "INDICES",
    "KEY_VALUE",
    "MEMORY",
    "MOMENT",
    "PRIORITY",
    "whole",
]

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # takes a type argument only in newer versions


class _Parsed(_ParamType):
    """A parameter read by a function that raises ValueError."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; a value that is no text is one already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (QuantityError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _moment(text: str) -> float:
    """Seconds since 1970: `10m` is ten minutes ago, otherwise an ISO 8601 date and time."""
    try:
        return time.time() - Seconds.parse(text)
    except QuantityError:
        from datetime import datetime

        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            raise ValueError(
                f"{text!r} is neither a length of time such as 10m nor a time such as 2026-05-01T09:30"
            ) from None


def _key_value(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not key:
        raise ValueError(f"{text!r} is not NAME=VALUE or NAME")
    return key, value if equals else None


def _indices(text: str) -> tuple[str, int | None]:
    """`0-99%10` as the indices and how many at once."""
    from shoal.objects.ranges import IndexSet

    indices, percent, at_once = text.partition("%")
    if percent and not (at_once.isdecimal() and int(at_once)):
        raise ValueError(f"{text!r}: after % stands how many run at once, such as 0-99%10")
    parsed = IndexSet.parse(indices)
    if not len(parsed):
        raise ValueError(f"{text!r} holds no index; write them such as 0-99 or 0-99%10")
    return parsed.text, int(at_once) if percent else None


def whole(least: int, most: int = 1_000_000) -> click.ParamType[int]:
    """A whole number; Click's own ranges spell themselves out in every line of help."""

    def read(text: str) -> int:
        wanted = f"a whole number from {least} to {most}"
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not {wanted}") from None
        if not least <= number <= most:
            raise ValueError(f"{number} is not {wanted}")
        return number

    return _Parsed("n", read)


def _devices(text: str) -> float:
    from shoal.client.submit import devices

    try:
        number = float(text)
        devices(number)
    except (ValueError, Invalid):
        said = f"{text!r} is neither a whole number of GPUs nor a part of one, such as 0.5"
        raise ValueError(said) from None
    return number


def _hours(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{text!r} is not a number of hours above 0")
    return number


def _priority(text: str) -> int | str:
    from shoal.objects.job import PRIORITIES

    if text in PRIORITIES:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor one of {', '.join(PRIORITIES)}") from None


DURATION = _Parsed("duration", Seconds.parse)
CPU = _Parsed("cores", CpuMillis.parse)
MEMORY = _Parsed("size", Bytes.parse)
MOMENT = _Parsed("time", _moment)
KEY_VALUE = _Parsed("name[=value]", _key_value)
INDICES = _Parsed("indices", _indices)
DEVICES = _Parsed("devices", _devices)
HOURS = _Parsed("hours", _hours)
PRIORITY = _Parsed("priority", _priority)
