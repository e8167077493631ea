from __future__ import annotations

import time

import click
import pytest

from shoal.cli.options import (
    CPU,
    DEVICES,
    DURATION,
    HOURS,
    INDICES,
    KEY_VALUE,
    MEMORY,
    MOMENT,
    PRIORITY,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (CPU, "500m", 500),
        (CPU, "2", 2000),
        (MEMORY, "1Gi", 2**30),
        (DURATION, "1h30m", 5400.0),
        (INDICES, "0-99%10", ("0-99", 10)),
        (INDICES, "7,0-3", ("0-3,7", None)),
        (KEY_VALUE, "A=b=c", ("A", "b=c")),
        (KEY_VALUE, "A", ("A", None)),
        (PRIORITY, "production", "production"),
        (PRIORITY, "-5", -5),
        (DEVICES, "2", 2),
        (DEVICES, "0.25", 0.25),
        (HOURS, "2.5", 2.5),
    ],
)
def test_what_they_read(kind: click.ParamType, text: str, value: object) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CPU, "many"),
        (MEMORY, "2 gigs"),
        (DURATION, "soon"),
        (DEVICES, "1.5"),
        (DEVICES, "-1"),
        (DEVICES, "inf"),
        (DEVICES, "nan"),
        (DEVICES, "half"),
        (HOURS, "0"),
        (HOURS, "nan"),
        (HOURS, "inf"),
        (HOURS, "2h"),
        (INDICES, "0-99%none"),
        (INDICES, "0-99%0"),
        (INDICES, ""),
        (INDICES, "5-3"),
        (KEY_VALUE, "=x"),
        (PRIORITY, "high"),
        (MOMENT, "yesterday"),
    ],
)
def test_what_they_refuse(kind: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter, match=r".+"):
        kind.convert(text, None, None)


def test_a_moment_is_a_time_or_a_time_ago() -> None:
    assert MOMENT.convert("10m", None, None) == pytest.approx(time.time() - 600, abs=5)
    assert MOMENT.convert("2026-05-01T09:30:00+00:00", None, None) == 1777627800.0
