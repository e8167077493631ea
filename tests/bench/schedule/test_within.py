"""Measurements that end, that fail, and that do not end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from bench.row import Row
from bench.schedule.within import within

FIRST = Row("a", 1, 2, "s", load=0.5)


def test_rows_come_back_as_they_were_measured() -> None:
    assert within(60, lambda: [FIRST, FIRST]) == ([FIRST, FIRST], "")


@pytest.mark.slow
def test_what_takes_too_long_is_ended_and_what_was_measured_is_kept() -> None:
    def slow() -> Iterator[Row]:
        yield FIRST
        time.sleep(600)

    began = time.monotonic()
    assert within(2, slow) == ([FIRST], "it was ended after 2 s")
    assert time.monotonic() - began < 60


def test_what_went_wrong_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    def wrong() -> Iterator[Row]:
        yield FIRST
        raise RuntimeError("3 jobs should start")

    assert within(60, wrong) == ([FIRST], "RuntimeError: 3 jobs should start")
    assert "Traceback" in capfd.readouterr().err
    assert within(60, lambda: os._exit(7)) == ([], "its process ended with 7")
