"""Measurements that end, that fail, and that do not end."""

from __future__ import annotations

import os
import time

import pytest
from bench.row import Row
from bench.schedule.within import Failed, within


def test_rows_come_back_as_they_were_measured() -> None:
    (row,) = within(60, lambda: [Row("a", 1, 2, "s", load=0.5)])
    assert row == Row("a", 1, 2, "s", load=0.5)


def test_what_takes_too_long_is_ended() -> None:
    def slow() -> list[Row]:
        time.sleep(600)
        return []

    began = time.monotonic()
    with pytest.raises(Failed, match="it was ended after"):
        within(0.05, slow)
    assert time.monotonic() - began < 60


def test_what_went_wrong_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    def wrong() -> list[Row]:
        raise RuntimeError("3 jobs should start")

    with pytest.raises(Failed, match="RuntimeError: 3 jobs should start"):
        within(60, wrong)
    assert "Traceback" in capfd.readouterr().err
    with pytest.raises(Failed, match="its process ended with 7"):
        within(60, lambda: os._exit(7))
