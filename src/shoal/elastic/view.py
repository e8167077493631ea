"""What the members of a job agree on: the members, their order, and since which step.

Plain data, standard library only. A view is published by the coordinator alone and never changes;
another epoch is another view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Cursor", "Member", "View"]

Kind = Literal["first", "switch", "loss"]


@dataclass(frozen=True)
class Member:
    """One process in a view. `address` is where its peers reach it (`host:port`)."""

    name: str
    incarnation: int
    address: str

    @property
    def id(self) -> tuple[str, int]:
        """Name and incarnation: its identity."""
        return self.name, self.incarnation


@dataclass(frozen=True)
class Cursor:
    """Where the training stands in its data: samples `[0, position)` of the epoch's order are used."""

    epoch: int = 0
    position: int = 0

    def to_wire(self) -> list[int]:
        """As JSON has it."""
        return [self.epoch, self.position]


@dataclass(frozen=True)
class View:
    """Members in rank order (the oldest is rank 0).

    `step` and `cursor` are the last that the coordinator knew to be committed: a lower bound.
    """

    epoch: int
    kind: Kind
    members: tuple[Member, ...]
    step: int = 0
    cursor: Cursor = Cursor()

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def rank_of(self, name: str, incarnation: int) -> int | None:
        """The rank of a member; None for a stranger, or another incarnation."""
        for rank, member in enumerate(self.members):
            if member.id == (name, incarnation):
                return rank
        return None

    def to_wire(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "epoch": self.epoch,
            "kind": self.kind,
            "members": [
                {"name": each.name, "incarnation": each.incarnation, "address": each.address}
                for each in self.members
            ],
            "step": self.step,
            "cursor": self.cursor.to_wire(),
        }

    @classmethod
    def from_wire(cls, data: dict[str, Any]) -> View:
        """What `to_wire` made.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        return cls(
            epoch=int(data["epoch"]),
            kind=data["kind"],
            members=tuple(
                Member(str(each["name"]), int(each["incarnation"]), str(each["address"]))
                for each in data["members"]
            ),
            step=int(data["step"]),
            cursor=Cursor(*data["cursor"]),
        )
