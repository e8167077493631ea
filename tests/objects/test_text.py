from __future__ import annotations

import time

import pytest

from shoal.objects.text import cores, duration, memory, plural, printable, stamp


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0ms"),
        (0.34, "340ms"),
        (1.44, "1.4s"),
        (42, "42s"),
        (190, "3m10s"),
        (7_530, "2h6m"),
        (90_000, "25h"),
    ],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (12, "12"), (2**29, "512Mi"), (3 * 2**29, "1.5Gi")]
)
def test_sizes(size: int | None, text: str) -> None:
    assert memory(size) == text


def test_cores_and_plurals() -> None:
    assert [cores(m) for m in (None, 500, 2000, 633)] == ["-", "0.5", "2", "0.633"]
    assert [plural(n, "task") for n in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]


def test_a_stamp_of_today_is_a_time_of_day() -> None:
    now = time.time()
    assert stamp(0, now) == "-"
    assert len(stamp(now, now)) == len("12:00:00")
    assert len(stamp(now - 3 * 86400, now)) == len("2026-01-01 12:00:00")


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("plain") == "plain"
    assert printable("a\x1b[31mb\nc") == "a\N{REPLACEMENT CHARACTER}[31mb c"
    assert printable("a\nb", newlines=True) == "a\nb"
