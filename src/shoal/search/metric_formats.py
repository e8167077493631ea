"""Metric points in what programs write: text, JSON, TensorBoard's events, Prometheus' text format.

Formats and defaults are Katib's, so its manifests collect the same values; in JSON numbers count too,
which Katib drops. Pure: bytes in, points out; `shoal.control.metric_collector` reads the files.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

__all__ = [
    "DEFAULT_FILTER",
    "Found",
    "event_records",
    "points_of_event",
    "points_of_line",
    "points_of_text",
]

DEFAULT_FILTER = r"([\w|/-]+)\s*=\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[Ee][+-]?\d+)?|[+-]?(?:nan|inf)\b)"
_LARGEST_RECORD = 64 * 2**20


@dataclass(frozen=True)
class Found:
    """One value; `at` and `step` are None where the text has none."""

    name: str
    value: float
    at: float | None = None
    step: int | None = None


def points_of_line(
    line: bytes, names: Collection[str], *, as_json: bool, filters: Sequence[str] = ()
) -> list[Found]:
    """The values of the metrics `names` in one line; none for a line in another format."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return []
    return _of_json(text, names) if as_json else list(_of_text(text, names, filters))


def event_records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The complete records of an event file and where each ends; a record is its length (8 bytes), a
    checksum (4), the event and a checksum (4). The checksums are not verified.

    Raises:
        ValueError: this is no event file.
    """
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if length > _LARGEST_RECORD:
            raise ValueError(f"a record of {length} bytes is no TensorBoard event")
        end = at + 12 + length + 4
        if end > len(data):
            return
        yield end, data[at + 12 : at + 12 + length]
        at = end


def points_of_event(event: bytes, names: Collection[str], folder: str = "") -> list[Found]:
    """The scalars of one event. A name is a tag, or `FOLDER/TAG` with the folder of the event file.

    Raises:
        ValueError: this is no event.
    """
    at: float | None = None
    step = 0
    values: list[tuple[str, float]] = []
    for number, value in _fields(event):
        if number == 1 and isinstance(value, bytes):
            (at,) = struct.unpack("<d", value)
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            values += [found for n, part in _fields(value) if n == 1 for found in _scalar(part)]
    spelt = ((tag, f"{folder}/{tag}" if folder else tag, value) for tag, value in values)
    return [
        Found(tag if tag in names else full, value, at, step)
        for tag, full, value in spelt
        if tag in names or full in names
    ]


def points_of_text(text: bytes, names: Collection[str]) -> list[Found]:
    """The samples in Prometheus' text format; none where it is another format. A name is a sample's name
    where it has one sample, or the name with its labels: `loss{split="test"}`."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[Found]] = {}
    try:
        for family in text_string_to_metric_families(text.decode("utf-8", "replace")):
            for sample in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                at = None if sample.timestamp is None else float(sample.timestamp)
                for name in {sample.name, f"{sample.name}{{{labels}}}"}:
                    found.setdefault(name, []).append(Found(name, sample.value, at))
    except ValueError:
        return []
    return [found[name][0] for name in sorted(names) if len(found.get(name, ())) == 1]


def _of_text(text: str, names: Collection[str], filters: Sequence[str]) -> Iterator[Found]:
    first, _, _ = text.partition(" ")
    at = _stamp(first)
    for pattern in filters or (DEFAULT_FILTER,):
        for match in re.finditer(pattern, text):
            name, value = (match[1] or "").strip(), _number(match[2])
            if name in names and value is not None:
                yield Found(name, value, at)


def _of_json(text: str, names: Collection[str]) -> list[Found]:
    try:
        document = json.loads(text)
    except ValueError:
        return []
    if not isinstance(document, dict):
        return []
    fields = cast("dict[str, Any]", document)
    at = _stamp(fields.get("timestamp"))
    step = fields.get("step")
    numbered = step if isinstance(step, int) and not isinstance(step, bool) else None
    read = ((name, _number(fields[name])) for name in fields if name in names)
    return [Found(name, value, at, numbered) for name, value in read if value is not None]


def _scalar(value: Any) -> Iterator[tuple[str, float]]:
    """Tag and number of a `Summary.Value`, where it is a scalar."""
    if not isinstance(value, bytes):
        return
    tag, number = "", None
    for field, part in _fields(value):
        if field == 1 and isinstance(part, bytes):
            tag = part.decode("utf-8", "replace")
        elif field == 2 and isinstance(part, bytes) and len(part) == 4:
            (number,) = struct.unpack("<f", part)
        elif field == 8 and isinstance(part, bytes):
            number = _of_tensor(part)
    if number is not None:
        yield tag, number


def _of_tensor(tensor: bytes) -> float | None:
    """The number of a `TensorProto` of one float or double, as TensorFlow 2 writes scalars."""
    kind, content = 1, b""
    for field, part in _fields(tensor):
        if field == 1 and isinstance(part, int):
            kind = part
        elif field in (4, 5, 6) and isinstance(part, bytes):
            content = part
    layout = {1: "<f", 2: "<d"}.get(kind)
    if layout is None or len(content) != struct.calcsize(layout):
        return None
    return struct.unpack(layout, content)[0]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and raw value of each field of a protocol buffer.

    Raises:
        ValueError: it is cut off, or no protocol buffer.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(message, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError("this is no TensorBoard event")
        if at + length > len(message):
            raise ValueError("a TensorBoard event is cut off")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("a TensorBoard event is cut off")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _stamp(value: Any) -> float | None:
    """Seconds since 1970 of a number or of an RFC 3339 time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or "T" not in value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None
