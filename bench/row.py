"""One line of the table, and how it is printed."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Row", "p50", "p95", "shown", "table"]


@dataclass(frozen=True)
class Row:
    """What was measured. `goal` and `figure` share `unit`; more is better when `higher` is true. Where
    nothing was measured the figure is no number, where what was measured did not come to an end it is
    infinite, and where there is no goal the goal is no number."""

    what: str
    goal: float
    figure: float
    unit: str
    spread: str = ""
    """p95, or the range."""
    beside: str = ""
    """A peer or the physical limit, measured in the same run."""
    higher: bool = False
    number: str = ""
    """Of the goal, where goals have one: `G1`."""
    why: str = ""
    """It was missed, or not measured; shown below the table if so."""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def measured(self) -> bool:
        """There is a figure."""
        return not math.isnan(self.figure)

    @property
    def met(self) -> bool:
        """The figure reaches its goal."""
        return self.figure >= self.goal if self.higher else self.figure <= self.goal


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of the rows, which also reads well on a terminal; below it, why goals are missed.

    Rows with one reason share a line."""
    head = ("what", "goal", "figure", "met", "spread", "beside it, same run", "load")
    lines = [
        (
            f"{row.number} {row.what}".strip(),
            "" if math.isnan(row.goal) else f"{'>=' if row.higher else '<='} {row.goal:g} {row.unit}",
            _figure(row),
            "-" if not row.measured or math.isnan(row.goal) else "yes" if row.met else "**no**",
            row.spread,
            row.beside,
            f"{row.load:.1f}" if row.measured else "",
        )
        for row in rows
    ]
    widths = [max(len(cells[at]) for cells in [head, *lines]) for at in range(len(head))]
    text = [_line(head, widths), "| " + " | ".join("-" * width for width in widths) + " |"]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why and not row.met:
            reasons.setdefault(row.why, []).append(row.what)
    notes = [f"- {'; '.join(names)}: {why}" for why, names in reasons.items()]
    return "\n".join(
        [*text, *(_line(cells, widths) for cells in lines), *([""] if notes else []), *notes]
    )


def shown(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each told on stderr as soon as it is there, for who waits for the table."""
    for row in rows:
        print(f"    {row.what}: {_figure(row)}  {row.spread}".rstrip(), file=sys.stderr, flush=True)
        yield row


def _figure(row: Row) -> str:
    if not row.measured:
        return "not measured"
    if math.isinf(row.figure):
        return "no end"
    return f"{row.figure:.3g} {row.unit}" if row.figure < 1000 else f"{row.figure:.0f} {row.unit}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
