"""`mode="local"`: every worker trains alone for some steps, then all agree (local SGD, DiLoCo).

A round ends at a *meeting*: a step boundary at which nothing is being exchanged. Only there do the
members change, checkpoints get their state and steps count as committed. After a loss the round is run
again from what each worker had at its last meeting, its samples dealt anew among the workers left: no
sample is lost, and a loss costs at most one round.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from shoal.elastic import randomness
from shoal.elastic.allreduce import control
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.group import Group
from shoal.elastic.errors import ElasticError
from shoal.elastic.optim.local import LocalSteps, Outer
from shoal.elastic.state import Packed, digest, pack, unpack
from shoal.elastic.view import Cursor, Member, View

if TYPE_CHECKING:
    from shoal.elastic.wrapping import Objects

__all__ = ["Local", "LocalPlan", "alone", "local_plan"]


@dataclass(frozen=True)
class LocalPlan:
    """How workers train alone: see `job.wrap`."""

    every: int
    outer: Outer = field(default_factory=Outer)

    def __str__(self) -> str:
        outer = self.outer
        return (
            f"the sum of {self.every} local steps, outer rate {outer.lr:g}, momentum {outer.momentum:g}"
        )


def local_plan(mode: str, every: int | None, outer: Outer | None) -> LocalPlan | None:
    """The options `mode`, `sync_every` and `outer` of `job.wrap`, checked; None for `mode="sync"`.

    Raises:
        ElasticError: it makes no sense.
    """
    if mode not in ("sync", "local"):
        raise ElasticError(f"mode {mode!r}: there are 'sync' and 'local'")
    if mode == "sync":
        if (every, outer) != (None, None):
            raise ElasticError("sync_every and outer go with mode='local'")
        return None
    if every is None or every < 1:
        raise ElasticError("mode='local' needs sync_every=H: how many steps workers take alone")
    return LocalPlan(every, outer or Outer())


def alone() -> Group:
    """A group of one."""
    return Group(View(1, "first", (Member("alone", 1, ""),)), 0, None, None)


class Local:
    """Of one process. `group` is what gradients are summed in: this process alone."""

    def __init__(self, plan: LocalPlan, objects: Objects) -> None:
        self.group = alone()
        self._plan = plan
        self._objects = objects
        self._steps = LocalSteps(objects.parameters(), plan.every, plan.outer)
        self._since = 0
        self._share = (0, 0)
        """Samples of this worker, and of all, since the last exchange."""
        self._kept: Packed | None = None

    @property
    def meeting(self) -> bool:
        """Whether no local step was taken since the last meeting."""
        return not self._since

    def begin(self, applied: int, cursor: Cursor) -> None:
        """Training begins with what the parameters are now, unless it has begun."""
        if self._kept is None:
            self._keep(applied, cursor)

    def stepped(self, own_samples: int, samples: int, group: Group) -> bool:
        """A local step of `own_samples` of all workers' `samples` is done; exchange what is due. Whether
        the round is over: `meet` then.

        Raises:
            GroupFailed: the group broke; `restore` is what is left.
            ElasticError: what the workers have learned cannot be added up.
        """
        self._share = (self._share[0] + own_samples, self._share[1] + samples)
        self._since += 1
        try:
            self._steps.stepped(self._weight(), _adding(group))
        except ValueError as error:
            raise ElasticError(str(error)) from error
        due = self._steps.steps % self._plan.every == 0
        if due:
            self._share = (0, 0)
        return due

    def flush(self, group: Group) -> bool:
        """All samples are learned: exchange what was not yet, and take what was agreed. False if there
        was nothing to exchange.

        Raises:
            GroupFailed: as `stepped`.
            ElasticError: as `stepped`.
        """
        is_open = self._share[1] > 0
        if is_open:
            try:
                self._steps.begin(self._weight(), _adding(group))
                self._steps.finish()
            except ValueError as error:
                raise ElasticError(str(error)) from error
            self._share = (0, 0)
        self._steps.adopt()
        return is_open

    def meet(self, ready: int, applied: int, cursor: Cursor, group: Group) -> Sum:
        """All have applied the same exchanges: sum the control vectors, and keep what this one has.

        Raises:
            GroupFailed: as `stepped`.
        """
        vector = torch.zeros(control.FIXED, dtype=torch.float32)
        said = Said(1, ready, digest=self.digest(), place=applied & 0xFFFF)
        control.write(vector, said, ())
        group.wait(group.sum(vector))
        total = control.read(vector, group.size, ready)
        self._keep(applied, cursor)
        return total

    def digest(self) -> int:
        """48 bits over what was agreed."""
        return digest(self._steps.agreed)

    def state(self) -> dict[str, Any]:
        """What was agreed; at a meeting."""
        return self._steps.state_dict()

    def adopt(self, state: dict[str, Any] | None, applied: int, cursor: Cursor) -> None:
        """Go on from what others have agreed; None: from the parameters as they are now."""
        if state is None:
            self._steps = LocalSteps(self._steps.parameters, self._plan.every, self._plan.outer)
        else:
            self._steps.load_state_dict(state)
            self._steps.adopt()
        self._share = (0, 0)
        self._keep(applied, cursor)

    def restore(self) -> tuple[int, Cursor]:
        """Become what this process was at its last meeting: its step, and its cursor."""
        if self._kept is None:
            raise ElasticError("the training has not begun: iterate over job.shards()")
        tree = unpack(self._kept)
        self._objects.install(tree["objects"])
        self._steps.load_state_dict(tree["local"])
        randomness.restore(tree["random"])
        self._share = tree["share"]
        self._since = 0
        return int(tree["applied"]), Cursor(*tree["cursor"])

    def _weight(self) -> float:
        own, samples = self._share
        return own / max(1, samples)

    def _keep(self, applied: int, cursor: Cursor) -> None:
        self._kept = pack({
            "objects": self._objects.capture(),
            "local": self._steps.state_dict(),
            "random": randomness.capture(),
            "applied": applied,
            "cursor": (cursor.epoch, cursor.position),
            "share": self._share,
        })  # fmt: skip
        self._since = 0


def _adding(group: Group) -> Callable[[torch.Tensor], Callable[[], None]]:
    def add_up(tensor: torch.Tensor) -> Callable[[], None]:
        pending = group.sum(tensor)
        return lambda: group.wait(pending)

    return add_up
