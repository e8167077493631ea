"""`mode="local"`: every worker trains alone for some steps, then all agree (local SGD, DiLoCo).

A round ends at a *meeting*: a step boundary at which nothing is being exchanged. Only there do the
members change, checkpoints get their state and steps count as committed. After a loss the round is run
again from what each had at its last meeting, its samples dealt anew among those who are left: no sample
is lost, and a loss costs at most one round. In a stream of several blocks others than the last are not
exchanged at a meeting: there the lost worker's part of them, of less than a round, is gone.
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
from shoal.elastic.optim.blocks import Rhythm
from shoal.elastic.optim.local import LocalSteps
from shoal.elastic.optim.outer import Outer
from shoal.elastic.state import Packed, digest, pack, unpack
from shoal.elastic.view import Cursor, Member, View

if TYPE_CHECKING:
    from shoal.elastic.wrapping import Objects

__all__ = ["Local", "LocalPlan", "alone", "local_plan"]


@dataclass(frozen=True)
class LocalPlan:
    """How workers train alone: see `job.wrap`."""

    rhythm: Rhythm
    outer: Outer = field(default_factory=Outer)
    alpha: float = 0.0

    def __str__(self) -> str:
        rhythm, outer = self.rhythm, self.outer
        return (
            f"the sum of {rhythm.every} local steps, {rhythm.blocks} blocks, delay {rhythm.delay}, "
            f"outer rate {outer.lr:g}, momentum {outer.momentum:g}, own share {self.alpha:g}"
        )


def local_plan(
    mode: str, every: int | None, outer: Outer | None, blocks: int, delay: int, alpha: float
) -> LocalPlan | None:
    """What `job.wrap` was given; None for `mode="sync"`.

    Raises:
        ElasticError: it makes no sense.
    """
    if mode not in ("sync", "local"):
        raise ElasticError(f"mode {mode!r}: there are 'sync' and 'local'")
    if mode == "sync":
        if (every, outer, blocks, delay, alpha) != (None, None, 1, 0, 0.0):
            raise ElasticError("sync_every, outer, blocks, delay and alpha go with mode='local'")
        return None
    if every is None or every < 1:
        raise ElasticError("mode='local' needs sync_every=H: how many steps workers take alone")
    if not 0 <= alpha <= 1:
        raise ElasticError(f"alpha {alpha} must be between 0 and 1")
    try:
        return LocalPlan(Rhythm(every, blocks, delay), outer or Outer(), alpha)
    except ValueError as error:
        raise ElasticError(str(error)) from error


def alone() -> Group:
    """A group of one."""
    return Group(View(1, "first", (Member("alone", 1, ""),)), 0, None, None)


class Local:
    """Of one process. `group` is what gradients are summed in: this process alone."""

    def __init__(self, plan: LocalPlan, objects: Objects) -> None:
        """
        Raises:
            ElasticError: the plan does not fit the parameters.
        """
        self.group = alone()
        self._plan = plan
        self._objects = objects
        try:
            self._steps = LocalSteps(objects.parameters(), plan.rhythm, plan.outer, alpha=plan.alpha)
        except ValueError as error:
            raise ElasticError(f"mode='local': {error}") from error
        self._since = 0
        self._shares = [(0, 0)] * plan.rhythm.blocks
        """For each block: samples of this worker, and of all, since it was exchanged."""
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
        self._shares = [(own + own_samples, all_ + samples) for own, all_ in self._shares]
        self._since += 1
        rhythm = self._plan.rhythm
        block = rhythm.begins(self._steps.steps + 1)
        try:
            self._steps.stepped(self._weight(block) if block is not None else 0.0, _adding(group))
        except ValueError as error:
            raise ElasticError(str(error)) from error
        if block is not None:
            self._shares[block] = (0, 0)
        done = self._steps.steps - rhythm.delay
        return done > 0 and done % rhythm.every == 0

    def flush(self, group: Group) -> bool:
        """All samples are learned: exchange what was not yet, and take what was agreed. False if there
        was nothing to exchange.

        Raises:
            GroupFailed: as `stepped`.
            ElasticError: as `stepped`.
        """
        open_ = any(samples for _, samples in self._shares)
        if open_:
            self._exchange_all(group)
        self._steps.adopt()
        return open_

    def meet(self, ready: int, applied: int, cursor: Cursor, group: Group) -> Sum:
        """All have applied the same exchanges: hear what everybody says, and keep what this one has.

        Raises:
            GroupFailed: as `stepped`.
        """
        vector = torch.zeros(control.FIXED, dtype=torch.float32)
        said = Said(1, ready, digest=self.digest(), place=applied & 0xFFFF)
        control.write(vector, said, ())
        group.wait(group.sum(vector))
        total = control.read(vector, group.size, ready)
        if total.ready and self._plan.rhythm.blocks > 1:
            self._exchange_all(group)  # who comes or goes leaves nothing open
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
            fresh = LocalSteps(
                self._steps.parameters, self._plan.rhythm, self._plan.outer, alpha=self._plan.alpha
            )
            self._steps = fresh
        else:
            self._steps.load_state_dict(state)
            self._steps.adopt()
        self._shares = [(0, 0)] * self._plan.rhythm.blocks
        self._keep(applied, cursor)

    def restore(self) -> tuple[int, Cursor]:
        """Become what this process was at its last meeting: its step, and its cursor."""
        if self._kept is None:
            raise ElasticError("the training has not begun: iterate over job.shards()")
        tree = unpack(self._kept)
        self._objects.install(tree["objects"])
        self._steps.load_state_dict(tree["local"])
        randomness.restore(tree["random"])
        self._shares = list(tree["shares"])
        self._since = 0
        return int(tree["applied"]), Cursor(*tree["cursor"])

    def _weight(self, block: int) -> float:
        own, samples = self._shares[block]
        return own / max(1, samples)

    def _exchange_all(self, group: Group) -> None:
        """
        Raises:
            GroupFailed: as `stepped`.
            ElasticError: as `stepped`.
        """
        try:
            self._steps.finish()
            for block, (_, samples) in enumerate(self._shares):
                if samples:
                    self._steps.begin(block, self._weight(block), _adding(group))
                    self._steps.finish()
                    self._shares[block] = (0, 0)
        except ValueError as error:
            raise ElasticError(str(error)) from error

    def _keep(self, applied: int, cursor: Cursor) -> None:
        self._kept = pack({
            "objects": self._objects.capture(),
            "local": self._steps.state_dict(),
            "random": randomness.capture(),
            "applied": applied,
            "cursor": (cursor.epoch, cursor.position),
            "shares": list(self._shares),
        })  # fmt: skip
        self._since = 0


def _adding(group: Group) -> Callable[[torch.Tensor], Callable[[], None]]:
    def add_up(tensor: torch.Tensor) -> Callable[[], None]:
        pending = group.sum(tensor)
        return lambda: group.wait(pending)

    return add_up
