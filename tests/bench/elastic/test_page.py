from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.elastic.page import text, write
from bench.elastic.report import Report, System
from bench.elastic.results import Result, load, save
from bench.row import Row


def _result() -> Result:
    row = Row("a pause", 0.25, 0.06, "s", load=0.1, number="G1")
    system = System("a kill", "a system", 4, 3, 0.052, 1.5, None, 0.02, "<= 1 steps redone", 0.5)
    report = Report([row], [system], ["- a remark"])
    return Result("first", "2026-01-01 00:00", "0123", 12.0, (0.1, 2.0), "a command", "m", "v 9", report)


def test_it_shows_goals_systems_remarks_and_when_each_was_measured() -> None:
    shown = text([_result()])
    assert shown.startswith("m; v 9.\n")
    assert "| G1 a pause | <= 0.25 s" in shown
    line = next(line for line in shown.splitlines() if "a system" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[2:] == ["3 of 4", "52.0 ms", "1.50 s", "-", "20.0 ms", "<= 1 steps redone", "0.5"]
    assert "- a remark" in shown
    last = [cell.strip() for cell in shown.splitlines()[-1].split("|")[1:-1]]
    assert last == ["first", "2026-01-01 00:00", "0123", "12 s", "0.1, 2.0", "`a command`"]
    assert "1 of 1 rows" in shown
    assert "not known yet" not in shown


def test_a_missed_goal_is_told_and_wants_a_reason() -> None:
    result = _result()
    late = Row("a pause", 0.25, 0.5, "s", load=0.1, number="G1")
    shown = text([replace(result, report=Report([late]))])
    assert "0 of 1 rows" in shown
    assert "- **G1, a pause**: not known yet." in shown


def test_results_are_kept_one_file_each_and_the_newest_wins(tmp_path: Path) -> None:
    save(tmp_path, _result())
    save(tmp_path, replace(_result(), name="second"))
    save(tmp_path, replace(_result(), seconds=99.0))
    assert load(tmp_path) == {
        "first": replace(_result(), seconds=99.0),
        "second": replace(_result(), name="second"),
    }


def test_it_is_written_in_place_of_what_an_earlier_run_wrote(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\nother things\n")
    write("first\n", page)
    page.write_text(page.read_text() + "\nafter it\n")
    write("second\n", page)
    written = page.read_text()
    assert written.startswith("# Benchmarks\nother things\n")
    assert "first" not in written
    assert written.count("second") == 1
    assert written.rstrip().endswith("after it")


def test_a_section_without_its_end_is_not_overwritten(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n")
    write("first\n", page)
    broken = page.read_text().replace("<!-- bench.elastic: end -->", "")
    page.write_text(broken)
    with pytest.raises(ValueError, match="no end mark"):
        write("second\n", page)
    assert page.read_text() == broken
