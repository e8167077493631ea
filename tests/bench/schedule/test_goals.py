"""Which rows of which module are goals."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench.row import Row
from bench.schedule.goals import Suite, collect, rows


def measured(quick: bool) -> list[Row]:
    return [Row("as the module says", 1, 0.5, "s"), Row("no goal", 1, 2, "s"), Row("slow", 1, 2, "s")]


def test_goals_are_taken_from_what_a_module_measures() -> None:
    suite = Suite(
        "a module", measured, {"slow": "makespan, knows: none", "as the module says": "a goal"}
    )
    found = collect([suite], quick=True)
    assert [row.what for row in found] == ["makespan, knows: none", "a goal"]
    assert found[0].why.startswith("all GPUs are in use")
    assert found[1].met


def test_a_module_that_takes_minutes_is_left_out_and_each_of_its_goals_says_so() -> None:
    suite = Suite("a module", measured, {"slow": "first", "no goal": "second"}, minutes=True)
    assert [row.figure for row in collect([suite], quick=False)] == [2, 2]
    left = collect([suite], quick=True)
    assert [row.what for row in left] == ["first", "second"]
    assert all(math.isnan(row.figure) and "left out" in row.why for row in left)


def test_without_published_data_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    monkeypatch.setattr("bench.schedule.goals.DATA", tmp_path)
    there = Suite("a module", measured, {"slow": "first"}, "one")
    (row,) = collect([there], quick=False)
    assert row.measured
    (row,) = collect([replace(there, published="other")], quick=False)
    assert row.why.endswith("other") and not row.measured


def test_a_module_that_does_not_come_to_an_end_costs_its_own_rows() -> None:
    def endless(quick: bool) -> list[Row]:
        time.sleep(600)
        return []

    suites = [
        Suite("slow", endless, {"a": "first"}, seconds=0.05),
        Suite("fast", measured, {"slow": "b"}),
    ]
    first, second = collect(suites, quick=False)
    assert first.why == "it was ended after 0.05 s" and not first.measured
    assert second.figure == 2


def test_a_goal_that_its_module_does_not_measure_is_an_error() -> None:
    with pytest.raises(KeyError, match="gone"):
        collect([Suite("a module", measured, {"gone": "a goal"})], quick=False)


@pytest.mark.soak
def test_goals_of_modules_that_take_seconds_are_all_there() -> None:
    found = rows(quick=True)
    assert {row.what for row in found if row.measured} >= {
        "burst of 50,000 one-GPU tasks on 5,000 nodes, decisions only",
        "backfill, depth 5,000",
    }
    assert all(row.why for row in found if not row.met)
