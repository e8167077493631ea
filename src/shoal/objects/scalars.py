"""What an unquoted word of a YAML file is: the reading that YAML 1.2 and JSON share.

`true`, `false`, `null` and decimal numbers are themselves; everything else is text. YAML 1.1 would
also make booleans of `on`, `no` and `y`, sixties of `12:30`, and octals of `0777`.
"""

from __future__ import annotations

import re

__all__ = ["plain_scalar"]

_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]{1,40}|(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?"
)


def plain_scalar(text: str) -> bool | int | float | str | None:
    """The value of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-+.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text
