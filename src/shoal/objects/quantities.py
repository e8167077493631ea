"""Numbers with units, spelt as Kubernetes spells them: `500m`, `2Gi`, `1.5`, `1e3`, `2h30m`.

Each quantity is an `int` or `float` subclass in a base unit that its class names (thousandths of a
core, bytes, seconds), parsed once when an object is decoded and written back in canonical form.
Arithmetic therefore needs no units, and comparison no parsing. Cores and bytes are computed in whole
numbers, so no spelling loses precision.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["Bytes", "CpuMillis", "Quantity", "QuantityError", "Seconds"]

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Suffix to its power of two."""
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Suffix to its power of ten."""
_SMALL = {"m": -3, "u": -6, "n": -9}
_NUMBER = re.compile(
    r"\+?(?=\.?[0-9])(?P<whole>[0-9]{0,40})(?:\.(?P<part>[0-9]{0,40}))?"
    r"(?P<suffix>[eE][-+]?[0-9]{1,3}|\s*[A-Za-z]{0,10})"
)
_DURATION = re.compile(r"(?:[0-9]{1,20}(?:\.[0-9]{0,20})?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(?P<value>[0-9]+(?:\.[0-9]*)?)\s*(?P<unit>[A-Za-z]+)")
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PLAIN_SECONDS = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?")
_LARGEST = 2**63 - 1
_LONGEST_SECONDS = 1e10


class QuantityError(ValueError):
    """The text is no quantity of this kind; the message says what would be."""


class Quantity:
    """What the three quantities share: parse from the wire, write to the wire."""

    wanted = ""
    """What the quantity is, with examples: completes "is not ..."."""
    pattern = ""
    """A regular expression that every text of the wire matches."""

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

    wanted = "a number of cores such as 500m, 0.5 or 2"
    pattern = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numk]|[eE][-+]?[0-9]{1,3})?$"

    @classmethod
    def parse(cls, value: Any) -> CpuMillis:
        """See `Quantity.parse`; finer than 1m rounds up, as Kubernetes does."""
        mantissa, exponent, suffix = _split(value, cls.wanted)
        powers = {"": 0, "k": 3, **_SMALL}
        if suffix not in powers:
            hint = f"; did you mean {str(value).strip()[:-1]}m?" if suffix == "M" else ""
            raise QuantityError(f"{_quoted(value)} is not {cls.wanted}{hint}")
        return cls(_scaled(mantissa, exponent + powers[suffix] + 3, value))

    def text(self) -> str:
        """See `Quantity.text`."""
        return str(int(self) // 1000) if int(self) % 1000 == 0 else f"{int(self)}m"


class Bytes(int, Quantity):
    """An amount of memory or disk in bytes: `2Gi`, `512M`, `1048576`."""

    wanted = "a size in bytes such as 512Mi, 2Gi or 2G"
    pattern = r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([kMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,3})?$"

    @classmethod
    def parse(cls, value: Any) -> Bytes:
        """See `Quantity.parse`; a fraction of a byte rounds up."""
        mantissa, exponent, suffix = _split(value, cls.wanted)
        if suffix in _DECIMAL:
            return cls(_scaled(mantissa, exponent + _DECIMAL[suffix], value))
        if suffix in _BINARY:
            return cls(_scaled(mantissa << _BINARY[suffix], exponent, value))
        raise QuantityError(f"{_quoted(value)} is not {cls.wanted}{_bytes_hint(value, suffix)}")

    def text(self) -> str:
        """See `Quantity.text`: the shortest exact spelling, `2Gi` rather than `2147483648`."""
        number = int(self)
        if number == 0:
            return "0"
        decimal = next(s for s, power in reversed(_DECIMAL.items()) if number % 10**power == 0)
        spellings = [f"{number // 10 ** _DECIMAL[decimal]}{decimal}"]
        binary = next((s for s, power in reversed(_BINARY.items()) if number % 2**power == 0), None)
        if binary is not None:
            spellings.insert(0, f"{number >> _BINARY[binary]}{binary}")
        return min(spellings, key=len)


class Seconds(float, Quantity):
    """A duration in seconds: `2h`, `1h30m`, `250ms`, or a plain number of seconds.

    Parsed to whole milliseconds.
    """

    wanted = "a duration such as 90s, 10m or 2h30m"
    pattern = r"^(([0-9]+(\.[0-9]*)?(ms|s|m|h|d))+|[0-9]+(\.[0-9]*)?)$"

    @classmethod
    def parse(cls, value: Any) -> Seconds:
        """See `Quantity.parse`."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise QuantityError(f"{_quoted(value)} is not {cls.wanted}")
        total = value if not isinstance(value, str) else _duration(value.strip())
        # NaN fails both comparisons; the order also keeps an int too large for a float from being one.
        if total is not None and total > _LONGEST_SECONDS:
            longest = cls(_LONGEST_SECONDS).text()
            raise QuantityError(f"{_quoted(value)} is too long: at most {longest}")
        if total is None or not total >= 0:
            raise QuantityError(f"{_quoted(value)} is not {cls.wanted}{_duration_hint(value)}")
        return cls(round(total * 1000) / 1000)

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


def _split(value: Any, wanted: str) -> tuple[int, int, str]:
    """(mantissa, power of ten, suffix)."""
    wrong = f"{_quoted(value)} is not {wanted}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise QuantityError(wrong)
    if isinstance(value, int):
        if not 0 <= value <= _LARGEST:
            raise QuantityError(wrong if value < 0 else _too_large(value))
        return value, 0, ""
    match = _NUMBER.fullmatch(str(value).strip())
    if match is None:
        raise QuantityError(wrong)
    part = match["part"] or ""
    mantissa, exponent, suffix = int(match["whole"] + part or "0"), -len(part), match["suffix"].strip()
    if suffix[1:] and suffix[0] in "eE" and suffix[-1].isdigit():
        return mantissa, exponent + int(suffix[1:]), ""
    return mantissa, exponent, suffix if suffix == match["suffix"] else f" {suffix}"


def _scaled(mantissa: int, exponent: int, value: Any) -> int:
    """mantissa * 10**exponent, rounded up."""
    number = mantissa * 10**exponent if exponent >= 0 else -(-mantissa // 10**-exponent)
    if number > _LARGEST:
        raise QuantityError(_too_large(value))
    return number


def _too_large(value: Any) -> str:
    return f"{_quoted(value)} is larger than any machine"


def _quoted(value: Any) -> str:
    """The value as a message quotes it: never long, whatever came over the wire."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "a very large number"
    if not isinstance(value, bool | int | float | str):
        return "nothing" if value is None else f"a {'list' if isinstance(value, list) else 'map'}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def _bytes_hint(value: Any, suffix: str) -> str:
    unit = suffix.strip().lower()
    letter = unit[:1].upper()
    if unit.removesuffix("b") not in {"k", "m", "g", "t", "p", "e", "ki", "mi", "gi", "ti", "pi", "ei"}:
        return ""
    decimal = unit.endswith("b") and "i" not in unit
    right = ("k" if letter == "K" else letter) if decimal else f"{letter}i"
    return f"; did you mean {str(value).strip().removesuffix(suffix.strip()).strip()}{right}?"


def _duration(text: str) -> float | None:
    if _DURATION.fullmatch(text):
        parts = _DURATION_PART.finditer(text)
        return math.fsum(float(part["value"]) * _DURATION_UNITS[part["unit"]] for part in parts)
    return float(text) if _PLAIN_SECONDS.fullmatch(text) else None


def _duration_hint(value: Any) -> str:
    match = _DURATION_PART.fullmatch(str(value).strip())
    if match is None:
        return ""
    number, word = match["value"], match["unit"].lower()
    if _duration(str(value).strip()) is not None:
        return f": the longest is {_LONGEST_SECONDS / 86400:g}d"
    if word.startswith("w") and number.isdigit():
        return f"; did you mean {int(number) * 7}d?"
    unit = "ms" if word in ("ms", "msec", "millis", "milliseconds") else word[0]
    return f"; did you mean {number}{unit}?" if unit in _DURATION_UNITS else ""
