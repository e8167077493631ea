from __future__ import annotations

import io
import json

import pytest

from shoal.cli.lines import JsonLines, TaskLines
from shoal.client.logs import LogRecord


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def _record(index: int, data: bytes, missing_bytes: int = 0) -> LogRecord:
    return LogRecord("worker", index, 1, 5.0, data, missing_bytes)


def _written(*records: tuple[int, bytes], prefixed: bool = True) -> bytes:
    out = io.BytesIO()
    lines = TaskLines(out, prefixed=prefixed)
    for index, data in records:
        lines.write(_record(index, data))
    lines.finish()
    return out.getvalue()


def test_one_task_is_passed_on_as_it_comes() -> None:
    out = io.BytesIO()
    lines = TaskLines(out)
    lines.write(_record(0, b"epoch 1"))
    assert out.getvalue() == b"[worker 0] epoch 1"
    lines.write(_record(0, b"\repoch 2\nloss 3\n"))
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
    lines = TaskLines(out)
    lines.write(_record(0, b"x\n"))
    lines.write(_record(1, b"y" * 70_000))
    assert out.getvalue().endswith(b"y\n")


def test_what_was_rotated_away_is_said() -> None:
    out = io.BytesIO()
    TaskLines(out).write(_record(0, b"later\n", 12))
    assert out.getvalue() == b"[worker 0] [12 bytes of the log are gone]\n[worker 0] later\n"


def test_colour_only_on_a_terminal_and_only_if_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    lines = TaskLines(terminal)
    lines.write(_record(0, b"a\n"))
    lines.write(_record(1, b"b\n"))
    first, second = terminal.getvalue().splitlines()
    assert first.startswith(b"\x1b[36m[worker 0]\x1b[0m ")
    assert second.startswith(b"\x1b[33m[worker 1]\x1b[0m ")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = _Terminal()
    TaskLines(plain).write(_record(0, b"a\n"))
    assert plain.getvalue() == b"[worker 0] a\n"


def test_records_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    JsonLines().write(_record(3, b"a\xffb\n", 7))
    assert json.loads(capsys.readouterr().out) == {
        "role": "worker", "index": 3, "incarnation": 1, "at": 5.0,
        "text": "a\N{REPLACEMENT CHARACTER}b\n",
        "missingBytes": 7,
    }  # fmt: skip
