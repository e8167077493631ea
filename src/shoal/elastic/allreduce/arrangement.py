"""The buckets and how they travel, and when that changes: between two steps, on all ranks in the same.

What is tried and chosen follows from the control vector's sums, and begins anew with each view, so a
member that joins needs to be told nothing. What a codec left out of the sums is not lost with it: it is
carried over, by parameter, and added to the next gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from shoal.elastic import codecs
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.layout import Layout
from shoal.elastic.allreduce.layout import plan as lay_out
from shoal.elastic.allreduce.sending import Coded, Sending, Whole
from shoal.elastic.codecs.autotune import Choice, Setting
from shoal.elastic.codecs.tuner import Plan, Tuner

__all__ = ["Arrangement"]


class Arrangement:
    """Of one rank. `layout` and `sending` hold from one `begin_step` to the next; `places[i]`: which
    bucket parameter i is in, and its gradient's place there."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        extra: int,
        plan: Plan,
        say: Callable[[str], None],
    ) -> None:
        """`extra`: elements of the control vector; `say` is told, on rank 0, what was chosen and why."""
        self._parameters = parameters
        self._extra = extra
        self._plan = plan
        self._say = say
        self._tuner = Tuner(plan)
        self._epoch: int = 0
        self._coded: dict[str, Coded] = {}
        # until there is a group, and alone, nothing is gained by a codec
        self._setting = Setting("none", plan.first.bucket_bytes)
        self.layout = lay_out(parameters, extra, plan.first.bucket_bytes)
        self.places = _places(self.layout)
        self.sending: Sending = Whole(self.layout)
        self.carried: dict[int, torch.Tensor] = {}

    @property
    def measures(self) -> bool:
        """Whether durations are still of interest."""
        return not self._tuner.done

    def begin_step(self, group: Group) -> None:
        """What the next step is to use is in place."""
        if group.epoch != self._epoch:
            self._epoch = group.epoch
            self._tuner = Tuner(self._plan)
        before = self._setting
        wanted = self._tuner.setting
        if group.size == 1:
            wanted = Setting("none", before.bucket_bytes)
        if wanted == before:
            return
        self._release()
        self._setting = wanted
        if wanted.bucket_bytes != before.bucket_bytes:
            self._coded.clear()
            del self.layout, self.places, self.sending  # two at once would be twice the memory
            self.layout = lay_out(self._parameters, self._extra, wanted.bucket_bytes)
            self.places = _places(self.layout)
        self.sending = self._sending(wanted.codec)
        self.sending.begin_step()
        if self._tuner.done:
            self._coded.clear()

    def record(self, seconds: float, group: Group) -> None:
        """A step is over: how long the one before it took, summed over all ranks."""
        if self._tuner.done or group.size == 1:
            return
        choice = self._tuner.record(seconds)
        if choice is not None and group.rank == 0:
            self._say(_sentence(choice, group.size))

    def commit(self) -> None:
        """The sums of this step are used."""
        self.sending.commit()
        self.carried = {}

    def keep(self, index: int, total: torch.Tensor, group: Group) -> None:
        """Nobody used this parameter, so `total` is what all have paid for it, and is not used either:
        each rank owes its part of it again."""
        if isinstance(self.sending, Coded):
            self.carried[index] = total / group.size

    def owe_nothing(self) -> None:
        """What was owed belongs to a state that this rank has given up."""
        self.sending.release()
        self.carried = {}

    def _release(self) -> None:
        for index, owed in self.sending.release().items():
            carried = self.carried.get(index)
            self.carried[index] = owed if carried is None else carried + owed

    def _sending(self, codec: str) -> Sending:
        if codec == "none":
            return Whole(self.layout)
        if codec not in self._coded:
            self._coded[codec] = Coded(self.layout, codecs.make(codec))
        return self._coded[codec]


def _places(layout: Layout) -> list[tuple[int, torch.Tensor]]:
    return [(number, layout.buckets[number].views[position]) for number, position in layout.place]


def _sentence(choice: Choice, ranks: int) -> str:
    pace = f", {choice.speedup:.2f} times as fast as before" if choice.speedup != 1.0 else ""
    others = "; ".join(choice.reason)
    return f"gradients of {ranks} workers travel as {choice.setting}{pace} ({others})"
