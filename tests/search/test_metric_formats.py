from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from shoal.search.metric_formats import (
    Found,
    event_records,
    points_of_event,
    points_of_line,
    points_of_text,
)

NAMES = frozenset({"loss", "accuracy", "Validation-accuracy", "test/loss"})


def values(line: str, **options) -> list[tuple[str, float]]:
    found = points_of_line(line.encode(), NAMES, **{"as_json": False, **options})
    return [(each.name, each.value) for each in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("epoch 1: loss=0.3 accuracy = 0.9", [("loss", 0.3), ("accuracy", 0.9)]),
        ("Validation-accuracy=1e-3", [("Validation-accuracy", 0.001)]),
        ("loss=-.5 other=3", [("loss", -0.5)]),
        ("loss=7", [("loss", 7.0)]),
        ("valloss=0.5", []),
        ("loss: 0.5", []),
        ("loss=high", []),
        ("loss=inf", [("loss", math.inf)]),
        ("", []),
    ],
)
def test_lines_of_text(line: str, expected: list) -> None:
    assert values(line) == expected


def test_a_filter_of_the_experiment() -> None:
    filters = (r"\{metricName: ([\w|-]+), metricValue: ((-?\d+)(\.\d+)?)\}",)
    line = "{metricName: loss, metricValue: -0.25} accuracy=0.5"
    assert values(line, filters=filters) == [("loss", -0.25)]


def test_the_time_of_a_line() -> None:
    line = b"2026-05-01T09:30:00Z loss=0.3"
    assert points_of_line(line, NAMES, as_json=False) == [Found("loss", 0.3, 1777627800.0)]
    line = b'{"loss": 0.3, "timestamp": "2026-05-01T09:30:00+00:00", "step": 4}'
    assert points_of_line(line, NAMES, as_json=True) == [Found("loss", 0.3, 1777627800.0, 4)]


def test_json_takes_numbers_and_texts() -> None:
    line = '{"accuracy": 0.97, "loss": "0.1", "other": 1}'
    assert values(line, as_json=True) == [("accuracy", 0.97), ("loss", 0.1)]
    for wrong in (
        '{"accuracy": "high"}',
        '{"accuracy": true}',
        '{"accuracy": [1]}',
        "[1]",
        "not json",
        "3",
    ):
        assert values(wrong, as_json=True) == []


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(step: int, *summary: bytes, at: float = 9.5) -> bytes:
    parts = b"".join(field(1, each) for each in summary)
    return b"\x09" + struct.pack("<d", at) + b"\x10" + varint(step) + field(5, parts)


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, value: float) -> bytes:
    content = b"\x08\x01" + field(4, struct.pack("<f", value))
    return field(1, tag.encode()) + field(8, content)


def record(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + b"crc." + data + b"crc."


def test_tensorboard_events() -> None:
    one, two = (
        event(300, simple("loss", 0.5), simple("other", 1.0)),
        event(301, tensor("accuracy", 0.75)),
    )
    data = record(one) + record(two) + record(one)[:-1]
    found = list(event_records(data))
    assert [each for _, each in found] == [one, two]
    assert found[-1][0] == len(record(one) + record(two))
    assert points_of_event(one, NAMES) == [Found("loss", 0.5, 9.5, 300)]
    assert points_of_event(one, NAMES, "test") == [Found("loss", 0.5, 9.5, 300)]
    assert points_of_event(one, frozenset({"test/loss"}), "test") == [Found("test/loss", 0.5, 9.5, 300)]
    assert points_of_event(two, NAMES) == [Found("accuracy", 0.75, 9.5, 301)]


@pytest.mark.parametrize("data", [b"text that is no event file at all", b"\xff" * 40])
def test_no_event_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="no TensorBoard event"):
        list(event_records(data))
    with pytest.raises(ValueError, match="TensorBoard event"):
        points_of_event(b"\x0a\xff" + data, NAMES)


def test_the_reader_agrees_with_the_writer_of_torch(tmp_path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    writer = tensorboard.SummaryWriter(str(tmp_path))
    writer.add_scalar("loss", 0.5, 7)
    writer.close()
    [path] = tmp_path.iterdir()
    found = [p for _, each in event_records(path.read_bytes()) for p in points_of_event(each, NAMES)]
    assert [(each.name, each.value, each.step) for each in found] == [("loss", 0.5, 7)]


EXPOSITION = b"""# HELP loss of training
# TYPE loss gauge
loss{split="train"} 0.25
loss{split="test"} 0.5
# TYPE steps_total counter
steps_total 7 1700000000000
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('loss{split="test"}', [('loss{split="test"}', 0.5, None)]),
        ("steps_total", [("steps_total", 7.0, 1.7e9)]),
        ("loss", []),
        ("accuracy", []),
    ],
)
def test_samples_of_prometheus(name: str, expected: list[Any]) -> None:
    found = points_of_text(EXPOSITION, {name})
    assert [(each.name, each.value, each.at) for each in found] == expected


def test_what_is_not_the_text_format_has_no_samples() -> None:
    assert points_of_text(b"<html>{", {"loss"}) == []
