"""Colour, where it helps: on a terminal, and unless `NO_COLOR` or a dumb terminal says otherwise."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["BOLD", "DIM", "RANKS", "RED", "enabled", "painted"]

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
