"""Cells of the tables that `shoal get` and the web pages show, and the texts that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.objects.quantities import Bytes


@dataclass(frozen=True)
class Column:
    """One column of a kind's table: `value(object, now)` gives its text."""

    title: str
    value: Callable[[Any, float], str]
    wide: bool = False
    """True: shown with `-o wide` only."""


def age(since: float, now: float) -> str:
    """How long ago `since` was, in its two largest units: `45s`, `3m10s`, `5h`, `12d`; `-` for never.

    A stamp from the future (a clock went back) is `0s`.
    """
    if not since:
        return "-"
    seconds = max(0, int(now - since))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 600:
        return f"{seconds // 60}m{seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h"
    return f"{seconds // 86400}d"


def rounded_bytes(value: Bytes) -> str:
    """At most four digits: a table is read, not computed with."""
    number = float(value)
    for suffix in ("", "Ki", "Mi", "Gi", "Ti", "Pi"):
        if number < 1024:
            return f"{number:.4g}{suffix}"
        number /= 1024
    return f"{number:.4g}Ei"


NAME = Column("NAME", lambda obj, now: obj.metadata.name)
AGE = Column("AGE", lambda obj, now: age(obj.metadata.created, now))
