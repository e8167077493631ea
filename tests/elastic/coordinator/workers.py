"""Model workers: the worker's side of the protocol without tensors. A step is who gave to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.elastic.view import View

Id = tuple[str, int]
Content = tuple[int, tuple[Id, ...]]
History = tuple[Content, ...]


class Violation(AssertionError):
    """Something happened that never may."""


@dataclass
class Group:
    """What the members of one epoch have in common: the network between them."""

    view: View
    gave: dict[int, dict[Id, int]] = field(default_factory=dict)
    """By step: who has given to it, and which epoch it said it is ready for."""
    posted: dict[Id, tuple[int, Content | None]] = field(default_factory=dict)
    manifest: int = 0
    outcome: tuple[str, int, Id, Content | None] | None = None
    reached: dict[Id, int] = field(default_factory=dict)
    histories: dict[Id, History] = field(default_factory=dict)
    handed_over: dict[str, History] = field(default_factory=dict)
    """What those who switched to this epoch had then, by name: their joiners have been told."""

    @property
    def ids(self) -> tuple[Id, ...]:
        return tuple(member.id for member in self.view.members)

    def result(self, step: int) -> Content | None:
        gave = self.gave.get(step, {})
        return (self.view.epoch, self.ids) if set(gave) == set(self.ids) else None

    def switch(self, step: int) -> int:
        """The epoch that all were ready for when they gave to this step; 0: none."""
        said = set(self.gave[step].values())
        return said.pop() if len(said) == 1 else 0


@dataclass
class Worker:
    """One process. `epoch`: of the group it is in; `entering`: of the group it agrees in."""

    name: str
    incarnation: int = 0
    alive: bool = True
    reachable: bool = True
    coordinator: int | None = None
    """Which coordinator it is connected to."""
    connection: int = 0
    sidecar: int = 0
    gossips: str = ""
    """As whom its sidecar gossips with others; nothing while it beats."""
    epoch: int = 0
    entering: int = 0
    history: History | None = None
    gave: bool = False
    pending: Content | None = None
    planned: View | None = None
    donor: str | None = None
    caught_up: bool = False
    leaving: bool = False
    manifest: int = 0
    """The number of the checkpoint that a first view named."""
    insisted: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def id(self) -> Id:
        return self.name, self.incarnation

    @property
    def has_been_in(self) -> bool:
        """Whether it has a state from a group that it was in, not one that it follows."""
        return self.epoch > 0

    @property
    def applied(self) -> int:
        return len(self.history) if self.history is not None else -1

    def forget(self) -> None:
        """Fenced: what it has is discarded, and it will join as somebody new."""
        self.incarnation = self.epoch = self.entering = 0
        self.history = self.pending = self.planned = self.donor = None
        self.gave = self.caught_up = False
        self.insisted.clear()

    def leave_group(self) -> None:
        """A view after a loss: no more of the old group, but the result that has come is kept."""
        self.gave = False
        self.planned = None
