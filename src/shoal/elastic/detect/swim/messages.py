"""What members say to each other, and how it is framed.

A packet is a JSON array of messages, a message an array that begins with its name. Whatever is not
exactly that is `Malformed`, as a whole: after the seal has been checked, only a bug sends such things.
Nothing is compressed, so nothing can grow when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, cast

__all__ = [
    "MAX_ADDRESS",
    "MAX_NAME",
    "Ack",
    "Alive",
    "Dead",
    "IndirectPing",
    "Malformed",
    "Message",
    "Nack",
    "Ping",
    "Row",
    "Suspect",
    "Table",
    "decode",
    "encode",
    "packet",
]

MAX_NAME = 128
MAX_ADDRESS = 64
_MAX_NUMBER = 1 << 62

State = Literal["alive", "suspect", "dead", "left"]


class Malformed(ValueError):
    """Bytes that no member of ours would have sent."""


class Ping(NamedTuple):
    """Are you there? `target` is the intended member: another may have its address by now."""

    number: int
    target: str


class IndirectPing(NamedTuple):
    """Ask that one for me; `nack`: and report if it does not answer."""

    number: int
    target: str
    address: str
    nack: int


class Ack(NamedTuple):
    """I am, or the one that you asked for is."""

    number: int


class Nack(NamedTuple):
    """The one that you asked for did not answer me (yet)."""

    number: int


class Alive(NamedTuple):
    """It says itself that it is there."""

    incarnation: int
    name: str
    address: str


class Suspect(NamedTuple):
    """`accuser` had no answer from it."""

    incarnation: int
    name: str
    accuser: str


class Dead(NamedTuple):
    """`accuser` has waited long enough; it is the member itself when it leaves."""

    incarnation: int
    name: str
    accuser: str


class Row(NamedTuple):
    """One member in a member's table."""

    name: str
    address: str
    incarnation: int
    state: State


class Table(NamedTuple):
    """All that one member knows. `joining`: the sender is new here."""

    joining: int
    rows: tuple[Row, ...]


Message = Ping | IndirectPing | Ack | Nack | Alive | Suspect | Dead | Table
_TYPES: dict[str, type[Message]] = {
    "ping": Ping,
    "ask": IndirectPing,
    "ack": Ack,
    "nack": Nack,
    "alive": Alive,
    "suspect": Suspect,
    "dead": Dead,
    "table": Table,
}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_NUMBERS = {"number", "nack", "incarnation", "joining"}
_STATES = ("alive", "suspect", "dead", "left")


def encode(message: Message) -> bytes:
    """One message, as it stands in a packet."""
    return json.dumps([_NAMES[type(message)], *message], separators=(",", ":")).encode()


def packet(encoded: Iterable[bytes]) -> bytes:
    """Several of them; two bytes and one for each but the first longer than they are."""
    return b"[" + b",".join(encoded) + b"]"


def decode(data: bytes, limit_bytes: int) -> list[Message]:
    """The messages of a packet.

    Raises:
        Malformed: it is longer than the limit, or anything but a packet.
    """
    if len(data) > limit_bytes:
        raise Malformed(f"{len(data)} bytes; the limit is {limit_bytes}")
    try:
        decoded: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from error
    if not isinstance(decoded, list) or not decoded:
        raise Malformed("no array of messages")
    return [_message(each) for each in cast("list[object]", decoded)]


def _message(item: object) -> Message:
    if not isinstance(item, list) or not item:
        raise Malformed("a message that is no array")
    name, *values = cast("list[Any]", item)
    kind = _TYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed("a message of no known type")
    if kind is Table:
        return _table(values)
    return cast("Message", _fields(kind, values))


def _table(values: list[Any]) -> Table:
    if len(values) != 2 or not isinstance(values[1], list):
        raise Malformed("a table without rows")
    rows = [_fields(Row, cast("list[Any]", each)) for each in cast("list[object]", values[1])]
    for row in rows:
        if row.state not in _STATES:
            raise Malformed("a member in no known state")
    return Table(_number(values[0]), tuple(rows))


def _fields(kind: type[Any], values: object) -> Any:  # Any: the NamedTuple that `kind` makes
    names: tuple[str, ...] = kind._fields
    if not isinstance(values, list) or len(cast("list[Any]", values)) != len(names):
        raise Malformed("a message of the wrong length")
    checked = [
        _number(value)
        if name in _NUMBERS
        else _text(value, MAX_ADDRESS if name == "address" else MAX_NAME)
        for name, value in zip(names, cast("list[object]", values), strict=True)
    ]
    return kind(*checked)


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise Malformed("a number that is none")
    return value


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise Malformed("a name that is none")
    return value
