from __future__ import annotations

import io
import json

import pytest

from shoal.cli import lines
from shoal.cli.lines import JsonLines, TaskLines
from shoal.client.logs import LogRecord


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def _record(index: int, data: bytes, missing_bytes: int = 0) -> LogRecord:
    return LogRecord("worker", index, 1, 5.0, data, missing_bytes)


def _written(*records: tuple[int, bytes], prefixed: bool = True) -> bytes:
    out = io.BytesIO()
    written = TaskLines(out, prefixed=prefixed)
    for index, data in records:
        written.write(_record(index, data))
    written.finish()
    return out.getvalue()


def test_one_task_is_passed_on_as_it_comes() -> None:
    out = io.BytesIO()
    written = TaskLines(out)
    written.write(_record(0, b"epoch 1"))
    assert out.getvalue() == b"[worker 0] epoch 1"
    written.write(_record(0, b"\repoch 2\nloss 3\n"))
    assert out.getvalue() == b"[worker 0] epoch 1\repoch 2\n[worker 0] loss 3\n"


def test_two_tasks_never_share_a_line() -> None:
    written = _written((0, b"half"), (1, b"one\ntw"), (0, b" a line\n"), (1, b"o\n"))
    assert sorted(written.splitlines()) == [
        b"[worker 0]  a line",
        b"[worker 0] half",
        b"[worker 1] one",
        b"[worker 1] two",
    ]


def test_lines_of_many_tasks_are_whole() -> None:
    chunks = [(0, b"a\n"), (1, b"b\n"), *((i % 2, b"%d" % i) for i in range(10)), (0, b"\n"), (1, b"\n")]
    assert _written(*chunks).splitlines()[2:] == [b"[worker 0] 02468", b"[worker 1] 13579"]


def test_what_is_not_ended_is_written_at_the_end() -> None:
    assert _written((0, b"a\n"), (1, b"b\n"), (1, b"no end")).endswith(b"[worker 1] no end\n")
    assert _written((0, b"no end")) == b"[worker 0] no end\n"


def test_bytes_that_are_no_text_are_passed_on() -> None:
    assert b"\xff\xfe\x00" in _written((0, b"\xff\xfe\x00\n"))
    assert _written((0, b"\xff\x00"), (1, b"\xfe"), prefixed=False) == b"\xff\x00\xfe"


def test_a_line_without_end_is_not_held_for_ever() -> None:
    out = io.BytesIO()
    written = TaskLines(out)
    written.write(_record(0, b"x\n"))
    written.write(_record(1, b"y" * 70_000))
    assert out.getvalue().endswith(b"y\n")


def test_what_was_rotated_away_is_said() -> None:
    out = io.BytesIO()
    TaskLines(out).write(_record(0, b"later\n", 12))
    assert out.getvalue() == b"[worker 0] [12 bytes of the log are gone]\n[worker 0] later\n"


def test_colour_only_on_a_terminal_and_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    written = TaskLines(terminal)
    written.write(_record(0, b"a\n"))
    written.write(_record(1, b"b\n"))
    first, second = terminal.getvalue().splitlines()
    assert first.startswith(b"\x1b[36m[worker 0]\x1b[0m ")
    assert second.startswith(b"\x1b[33m[worker 1]\x1b[0m ")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = _Terminal()
    TaskLines(plain).write(_record(0, b"a\n"))
    assert plain.getvalue() == b"[worker 0] a\n"


def _on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, *records: tuple[int, bytes], raw: bool = False
) -> str:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(lines, "terminal_width", lambda _stream: 30)
    monkeypatch.setattr(lines, "_DRAWN_EACH_SECONDS", 0.0)
    terminal = _Terminal()
    shown = TaskLines(terminal, raw=raw)
    for index, data in records:
        shown.write(_record(index, data))
    shown.finish()
    return terminal.getvalue().decode()


def test_progress_bars_of_several_tasks_are_drawn_below_the_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [
        (0, b"a\n"),
        (1, b"b\n"),
        (0, b"\r 10%"),
        (1, b"\r 20%"),
        (0, b"\r 30%"),
        (0, b"\rdone\n"),
    ]
    shown = _on_a_terminal(monkeypatch, *records)
    up, two_up = "\x1b[1A\r\x1b[J", "\x1b[2A\r\x1b[J"
    assert shown == (
        "[worker 0] a\n[worker 1] b\n"
        "[worker 0]  10%\n"
        f"{up}[worker 0]  10%\n[worker 1]  20%\n"
        f"{two_up}[worker 0]  30%\n[worker 1]  20%\n"
        f"{two_up}[worker 0] done\n[worker 1]  20%\n"
        f"{up}[worker 1]  20%\n"
    )


def test_progress_bars_are_drawn_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "terminal_width", lambda _stream: 30)
    monkeypatch.setattr(lines.time, "monotonic", lambda: 100.0)
    terminal = _Terminal()
    shown = TaskLines(terminal)
    for each in ("a\n", "\r1", "\r2", "\r3"):
        for index in (0, 1):
            shown.write(_record(index, each.encode()))
    assert terminal.getvalue().count(b"\x1b[J") == 0
    assert terminal.getvalue().endswith(b"1\n")


def test_a_frame_wider_than_the_terminal_is_cut_to_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _on_a_terminal(monkeypatch, (0, b"a\n"), (1, b"b\n"), (1, b"\r" + b"#" * 200))
    assert "[worker 1] " + "#" * 18 + "\n" in shown


def test_a_pipe_gets_progress_bars_as_they_are() -> None:
    written = _written((0, b"a\n"), (1, b"b\n"), (1, b"\r 10%"), (1, b"\r 20%\n"))
    assert written.endswith(b"[worker 1] \r 10%\r 20%\n")


def test_escape_sequences_do_not_reach_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    title = b"\x1b]0;owned\x07"
    data = b"red \x1b[31mx\x1b[0m " + title + b"\x1b[2J\x1b[1;1H\xc2\x9b\x07end\n"
    for records in (((0, data),), ((0, b"a\n"), (1, data))):
        shown = _on_a_terminal(monkeypatch, *records)
        assert "red \x1b[31mx\x1b[0m " in shown
        assert "end" in shown
        assert not any(bad in shown for bad in ("owned", "\x1b]", "\x1b[2J", "\x1b[1;1H", "\x07"))
    split = _on_a_terminal(monkeypatch, (0, b"x\x1b]0;ow"), (0, b"ned\x07y\x1b["), (0, b"2Jz\n"))
    assert split == "[worker 0] xyz\n"


def test_escape_sequences_are_passed_on_raw_and_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _on_a_terminal(monkeypatch, (0, b"\x1b[2Jx\n"), raw=True) == "[worker 0] \x1b[2Jx\n"
    assert _written((0, b"\x1b[2Jx\n")) == b"[worker 0] \x1b[2Jx\n"


def test_records_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines().write(_record(3, b"a\xffb\n", 7))
    assert json.loads(capsys.readouterr().out) == {
        "role": "worker", "index": 3, "incarnation": 1, "at": 5.0,
        "text": "a\N{REPLACEMENT CHARACTER}b\n",
        "missingBytes": 7,
    }  # fmt: skip
