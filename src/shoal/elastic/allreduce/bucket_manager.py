"""The buckets of one rank, and how they are exchanged: through a codec, or as they are.

A group of one exchanges nothing, so it uses no codec. What a codec left out of the sums when the group
changes is carried over, by parameter, and added to the next gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shoal.elastic import codecs
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.layout import plan as lay_out
from shoal.elastic.allreduce.sending import Coded, Sending, Whole
from shoal.elastic.codecs.catalogue import Plan

__all__ = ["BucketManager"]


class BucketManager:
    """Of one rank. `sending` holds from one `begin_step` to the next; `places[i]`: the bucket that
    parameter i is in, and its gradient's place there."""

    def __init__(self, parameters: Sequence[torch.Tensor], extra: int, plan: Plan) -> None:
        """`extra`: elements of the control vector."""
        self._codec = plan.codec
        self._current = "none"
        self.layout = lay_out(parameters, extra, plan.bucket_bytes)
        self.places = [
            (number, self.layout.buckets[number].views[position])
            for number, position in self.layout.place
        ]
        self.sending: Sending = Whole(self.layout)
        self.carried: dict[int, torch.Tensor] = {}

    def begin_step(self, group: Group) -> None:
        """Choose how the next step's buckets are exchanged in this group."""
        wanted = "none" if group.size == 1 else self._codec
        if wanted == self._current:
            return
        self._release()
        self._current = wanted
        if wanted == "none":
            self.sending = Whole(self.layout)
        else:
            self.sending = Coded(self.layout, codecs.make(wanted))
        self.sending.begin_step()

    def commit(self) -> None:
        """The sums of this step are used."""
        self.sending.commit()
        self.carried = {}

    def keep(self, index: int, total: torch.Tensor, group: Group) -> None:
        """No rank used this parameter, so `total` is what all ranks added for it, and is not used
        either: each rank owes its part of it again."""
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
