from __future__ import annotations

import io

import pytest

from shoal.cli import output
from shoal.cli.output import Table


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
    monkeypatch.setattr(output, "terminal_width", lambda stream: width)
    out = _Terminal()
    Table(["NAME", "PHASE", "MESSAGE"], stream=out).write([["job-1", "Pending", "needs " * 30]])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("job-1  Pending  needs")
    assert " ".join(lines[1:]).split() == ["job-1", "Pending", *["needs"] * 30]  # nothing is cut


def test_columns_without_room_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda stream: 60)
    out = _Terminal()
    titles = ["NAME", "PHASE", "RUNTIME", "NODES", "SUBMITTER", "MESSAGE"]
    Table(titles, stream=out).write([["n" * 14, "Pending", "r" * 14, "n" * 14, "s" * 14, "waits " * 9]])
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["NAME", "PHASE", "RUNTIME", "MESSAGE"]
    assert max(map(len, lines)) <= 60
    assert " ".join(lines).count("waits") == 9
    assert "not shown for lack of room: NODES, SUBMITTER" in capsys.readouterr().err


def test_the_widest_column_gives_way_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda stream: 100)
    out = _Terminal()
    Table(["NAME", "A", "B"], stream=out).write([["n" * 20, "a" * 50, "b" * 50]])
    _, row, *rest = out.getvalue().splitlines()
    assert "n" * 20 in row
    assert len(row) == 100
    assert "".join(rest).count("a") + row.count("a") == 50


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
