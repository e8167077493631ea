"""The durable state of a coordinator: one record, written before any message that depends on it.

A coordinator that starts again, here or elsewhere, goes on from it. Plain data and its JSON form.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from shoal.elastic.view import Cursor, Member, View

__all__ = ["Ended", "Failure", "Record", "from_bytes", "to_bytes"]

_FORMAT = 1


@dataclass(frozen=True)
class Ended:
    """The job is over: why, and whether as a failure."""

    reason: str
    failed: bool


@dataclass(frozen=True)
class Failure:
    """The user's code raised. `samples`: ranges `[first, end)` of the order of epoch `epoch_of_data`."""

    name: str
    incarnation: int
    epoch_of_data: int
    samples: tuple[tuple[int, int], ...]
    error: str

    def overlaps(self, other: Failure) -> bool:
        """Whether both were at some sample of the same data epoch."""
        return self.epoch_of_data == other.epoch_of_data and bool(self.common(other))

    def common(self, other: Failure) -> tuple[tuple[int, int], ...]:
        """The ranges that both were at."""
        pairs = ((max(a, c), min(b, d)) for a, b in self.samples for c, d in other.samples)
        return tuple(sorted({(first, end) for first, end in pairs if first < end}))


@dataclass(frozen=True)
class Record:
    """See the module.

    `epoch` is the highest that was ever published or planned. `view` is in use as far as is known;
    `planned` are later ones that its members may have switched to (oldest first). `stateless` are the
    incarnations in `view` that came into it without a state and have not said since that they have one
    (all of a first view, joiners after a switch). `founders` are those of a first view that have been in
    every first view since no worker had a state: what may have been committed since, each of them has
    applied, whether or not that was reported.
    `step` and `cursor` are the last known to be committed. `lost_state`: the view began again at step 0
    though steps had been committed, because its settings allow that.
    """

    job: str = ""
    attempt: int = 0
    key: str = ""
    address: str = ""
    epoch: int = 0
    view: View | None = None
    planned: tuple[View, ...] = ()
    stateless: tuple[int, ...] = ()
    founders: tuple[int, ...] = ()
    next_incarnation: int = 1
    minimum: int = 1
    maximum: int | None = None
    target: int | None = None
    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    manifest: dict[str, Any] | None = None
    lost_state: bool = False
    failures: tuple[Failure, ...] = ()
    ended: Ended | None = None

    @property
    def capacity(self) -> int | None:
        """The most members that are wanted now; None: any number."""
        bounds = [bound for bound in (self.maximum, self.target) if bound is not None]
        return max(min(bounds), self.minimum) if bounds else None

    @property
    def members(self) -> tuple[Member, ...]:
        """Everybody in the view or in a planned one, the oldest first."""
        views = (self.view, *self.planned) if self.view is not None else self.planned
        found = {member.incarnation: member for view in views for member in view.members}
        return tuple(found[incarnation] for incarnation in sorted(found))

    def next_attempt(self, job: str, attempt: int, key: str) -> Record:
        """What a new start of the whole gang goes on from: no members, the same count of epochs."""
        return replace(
            self,
            job=job,
            attempt=attempt,
            key=key,
            view=None,
            planned=(),
            stateless=(),
            founders=(),
            failures=(),
            target=None,
            ended=None,
        )


def to_bytes(record: Record) -> bytes:
    """As UTF-8 JSON."""
    view = record.view
    data: dict[str, Any] = {
        **{name: getattr(record, name) for name in _PLAIN},
        "format": _FORMAT,
        "view": view.to_wire() if view is not None else None,
        "planned": [each.to_wire() for each in record.planned],
        "stateless": list(record.stateless),
        "founders": list(record.founders),
        "cursor": record.cursor.to_wire(),
        "failures": [asdict(each) for each in record.failures],
        "ended": asdict(record.ended) if record.ended is not None else None,
    }
    return json.dumps(data, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Record:
    """What `to_bytes` made.

    Raises:
        ValueError: it is something else, or of a later format.
    """
    try:
        raw = cast("dict[str, Any]", json.loads(data))
        if raw["format"] != _FORMAT:
            raise ValueError(f"the record has format {raw['format']}, this coordinator knows {_FORMAT}")
        return Record(
            **{name: raw[name] for name in _PLAIN},
            view=View.from_wire(raw["view"]) if raw["view"] is not None else None,
            planned=tuple(View.from_wire(each) for each in raw["planned"]),
            stateless=tuple(raw["stateless"]),
            founders=tuple(raw.get("founders", ())),
            cursor=Cursor(*raw["cursor"]),
            failures=tuple(_failure(each) for each in raw["failures"]),
            ended=Ended(**raw["ended"]) if raw["ended"] is not None else None,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no record of a coordinator: {error!r}") from error


_PLAIN = (
    "job",
    "attempt",
    "key",
    "address",
    "epoch",
    "next_incarnation",
    "minimum",
    "maximum",
    "target",
    "step",
    "manifest",
    "lost_state",
)


def _failure(raw: dict[str, Any]) -> Failure:
    return Failure(
        raw["name"],
        raw["incarnation"],
        raw["epoch_of_data"],
        tuple((int(first), int(end)) for first, end in raw["samples"]),
        raw["error"],
    )
