"""Why a goal may be missed: shown for a row that has missed it, never otherwise.

The figures are the rows' own; here stands what they cannot tell. A row without an entry says that it is
not known yet, which asks for somebody to look.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.row import Row

__all__ = ["explain"]

_WHY = {
    "overhead, small": (
        "a step of plain DDP takes 2.6 ms here, so that 3 % are less than 0.1 ms; what is added is one "
        "small message a step, by which all agree that it counts, and it stays below the 0.3 ms allowed"
    ),
    "allreduce of": "the interval holds the goal: pairs on two cores differ by more than is asked",
    "job.allreduce": (
        "a loss may ask for the tensor as it was, so it is copied before it is summed; what it takes "
        "beyond gloo and one copy is the time of a second copy"
    ),
    "2 to 4: members' stall": (
        "the state is copied beside a step, by slices, and no step waits for a newcomer; but copying, "
        "sending, the newcomers' own steps and four workers' computing share two cores"
    ),
    "2 to 4: contributing": (
        "a newcomer takes the state, follows until it is level, and a group of all is built and agreed "
        "upon: each takes one to two steps, and with four workers on two cores a step takes 0.23 s"
    ),
    "warm standby": "as for a cold newcomer, without its imports",
    "checkpoint of": "the state is copied once at the boundary; the floor beside it is such a copy",
    "the same while": "as above, with the writer on the other core",
}
"""By the begin of a row's `what`."""


def explain(rows: Sequence[Row]) -> list[str]:
    """A line for each row that misses its goal."""
    lines: list[str] = []
    for row in rows:
        if row.met:
            continue
        why = next((why for begin, why in _WHY.items() if row.what.startswith(begin)), "not known yet")
        lines.append(f"- **{row.number or 'no number'}, {row.what}**: {why}.")
    return lines
