from __future__ import annotations

from pathlib import Path

import pytest
from bench.elastic.report import Report, System, merge, text, write
from bench.row import Row


def _report() -> Report:
    row = Row("a pause", 0.25, 0.06, "s", load=0.1)
    system = System("a kill", "a system", 4, 3, 0.052, 1.5, None, 0.02, "<= 1 steps redone", 0.5)
    return Report([row], [system], ["- a remark"])


def test_it_shows_goals_systems_and_remarks() -> None:
    shown = text(merge([_report(), Report()]), "python -m bench.elastic", "torch 9")
    assert "torch 9. Command: `python -m bench.elastic`." in shown
    assert "| <= 0.25 s" in shown
    line = next(line for line in shown.splitlines() if "a system" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[2:] == ["3 of 4", "52.0 ms", "1.50 s", "-", "20.0 ms", "<= 1 steps redone", "0.5"]
    assert shown.endswith("- a remark\n")


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
