"""Text pictures for the demo: lanes of workers above the curve of the loss, over the steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ
_BLOCKS = " ▁▂▃▄▅▆▇█"
_ROWS = 5


def lanes(present: Mapping[str, set[int]], steps: int, width: int) -> list[str]:
    """One line for each name: filled where it took part in the steps of that column."""
    lines: list[str] = []
    for name, took in present.items():
        cells = [
            "█" if any(step in took for step in column) else "·" for column in columns(steps, width)
        ]
        lines.append(f"{name:>10} {cyan(''.join(cells))}")
    return lines


def curve(losses: Mapping[int, float], steps: int, width: int) -> list[str]:
    """The loss over the steps, as bars; a column without a step stays empty."""
    heights: list[float | None] = []
    for column in columns(steps, width):
        values = [losses[step] for step in column if step in losses]
        heights.append(sum(values) / len(values) if values else None)
    known = [height for height in heights if height is not None]
    top = max(known, default=1.0)
    lines: list[str] = []
    for row in reversed(range(_ROWS)):
        cells = [_cell(height, top, row) for height in heights]
        label = f"{top:.2f}" if row == _ROWS - 1 else "0" if row == 0 else ""
        lines.append(f"{label:>10} {green(''.join(cells))}")
    return lines


def marks(at: Mapping[int, str], steps: int, width: int) -> str:
    """A line with a letter under the column of each step in `at`."""
    cells = [" "] * width
    for step, letter in at.items():
        cells[min(width - 1, (step - 1) * width // max(1, steps))] = letter
    return f"{'':>10} {bold(''.join(cells))}"


def columns(steps: int, width: int) -> list[range]:
    """Which steps (from 1) fall into which of `width` columns; each has at least one."""
    return [
        range(1 + c * steps // width, 1 + max((c + 1) * steps // width, c * steps // width + 1))
        for c in range(width)
    ]


def table(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Titles and what they are."""
    wide = max(len(title) for title, _ in rows)
    return [f"  {bold(f'{title:<{wide}}')}  {value}" for title, value in rows]


def _cell(height: float | None, top: float, row: int) -> str:
    if height is None:
        return " "
    filled = height / top * _ROWS - row
    return _BLOCKS[max(0, min(8, round(filled * 8)))]


def _sgr(code: str, text: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def bold(text: str) -> str:
    """Bold on a terminal."""
    return _sgr("1", text)


def dim(text: str) -> str:
    """Grey on a terminal."""
    return _sgr("2", text)


def red(text: str) -> str:
    """Red on a terminal."""
    return _sgr("31", text)


def green(text: str) -> str:
    """Green on a terminal."""
    return _sgr("32", text)


def cyan(text: str) -> str:
    """Cyan on a terminal."""
    return _sgr("36", text)
