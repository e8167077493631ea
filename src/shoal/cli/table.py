"""Tables that fit: columns as wide as their text, narrowed to the terminal when there is one.

Off a terminal nothing is cut, so that a pipe sees every character. On one, the widest columns give
way first, never below a dozen characters, and a cut text ends in an ellipsis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from shoal.cli.text import printable

__all__ = ["Table", "terminal_width"]

_GAP = 2
_NARROWEST = 12


class Table:
    """Rows under titles. Widths are fixed by the first rows written, so a watch can go on below."""

    def __init__(self, titles: Sequence[str], *, stream: Any = None, indent: int = 0) -> None:
        self._titles = tuple(titles)
        self._stream = sys.stdout if stream is None else stream
        self._indent = indent
        self._widths: list[int] | None = None

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows, under the titles the first time."""
        clean = [[printable(cell) for cell in row] for row in rows]
        if self._widths is None:
            self._widths = self._fitted([list(self._titles), *clean])
            if any(self._titles):
                self._line(self._titles)
        for row in clean:
            self._line(row)
        self._stream.flush()

    def _line(self, cells: Sequence[str]) -> None:
        widths = self._widths or []
        parts = [
            _cut(cell, width) if cut else cell.ljust(width)
            for cell, width, cut in zip(cells, widths, self._cuts(), strict=True)
        ]
        print((" " * self._indent + (" " * _GAP).join(parts)).rstrip(), file=self._stream)

    def _cuts(self) -> list[bool]:
        fits = terminal_width(self._stream) is not None
        return [fits] * len(self._titles)

    def _fitted(self, rows: list[list[str]]) -> list[int]:
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._titles))]
        room = terminal_width(self._stream)
        if room is None:
            return widths
        room -= self._indent + _GAP * (len(widths) - 1)
        while sum(widths) > room and max(widths) > _NARROWEST:
            # the last of the widest gives way: names come first, messages last
            widest = max(range(len(widths)), key=lambda i: (widths[i], i))
            others = max((w for i, w in enumerate(widths) if i != widest), default=0)
            over = sum(widths) - room
            widths[widest] -= max(1, min(over, widths[widest] - max(others, _NARROWEST)))
        return widths


def terminal_width(stream: Any) -> int | None:
    """Columns of the terminal that `stream` is; None where it is none."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _cut(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: max(0, width - 1)] + "…"
