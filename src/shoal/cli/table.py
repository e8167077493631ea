"""Tables that fit: columns as wide as their text, narrowed to the terminal when there is one.

Off a terminal rows are one line each, whatever their length. On one, the widest columns are narrowed
first, never below a dozen characters, and their text wraps: nothing is cut. Where not even that fits,
columns before the last are left out, and a line on stderr names them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from shoal.objects.text import printable

_GAP = 2
_NARROWEST = 12


class Table:
    """Rows under titles. Widths are fixed by the first rows written, so a watch can go on below."""

    def __init__(self, titles: Sequence[str], *, stream: Any = None, indent: int = 0) -> None:
        self._titles = tuple(titles)
        self._stream = sys.stdout if stream is None else stream
        self._indent = indent
        self._widths: list[int] | None = None
        self._shown: list[int] = []
        """Columns that have room, by their place."""

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows, under the titles the first time."""
        clean = [[printable(cell) for cell in row] for row in rows]
        left_out: list[str] = []
        if self._widths is None:
            left_out = self._fit([list(self._titles), *clean])
            if any(self._titles):
                self._line(self._titles)
        for row in clean:
            self._line(row)
        self._stream.flush()
        if left_out:
            wider = "a wider terminal, a pipe or -o yaml shows all"
            print(
                f"not shown for lack of room: {', '.join(left_out)}; {wider}",
                file=sys.stderr,
                flush=True,
            )

    def _line(self, cells: Sequence[str]) -> None:
        widths = self._widths or []
        wraps = terminal_width(self._stream) is not None
        columns = [_wrapped(cells[i], widths[i]) if wraps else [cells[i]] for i in self._shown]
        for parts in zip_longest(*columns, fillvalue=""):
            padded = (part.ljust(widths[i]) for part, i in zip(parts, self._shown, strict=True))
            print((" " * self._indent + (" " * _GAP).join(padded)).rstrip(), file=self._stream)

    def _fit(self, rows: list[list[str]]) -> list[str]:
        """Decide which columns are shown and how wide; the titles of those that are not."""
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._titles))]
        self._widths, self._shown = widths, list(range(len(widths)))
        room = terminal_width(self._stream)
        if room is None:
            return []
        left_out: list[str] = []
        while len(self._shown) > 2 and self._over(room, [min(w, _NARROWEST) for w in widths]) > 0:
            left_out.insert(0, self._titles[self._shown.pop(-2)])  # the last is the message
        while (over := self._over(room, widths)) > 0:
            # the last of the widest is narrowed: names come first, messages last
            widest = max(self._shown, key=lambda i: (widths[i], i))
            if widths[widest] <= _NARROWEST:
                break
            others = max((widths[i] for i in self._shown if i != widest), default=0)
            widths[widest] -= max(1, min(over, widths[widest] - max(others, _NARROWEST)))
        return left_out

    def _over(self, room: int, widths: Sequence[int]) -> int:
        """By how much the shown columns are wider than the terminal."""
        gaps = _GAP * (len(self._shown) - 1)
        return self._indent + gaps + sum(widths[i] for i in self._shown) - room


def terminal_width(stream: Any) -> int | None:
    """Columns of the terminal that `stream` is; None where it is none."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    from textwrap import wrap

    return wrap(text, max(1, width), break_on_hyphens=False) or [""]
