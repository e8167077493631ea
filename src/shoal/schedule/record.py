"""A decision as a file: what was seen, under which policy, when, and what was decided.

Equal input gives equal bytes, so a decision that somebody wonders about can be made again elsewhere,
with the same answer, and looked at step by step.
"""

from __future__ import annotations

import msgspec

from shoal.objects import codec
from shoal.objects.errors import Invalid
from shoal.objects.meta import Part, Stamp
from shoal.schedule.decide import decide
from shoal.schedule.plan import Plan, Policy
from shoal.schedule.snapshot import VERSION, Snapshot

__all__ = ["Record", "again", "read"]


class Record(Part, frozen=True, kw_only=True):
    """One decision."""

    version: int = VERSION
    """Of the rows."""
    now: Stamp
    policy: Policy = Policy()
    snapshot: Snapshot
    plan: Plan


def read(name: str, content: bytes) -> Record:
    """The record that the bytes of a file of this name hold.

    Raises:
        Invalid: they hold something else, or were written by another version.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).version
    except msgspec.MsgspecError as error:
        raise Invalid(f"{name} is no recorded decision: {error}") from error
    if version != VERSION:
        raise Invalid(
            f"{name} was recorded by version {version} of the rows, and this is version {VERSION}",
            hint="replay it with the version of Shoal that recorded it",
        )
    try:
        return codec.decode(content, Record)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{name} is no recorded decision: {error}") from error


def again(record: Record) -> tuple[Plan, bool]:
    """The plan that comes of it now, and whether it is the recorded one to the byte."""
    plan = decide(record.snapshot, record.policy, record.now)
    return plan, codec.encode(plan) == codec.encode(record.plan)


class _Version(msgspec.Struct):
    version: int = VERSION
    snapshot: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        if not bytes(self.snapshot):
            raise ValueError("it has no snapshot")
