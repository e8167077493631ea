"""Paths to the parts of a document, as tuples and as people read them."""

from __future__ import annotations

import re
from typing import NamedTuple

Path = tuple[str | int, ...]
"""Field names, map keys and list positions, from the top of the document."""

_PLAIN = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*")


class Finding(NamedTuple):
    """One thing wrong with a document. `involves` are the other parts that it was concluded from."""

    path: Path
    message: str
    involves: tuple[Path, ...] = ()


def spell(path: Path) -> str:
    """`spec.roles[0].env["a.b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            quoted = part if len(part) <= 60 else f"{part[:57]}..."
            text += '["' + quoted.replace('"', '\\"') + '"]'
    return text
