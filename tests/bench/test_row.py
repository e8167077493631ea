"""How figures are shown beside their goals."""

from __future__ import annotations

import math

import pytest
from bench.row import Row, shown, table


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_figure_is_held_against_its_goal() -> None:
    told = table([Row("quick", 10, 9.5, "ms", load=0.3), Row("many", 10, 9.5, "/s", higher=True)])
    lines = told.splitlines()
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
    told = table([Row("later", 1, math.nan, "s", why="nothing to measure yet")]).splitlines()
    assert cells(told[2]) == ["later", "<= 1 s", "not measured", "-", "", "", ""]
    assert told[-1] == "- later: nothing to measure yet"


def test_what_has_no_goal_is_neither_met_nor_missed() -> None:
    assert cells(table([Row("beside", math.nan, 2, "s", load=1)]).splitlines()[2])[1:4] == [
        "",
        "2 s",
        "-",
    ]


def test_what_did_not_come_to_an_end_is_missed_and_says_so() -> None:
    line = table([Row("a load", 73, math.inf, "s", "10 of 20 ended")]).splitlines()[2]
    assert "no end" in line and "**no**" in line and "10 of 20 ended" in line


def test_rows_are_told_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever waits for the table sees each before the next is measured."""
    rows = iter(shown(Row(what, 1, 0.5, "s", "twice") for what in ("first", "second")))
    assert next(rows).what == "first"
    assert capsys.readouterr().err == "    first: 0.5 s  twice\n"
    assert [row.what for row in rows] == ["second"]
