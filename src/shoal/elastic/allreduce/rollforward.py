"""After a loss: what everybody still has, and what follows from it. Pure.

A bucket that finished on any rank is right everywhere; one that failed holds garbage. Survivors of a
loss differ by at most one applied step; a rank that comes back from an older view may be further behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Outcome", "Record", "decide"]


@dataclass(frozen=True)
class Record:
    """One rank's. `applied`: its last applied step (-1: it has no state at all). `finished[b]`: it holds
    the sum of bucket b of step `applied + 1`."""

    applied: int
    finished: tuple[bool, ...]


@dataclass(frozen=True)
class Outcome:
    """What follows. `applied`: the step that everybody has applied, or will have by then.

    - `state`: ranks behind `applied` take `donor`'s state, then the next step begins anew;
    - `buckets`: each (bucket, holder) of `copies` is sent to all, then everybody applies;
    - `rerun`: the next step begins anew.
    """

    how: Literal["state", "buckets", "rerun"]
    applied: int
    donor: int = 0
    copies: tuple[tuple[int, int], ...] = ()


def decide(records: Sequence[Record]) -> Outcome:
    """What all ranks do; the same on each, for all see the same records in rank order.

    Raises:
        ValueError: no rank has a state.
    """
    newest = max(record.applied for record in records)
    if newest < 0:
        raise ValueError("no rank has a state")
    donor = next(rank for rank, record in enumerate(records) if record.applied == newest)
    if any(record.applied != newest for record in records):
        return Outcome("state", newest, donor)
    buckets = max(len(record.finished) for record in records)
    if not buckets or any(len(record.finished) != buckets for record in records):
        return Outcome("rerun", newest, donor)
    holders = [
        next((rank for rank, record in enumerate(records) if record.finished[bucket]), None)
        for bucket in range(buckets)
    ]
    if any(holder is None for holder in holders):
        return Outcome("rerun", newest, donor)
    copies = tuple(
        (bucket, holder)
        for bucket, holder in enumerate(holders)
        if holder is not None and not all(record.finished[bucket] for record in records)
    )
    return Outcome("buckets", newest + 1, donor, copies)
