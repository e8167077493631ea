"""How figures are shown beside their goals."""

from __future__ import annotations

import math

from bench.row import Row, table


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_figure_is_held_against_its_goal() -> None:
    shown = table([Row("quick", 10, 9.5, "ms", load=0.3), Row("many", 10, 9.5, "/s", higher=True)])
    lines = shown.splitlines()
    assert cells(lines[2]) == ["quick", "<= 10 ms", "9.5 ms", "yes", "", "", "0.3"]
    assert cells(lines[3])[:4] == ["many", ">= 10 /s", "9.5 /s", "**no**"]
    assert len(lines) == 4


def test_below_the_table_stands_why_a_goal_is_missed_once_for_all_with_one_reason() -> None:
    rows = [
        Row("a", 1, 2, "s", why="it is slow"),
        Row("b", 1, 0.5, "s", why="it is slow"),
        Row("c", 1, 3, "s", why="it is slow"),
    ]
    assert table(rows).splitlines()[5:] == ["", "- a; c: it is slow"]


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    shown = table([Row("later", 1, math.nan, "s", why="nothing to measure yet")]).splitlines()
    assert cells(shown[2]) == ["later", "<= 1 s", "not measured", "-", "", "", ""]
    assert shown[-1] == "- later: nothing to measure yet"
