"""Ranks as threads of one process, in real gloo groups: each call of a rank has a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group, Groups
from shoal.elastic.allreduce.reducer import Reducer
from shoal.elastic.codecs.catalogue import Plan
from shoal.elastic.errors import GroupFailed
from shoal.elastic.view import Member, View

__all__ = ["Rank", "groups", "together"]

_SECONDS = 30.0
T = TypeVar("T")


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """What each gave, in order. Raises what one raised."""
    found: dict[int, T] = {}
    failed: list[BaseException] = []

    def run(number: int, call: Callable[[], T]) -> None:
        try:
            found[number] = call()
        except BaseException as error:  # noqa: BLE001 - raised below, by the caller's thread
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(number, call), daemon=True)
        for number, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SECONDS)
    if failed:
        raise failed[0]
    assert len(found) == len(calls), f"ranks {set(range(len(calls))) - set(found)} are stuck"
    return [found[number] for number in range(len(calls))]


def groups(size: int, epoch: int = 1) -> list[Group]:
    """One group of `size` ranks, whose addresses are passed on as the coordinator does."""
    members = tuple(Member(f"r{number}", 1, "") for number in range(size))
    view = View(epoch, "first", members)
    builders: list[Groups] = []

    def post(message: dict[str, object]) -> bool:
        for builder in builders:
            builder.heard(message)
        return True

    builders += [Groups("127.0.0.1", lambda m=m: (m.name, m.incarnation), post) for m in members]
    for builder in builders:
        builder.want(view)
    built = [builder.take(epoch, _SECONDS) for builder in builders]
    assert all(group is not None for group in built)
    return [group for group in built if group is not None]


class Rank:
    """One rank's model and reducer; it applies nothing by itself."""

    def __init__(
        self,
        model: torch.nn.Module,
        plan: Plan,
        averaged: Sequence[torch.Tensor] = (),
    ) -> None:
        self.model = model
        self.parameters = list(model.parameters())
        self.total: Sum | None = None
        self.failed: GroupFailed | None = None
        self.reducer = Reducer(self.parameters, averaged, self._ended, plan=plan)
        self._last = True

    def step(
        self, group: Group, loss: torch.Tensor, samples: int, planned: int, said: int | None = None
    ) -> None:
        """A step of one part with `samples` of the `planned`; `failed` tells whether the group broke.
        `said`: how many it says it had, when it is not as planned."""
        self.reducer.begin_step()
        share = samples / planned
        self.part(group, loss, share, samples if said is None else said, share)
        if self.failed is None:
            assert self.total is not None
            self.reducer.install(self.total, planned)

    def part(self, group: Group, loss: torch.Tensor, weight: float, said: int, share: float) -> None:
        """The last part of a step; nothing is installed."""
        self.total = self.failed = None
        self._last = True
        self.reducer.begin_part(group, weight, True, Said(said), share)
        loss.backward()
        self.reducer.rest()

    def gradient(self) -> torch.Tensor:
        """Of all parameters, flat, fp64."""
        return torch.cat([p.grad.flatten().double() for p in self.parameters if p.grad is not None])

    def earlier_part(self, group: Group, loss: torch.Tensor, weight: float, share: float) -> None:
        """A part before the last, of a step that has been begun."""
        self._last = False
        self.reducer.begin_part(group, weight, False, Said(0), share)
        loss.backward()

    def _ended(self) -> None:
        if not self._last:
            return
        try:
            self.total = self.reducer.finish()
        except GroupFailed as failure:
            self.failed = failure
