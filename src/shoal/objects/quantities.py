"""Numbers with units, spelt as Kubernetes spells them: `500m`, `2Gi`, `1.5`, `2h30m`.

Each quantity is an `int` or `float` subclass in a base unit that the field's name states
(`cpu_millis`, `memory_bytes`, `wall_time_seconds`), parsed once when an object is decoded and written
back in canonical form. Arithmetic therefore needs no units, and comparison no parsing.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["Bytes", "CpuMillis", "Quantity", "QuantityError", "Seconds"]

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_NUMBER = re.compile(r"(?P<value>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<suffix>[A-Za-z]*)")
_DURATION_PART = re.compile(r"(?P<value>[0-9]+(?:\.[0-9]*)?)(?P<unit>ms|s|m|h|d)")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LARGEST = 2**63 - 1


class QuantityError(ValueError):
    """The text is no quantity of this kind; the message says what would be."""


class Quantity:
    """What the three quantities share: parse from the wire, write to the wire."""

    @classmethod
    def parse(cls, value: Any) -> Any:  # Any: the wire carries text or a number
        """The quantity that `value` (text or number) spells.

        Raises:
            QuantityError: it spells none.
        """
        raise NotImplementedError(cls)

    def text(self) -> str:
        """Canonical spelling; `parse` of it gives the same quantity."""
        raise NotImplementedError(type(self))


class CpuMillis(int, Quantity):
    """Processor time in thousandths of a core: `500m`, `0.5`, `2`."""

    @classmethod
    def parse(cls, value: Any) -> CpuMillis:
        """See `Quantity.parse`; finer than 1m rounds up, as Kubernetes does."""
        number, suffix = _split(value, "cores such as 500m, 0.5 or 2")
        if suffix not in ("", "m"):
            raise QuantityError(f"{value!r} is not a number of cores such as 500m, 0.5 or 2")
        return cls(_bounded(number if suffix == "m" else number * 1000, value))

    def text(self) -> str:
        """See `Quantity.text`."""
        return str(int(self) // 1000) if int(self) % 1000 == 0 else f"{int(self)}m"


class Bytes(int, Quantity):
    """An amount of memory or disk in bytes: `2Gi`, `512M`, `1048576`."""

    @classmethod
    def parse(cls, value: Any) -> Bytes:
        """See `Quantity.parse`; a fraction of a byte rounds up."""
        number, suffix = _split(value, "bytes such as 512Mi, 2Gi or 2G")
        factor = _BINARY.get(suffix) or _DECIMAL.get(suffix)
        if factor is None:
            near = "Mi" if suffix == "m" else suffix[:1].upper() + "i"
            raise QuantityError(
                f"{value!r} is not a size in bytes such as 512Mi, 2Gi or 2G; did you mean {near}?"
                if near in _BINARY
                else f"{value!r} is not a size in bytes such as 512Mi, 2Gi or 2G"
            )
        return cls(_bounded(number * factor, value))

    def text(self) -> str:
        """See `Quantity.text`."""
        for suffix, factor in reversed(_BINARY.items()):
            if int(self) and int(self) % factor == 0:
                return f"{int(self) // factor}{suffix}"
        return str(int(self))


class Seconds(float, Quantity):
    """A duration in seconds: `2h`, `1h30m`, `250ms`, or a plain number of seconds."""

    @classmethod
    def parse(cls, value: Any) -> Seconds:
        """See `Quantity.parse`."""
        wrong = f"{value!r} is not a duration such as 90s, 10m or 2h30m"
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise QuantityError(wrong)
        if isinstance(value, str):
            text = value.strip()
            parts = list(_DURATION_PART.finditer(text))
            if parts and "".join(part.group() for part in parts) == text:
                total = sum(float(p["value"]) * _DURATION_UNITS[p["unit"]] for p in parts)
            elif _NUMBER.fullmatch(text) and text[-1] in "0123456789.":
                total = float(text)
            else:
                raise QuantityError(wrong)
        else:
            total = float(value)
        if not math.isfinite(total) or total < 0 or total > 1e10:
            raise QuantityError(wrong)
        return cls(total)

    def text(self) -> str:
        """See `Quantity.text`."""
        millis = round(float(self) * 1000)
        if millis == 0:
            return "0s"
        parts: list[str] = []
        for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
            count, millis = divmod(millis, size)
            if count:
                parts.append(f"{count}{unit}")
        return "".join(parts)


def _split(value: Any, example: str) -> tuple[float | int, str]:
    wrong = f"{value!r} is not a number of {example}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError(wrong)
    if isinstance(value, int):
        if value < 0:
            raise QuantityError(wrong)
        return value, ""
    match = _NUMBER.fullmatch(str(value).strip())
    if match is None:
        raise QuantityError(wrong)
    text = match["value"]
    return (float(text) if "." in text else int(text)), match["suffix"]


def _bounded(number: float, value: Any) -> int:
    if not math.isfinite(number) or number > _LARGEST:
        raise QuantityError(f"{value!r} is larger than any machine")
    return math.ceil(round(number, 6)) if isinstance(number, float) else number
