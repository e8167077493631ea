"""Entries as rows of plain values: the one place that says what an entry may hold once it is stored.

Every History stores what `normal` gives, so an entry reads the same from each of them. Texts come
from users' programs and machines: what a database could not hold is replaced, never refused, for
the caller that records an event cannot act on a refusal.
"""

from __future__ import annotations

import math
from typing import Any, cast

import msgspec

from shoal.history.base import MESSAGE_LIMIT, About, Entry, JobKey, Point
from shoal.objects import codec

Row = dict[str, Any]  # Any: each column has a type of its own

COLUMNS = (
    "id", "type", "kind", "namespace", "name", "uid", "at", "reason", "message", "severity", "count",
    "value", "data",
)  # fmt: skip


def to_row(entry: Entry) -> Row:
    """The entry's columns."""
    about = entry.about
    value = entry.value
    return {
        "id": entry.id,
        "type": entry.type,
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
        "at": entry.at,
        "reason": _storable(entry.reason),
        "message": _storable(_bounded(entry.message)),
        "severity": entry.severity,
        "count": entry.count,
        "value": value if value is not None and math.isfinite(value) else None,
        "data": _document(entry.data),
    }


def from_row(row: Row) -> Entry:
    """The entry that `to_row` took apart."""
    return Entry(
        id=row["id"],
        type=row["type"],
        about=About(kind=row["kind"], namespace=row["namespace"], name=row["name"], uid=row["uid"]),
        at=row["at"],
        reason=row["reason"],
        message=row["message"],
        severity=row["severity"],
        count=row["count"],
        value=row["value"],
        data=msgspec.json.decode(row["data"]),
    )


def normal(entry: Entry) -> Entry:
    """The entry as it will come back."""
    return from_row(to_row(entry))


def point_to_row(point: Point) -> Row:
    """The point's columns but its order."""
    return {
        "namespace": point.job.namespace,
        "job": point.job.name,
        "uid": point.job.uid,
        "writer": _storable(point.writer),
        "sequence": point.sequence,
        "name": _storable(point.name),
        "value": None if math.isnan(point.value) else point.value,
        "step": point.step,
        "at": point.at,
        "role": point.role,
        "index": point.index,
        "incarnation": point.incarnation,
    }


def point_from_row(row: Row, order: int) -> Point:
    """The point that `point_to_row` took apart."""
    return Point(
        job=JobKey(namespace=row["namespace"], name=row["job"], uid=row["uid"]),
        name=row["name"],
        value=math.nan if row["value"] is None else row["value"],
        at=row["at"],
        step=row["step"],
        role=row["role"],
        index=row["index"],
        incarnation=row["incarnation"],
        writer=row["writer"],
        sequence=row["sequence"],
        order=order,
    )


def _bounded(message: str) -> str:
    if len(message) <= MESSAGE_LIMIT:
        return message
    more = len(message) - MESSAGE_LIMIT
    return f"{message[:MESSAGE_LIMIT]} ... ({more} more characters)"


def _document(data: dict[str, Any]) -> str:
    try:
        return codec.encode(data).decode()
    except UnicodeEncodeError:
        return codec.encode(_storable_parts(data)).decode()


def _storable_parts(value: Any) -> Any:
    match value:
        case str():
            return _storable(value)
        case dict():
            items = cast("dict[Any, Any]", value)  # JSON: anything may be in it
            return {_storable_parts(key): _storable_parts(part) for key, part in items.items()}
        case list() | tuple():
            return [_storable_parts(part) for part in cast("list[Any]", value)]
        case _:
            return value


def _storable(text: str) -> str:
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
