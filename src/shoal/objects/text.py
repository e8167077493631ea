"""Text for people: lengths of time, stamps, sizes, colours, and text made safe for a terminal."""

from __future__ import annotations

import os
import time
from typing import Any

from shoal.objects.quantities import Seconds


def duration(seconds: float) -> str:
    """A length of time: `40ms`, `1.4s`, `42s`, `3m10s`, `2h5m`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds) if seconds < 3600 else round(seconds / 60) * 60
    return Seconds(whole).text()


def stamp(at: float, now: float) -> str:
    """A wall time in the reader's zone: the time of day today, otherwise the date as well."""
    if not at:
        return "-"
    local = time.localtime(at)
    today = time.localtime(now)[:3] == local[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", local)


def memory(size: int | None) -> str:
    """An amount of memory, rounded for reading: `512Mi`, `1.5Gi`; `-` for none."""
    if size is None:
        return "-"
    for suffix, factor in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + suffix
    return str(size)


def cores(millis: int | None) -> str:
    """Thousandths of a core as cores: `0.5`, `2`; `-` for none."""
    return "-" if millis is None else f"{millis / 1000:.3f}".rstrip("0").rstrip(".")


def plural(count: int, noun: str) -> str:
    """`1 task`, `3 tasks`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str, *, newlines: bool = False) -> str:
    """The text without control characters: names and messages come from others, and an escape
    sequence in one must not reach the terminal."""
    if text.isprintable():
        return text
    kept = "\n\t" if newlines else ""
    return "".join(
        c if c.isprintable() or c in kept else (" " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}")
        for c in text
    )


def starts(at: float, now: float) -> str:
    """When a job that waits starts at the latest."""
    soon = f" (in {duration(at - now)})" if at > now else ""
    return f"it starts at {stamp(at, now)}{soon} at the latest, if everybody keeps to stated wall times"


BOLD, DIM, RED = "1", "2", "31"
RANKS = ("36", "33", "35", "32", "34", "96", "93", "95", "92", "94")
"""Colours of task prefixes, taken in turn."""


def enabled(stream: Any) -> bool:
    """Whether to colour what goes to `stream` (a text stream)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(stream.isatty())


def painted(text: str, code: str, stream: Any) -> str:
    """The text in this colour, if `stream` shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if enabled(stream) else text
