"""Frames from outside, understood: a message becomes an event, or it is refused. Pure.

Nothing of what comes from a connection goes further without having passed here: types are checked, names
and errors have a longest length, numbers a range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

from shoal.elastic import wire
from shoal.elastic.coordinator import events
from shoal.elastic.view import Cursor

__all__ = ["Misshapen", "hello", "sidecar_event", "worker_event"]

MAX_NAME = 200
MAX_ERROR = 2000
MAX_RANGES = 64
MAX_BLOB = 8192
MAX_WORD = 64
MAX_AGAIN_SECONDS = 3600.0
_MAX_NUMBER = 1 << 53


class Misshapen(ValueError):
    """A message that the protocol does not know."""


def hello(connection: int, message: wire.Message) -> events.WorkerHello | events.SidecarHello:
    """The first message of a connection, or one that changes the identity of its sender.

    Raises:
        Misshapen: it is no hello.
    """
    if message.get("type") != "hello":
        raise Misshapen(f"the first message is {str(message.get('type'))[:40]!r}, not a hello")
    name, incarnation = _text(message, "name", MAX_NAME), _whole(message, "incarnation")
    if not name:
        raise Misshapen("a hello without a name")
    role = message.get("role")
    if role == "sidecar":
        return events.SidecarHello(connection, name, incarnation)
    if role != "worker":
        raise Misshapen("a hello has the role worker or sidecar")
    return events.WorkerHello(
        connection,
        name,
        incarnation,
        _text(message, "address", MAX_NAME),
        _whole(message, "epoch"),
        _whole(message, "step", least=-1),
    )


def worker_event(connection: int, message: wire.Message) -> events.Event | None:
    """What a worker said; None for a type that is not known here (of a later version).

    Raises:
        Misshapen: a field is missing or of the wrong kind.
    """
    if message["type"] == "hello":
        return hello(connection, message)
    maker = _WORKER.get(message["type"])
    return maker(connection, message) if maker is not None else None


def sidecar_event(connection: int, message: wire.Message) -> events.Event | None:
    """What a sidecar said; None for a type that is not known here.

    Raises:
        Misshapen: a field is missing or of the wrong kind.
    """
    what = message["type"]
    if what == "hello":
        return hello(connection, message)
    if what == "beat":
        return events.Beat(connection, _seconds(message, "late_seconds"))
    if what in ("gone", "stopped", "continued", "notice"):
        return events.SidecarSaid(connection, what)
    if what == "stalled":
        return events.SidecarSaid(connection, what, _seconds(message, "seconds"))
    if what in ("failed", "done", "left"):
        return _WORKER[what](connection, message)
    if what == "gossiping":
        return _gossiping(connection, message)
    if what in ("silent", "heard"):
        make = events.Silent if what == "silent" else events.Heard
        incarnation = _whole(message, "incarnation", least=1)
        return make(connection, incarnation, _text(message, "sidecar", MAX_WORD))
    return None


def _gossiping(connection: int, message: wire.Message) -> events.Event:
    return events.Gossips(
        connection,
        _text(message, "sidecar", MAX_WORD),
        _text(message, "address", MAX_NAME),
        _whole(message, "members", least=1),
        min(_seconds(message, "again_seconds"), MAX_AGAIN_SECONDS),
    )


def _text(message: Mapping[str, Any], field: str, longest: int) -> str:
    value = message.get(field)
    if not isinstance(value, str) or len(value) > longest:
        raise Misshapen(f"{field} is not a text of at most {longest} characters")
    return value


def _whole(message: Mapping[str, Any], field: str, least: int = 0) -> int:
    return _number(message.get(field), field, least)


def _number(value: object, field: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_NUMBER:
        raise Misshapen(f"{field} is not a whole number of at least {least}")
    return value


def _seconds(message: Mapping[str, Any], field: str) -> float:
    value = message.get(field, 0.0)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise Misshapen(f"{field} is not a number of seconds")
    return float(value)


def _list(value: object, field: str, longest: int) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise Misshapen(f"{field} is not a list")
    found = list(cast("list[object]", value))
    if len(found) > longest:
        raise Misshapen(f"{field} has {len(found)} items, more than {longest}")
    return found


def _pair(value: object, field: str) -> tuple[int, int]:
    items = _list(value, field, 2)
    if len(items) != 2:
        raise Misshapen(f"{field} is not a pair")
    return _number(items[0], field), _number(items[1], field)


def _cursor(message: Mapping[str, Any]) -> Cursor:
    return Cursor(*_pair(message.get("cursor"), "cursor"))


def _step(message: Mapping[str, Any]) -> int:
    return _whole(message, "step", least=-1)


def _blob(connection: int, message: wire.Message) -> events.Event:
    data = _text(message, "data", MAX_BLOB)
    return events.Blob(connection, _whole(message, "epoch"), _whole(message, "rank"), data)


def _caught_up(connection: int, message: wire.Message) -> events.Event:
    return events.CaughtUp(connection, _step(message))


def _switched(connection: int, message: wire.Message) -> events.Event:
    return events.Switched(connection, _whole(message, "epoch"), _step(message), _cursor(message))


def _recovered(connection: int, message: wire.Message) -> events.Event:
    return events.Recovered(
        connection,
        _whole(message, "epoch"),
        _step(message),
        _cursor(message),
        _seconds(message, "seconds"),
        _text(message, "how", 40),
    )


def _unbuilt(connection: int, message: wire.Message) -> events.Event:
    reached = _list(message.get("reached"), "reached", 65536)
    names = tuple(str(name)[:MAX_NAME] for name in reached)
    return events.Unbuilt(connection, _whole(message, "epoch"), names)


def _leaving(connection: int, message: wire.Message) -> events.Event:
    return events.Leaving(connection)


def _left(connection: int, message: wire.Message) -> events.Event:
    return events.Left(connection, _step(message))


def _failed(connection: int, message: wire.Message) -> events.Event:
    # A flood of ranges is cut: two of them are enough to find an overlap.
    raw = message.get("samples")
    ranges = cast("list[object]", raw)[:MAX_RANGES] if isinstance(raw, list) else []
    error = message.get("error")
    return events.Failed(
        connection,
        _step(message),
        tuple(_pair(item, "samples") for item in ranges),
        _whole(message, "epoch_of_data"),
        str(error)[:MAX_ERROR],
    )


def _done(connection: int, message: wire.Message) -> events.Event:
    return events.Done(connection, _step(message), _cursor(message))


def _report(connection: int, message: wire.Message) -> events.Event:
    return events.Report(
        connection,
        _step(message),
        _cursor(message),
        _seconds(message, "step_seconds"),
        _whole(message, "samples"),
        _whole(message, "world"),
        _whole(message, "epoch"),
        _whole(message, "broken"),
    )


def _resize(connection: int, message: wire.Message) -> events.Event:
    return events.Resize(connection, _whole(message, "size", least=1))


def _publish(connection: int, message: wire.Message) -> events.Event:
    manifest = message.get("manifest")
    if not isinstance(manifest, dict):
        raise Misshapen("manifest is not an object")
    return events.Publish(connection, _whole(message, "epoch"), cast("dict[str, Any]", manifest))


_WORKER: dict[str, Callable[[int, wire.Message], events.Event]] = {
    "blob": _blob,
    "caught_up": _caught_up,
    "switched": _switched,
    "recovered": _recovered,
    "unbuilt": _unbuilt,
    "leaving": _leaving,
    "left": _left,
    "failed": _failed,
    "done": _done,
    "report": _report,
    "resize": _resize,
    "publish": _publish,
}
