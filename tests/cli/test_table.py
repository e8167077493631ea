from __future__ import annotations

import io

import pytest

from shoal.cli import table
from shoal.cli.table import Table


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_nothing_is_cut() -> None:
    out = io.StringIO()
    Table(["NAME", "MESSAGE"], stream=out).write([["a", "x" * 300], ["long-name", "y"]])
    assert out.getvalue().splitlines() == [
        "NAME       MESSAGE",
        f"a          {'x' * 300}",
        "long-name  y",
    ]


@pytest.mark.parametrize("width", [30, 40, 80])
def test_on_a_terminal_lines_fit(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda stream: width)
    out = _Terminal()
    Table(["NAME", "PHASE", "MESSAGE"], stream=out).write([["job-1", "Pending", "needs " * 30]])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("job-1  Pending  needs")
    assert lines[1].endswith("…")


def test_the_widest_column_gives_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "terminal_width", lambda stream: 100)
    out = _Terminal()
    Table(["NAME", "A", "B"], stream=out).write([["n" * 20, "a" * 50, "b" * 50]])
    row = out.getvalue().splitlines()[1]
    assert "n" * 20 in row
    assert len(row) == 100


def test_later_rows_keep_the_first_rows_widths() -> None:
    out = io.StringIO()
    shown = Table(["NAME", "PHASE"], stream=out)
    shown.write([["train", "Pending"]])
    shown.write([["train", "Running"]])
    assert out.getvalue() == "NAME   PHASE\ntrain  Pending\ntrain  Running\n"


def test_an_escape_sequence_in_a_cell_is_made_harmless() -> None:
    out = io.StringIO()
    Table(["A"], stream=out).write([["\x1b]0;owned\x07"]])
    assert "\x1b" not in out.getvalue()
