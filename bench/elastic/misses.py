"""Why a goal may be missed on a given machine: shown beside a row that has missed it, never otherwise.

The figures are the rows' own; here stands what they cannot tell. A row without an entry says so, which
asks for somebody to look.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.row import Row

__all__ = ["explain"]

_WHY: dict[str, str] = {}
"""By the begin of a row's `what`."""


def explain(rows: Sequence[Row]) -> list[str]:
    """A line for each row that misses its goal."""
    lines: list[str] = []
    for row in rows:
        if row.met:
            continue
        why = next((why for begin, why in _WHY.items() if row.what.startswith(begin)), "not yet known")
        lines.append(f"- **{row.number or 'no number'}, {row.what}**: {why}.")
    return lines
