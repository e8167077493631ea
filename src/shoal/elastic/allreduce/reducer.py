"""Gradient hooks that fill buckets and send them while backward goes on.

In the parts of a step before the last, a gradient is weighed and added to its place in the bucket. In
the last part each bucket is sent as soon as it is full, in the same order on every rank; when backward
ends, what is left is sent, everything is awaited, and `parameter.grad` is the average over the samples
of the whole step: a view into the bucket.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shoal.elastic.allreduce import control
from shoal.elastic.allreduce.bucket_manager import BucketManager, Writers, buffers
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.layout import Layout
from shoal.elastic.codecs.catalogue import Plan
from shoal.elastic.errors import ElasticError, GroupFailed

__all__ = ["Reducer"]


class Reducer:
    """Of one set of parameters. All calls, and the hooks, come from the training thread.

    `ended` is called when backward of a part has ended; after a last part it should call `finish`, and
    in the end `install`.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        averaged: Sequence[torch.Tensor],
        ended: Callable[[], None],
        plan: Plan,
    ) -> None:
        """`averaged`: fp32 buffers; their mean over the samples is agreed on with each step. `plan`: the
        codec and the size of buckets."""
        self.parameters = list(parameters)
        self._averaged = list(averaged)
        self._ended = ended
        self._fixed = control.FIXED + len(self.parameters)
        extra = self._fixed + sum(each.numel() for each in self._averaged)
        self._buckets = BucketManager([p.data for p in self.parameters], extra, plan)
        self._writers = Writers(self.layout.device)
        self._used = [False] * len(self.parameters)
        self._fired = [False] * len(self.parameters)
        self._waiting: list[int] = []
        # tensors: a plain number would be made one anew for each gradient
        kinds = [torch.promote_types(p.dtype, torch.float32) for p in self.parameters]
        self._weights = {kind: torch.ones((), dtype=kind) for kind in set(kinds)}
        self._weight_of = [self._weights[kind] for kind in kinds]
        self._group: Group | None = None
        self._weight = 1.0
        self._last = True
        self._queued = False
        self._broken: GroupFailed | None = None
        self._said = Said(0)
        self._share = 0.0
        self._armed = False
        self._fresh = True
        self.backwards = 0
        self._looked: tuple[torch.Tensor, torch.Tensor] | None = None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._made, index))
            for index, parameter in enumerate(self.parameters)
        ]

    @property
    def layout(self) -> Layout:
        """Of the current step."""
        return self._buckets.layout

    @property
    def finite(self) -> bool:
        """Whether what this rank itself gave to the last step looks like numbers, or its parameters did
        not before: one is looked at, the smallest of those that backward reaches last."""
        if self._looked is None:
            return True
        gradient, parameter = self._looked
        return math.isfinite(float(gradient)) or not math.isfinite(float(parameter))

    @property
    def said_ready(self) -> int:
        """The epoch that the control vector named as built here, in the step in hand."""
        return self._said.ready

    @property
    def finished(self) -> tuple[bool, ...]:
        """Of the current step: which of `buffers` hold the sum over all ranks."""
        return self._buckets.sending.finished

    def begin_step(self) -> None:
        """Nothing of an earlier step is left in the buckets."""
        self._used = [False] * len(self.parameters)
        self._broken = None
        self._fresh = True
        self._buckets.sending.begin_step()

    def begin_part(self, group: Group, weight: float, last: bool, said: Said, share: float) -> None:
        """What comes next is a part of this weight; `said` goes with the last one. `share`: this rank's
        part of the step's samples, by which its statistics count."""
        self._group, self._weight, self._last, self._said = group, weight, last, said
        self._share = share
        for parameter in self.parameters:
            parameter.grad = None
        if self._fresh:
            self._fresh = False
            self._buckets.begin_step(group)
        for each in self._weights.values():
            each.fill_(weight)
        self._fired = [False] * len(self.parameters)
        self._waiting = [len(bucket.indices) for bucket in self.layout.buckets]
        self._queued = False
        self._armed = True
        self.backwards = 0

    def rest(self) -> None:
        """Gradients that are made from now on are ignored."""
        self._armed = False

    def finish(self) -> Sum:
        """Send what is left, wait for everything, and say what all have said.

        Raises:
            GroupFailed: not every bucket has come; `finished` says which have.
        """
        if self._broken is not None:
            raise self._broken
        self._send_full(everything=True)
        self._buckets.sending.finish(self._the_group())
        return self.understood()

    def understood(self) -> Sum:
        """What the control vector says, once its bucket is finished."""
        ranks = self._the_group().size
        return control.read(self.layout.control[: self._fixed], ranks, self._said.ready)

    def abandon(self) -> None:
        """The group is broken, and has been interrupted: nothing writes into the buckets after this.
        `finished` then says which had come."""
        if self._group is not None:
            self._buckets.sending.abandon(self._group)

    def complete(self) -> None:
        """Every bucket holds the sum: what this rank lacked has come from peers."""
        self._buckets.sending.complete()

    def install(self, total: Sum, planned: int) -> None:
        """Hand the averages to the parameters; `planned` samples were dealt for this step."""
        self._buckets.commit()
        correct = planned / total.weight if 0 < total.weight != planned else 1.0
        for bucket in self.layout.buckets:
            if correct != 1.0:
                bucket.flat[: sum(map(torch.Tensor.numel, bucket.views))].mul_(correct)
            for index, view in zip(bucket.indices, bucket.views, strict=True):
                self.parameters[index].grad = view if total.used[index] else None
                if not total.used[index]:
                    self._buckets.keep(index, view, self._the_group())
        if total.samples:
            for buffer, agreed in zip(self._averaged, self._statistics(), strict=True):
                buffer.copy_(agreed)

    def buffers(self) -> list[torch.Tensor]:
        """What a peer needs to have a bucket: the flat tensors, in order."""
        return buffers(self.layout)

    def owe_nothing(self) -> None:
        """This rank has taken another's state: what codecs left out of its own gradients is void."""
        self._buckets.owe_nothing()

    def close(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def _made(self, index: int, parameter: torch.Tensor) -> None:
        if not self._armed:
            return
        if self.backwards or self._fired[index]:
            raise ElasticError(
                "backward() ran twice in one pass of the loop: add the losses up and call it once"
            )
        if not self._queued:
            self._queued = True
            engine: Any = torch.autograd.Variable._execution_engine  # pyright: ignore
            engine.queue_callback(self._backward_over)
        gradient = parameter.grad
        if gradient is None:
            return
        if gradient.is_sparse:
            raise ElasticError("sparse gradients cannot be summed in buckets: use sparse=False")
        if gradient.requires_grad:
            gradient = gradient.detach()  # of a backward that can be differentiated again
        number, view = self._buckets.places[index]
        if self._used[index]:
            view.add_(gradient, alpha=self._weight)
        else:
            torch.mul(gradient, self._weight_of[index], out=view)
        self._writers.wrote(number)
        self._used[index] = self._fired[index] = True
        parameter.grad = None
        self._waiting[number] -= 1
        if self._last and not self._waiting[number]:
            self._send_full(everything=False)

    def _send_full(self, *, everything: bool) -> None:
        """Send full buckets, in order; with `everything` also those that lack gradients."""
        if self._broken is not None:
            return
        group, sending = self._the_group(), self._buckets.sending
        while (number := sending.sent) < len(self._waiting):
            if self._waiting[number] and not everything:
                return
            self._writers.join(number)
            self._fill_up(number)
            try:
                sending.send(group)
            except GroupFailed as failure:
                self._broken = failure
                if everything:
                    raise
                return

    def _fill_up(self, number: int) -> None:
        """What this rank has nothing to add to is zero, but for what it owes; the control vector goes
        with the last bucket."""
        bucket, carried = self.layout.buckets[number], self._buckets.carried
        for index, view in zip(bucket.indices, bucket.views, strict=True):
            if not self._used[index] or not self._said.counts:
                view.zero_()
        for index, view in zip(bucket.indices, bucket.views, strict=True):
            if index in carried:
                view.add_(carried[index])
        if number == len(self._waiting) - 1:
            self._look(number)
            self._speak()

    def _look(self, number: int) -> None:
        bucket = self.layout.buckets[number]
        own = [
            (view, self.parameters[index])
            for index, view in zip(bucket.indices, bucket.views, strict=True)
            if self._used[index] and self._said.counts
        ]
        self._looked = None
        if own:  # a GPU is not waited for here
            view, parameter = min(own, key=lambda each: each[0].numel())
            self._looked = view.sum(), parameter.detach().sum()

    def _speak(self) -> None:
        vector = self.layout.control
        used = self._used if self._said.counts else [False] * len(self.parameters)
        control.write(vector[: self._fixed], self._said, used)
        for buffer, target in zip(self._averaged, self._statistics(), strict=True):
            torch.mul(buffer, self._share, out=target)

    def _statistics(self) -> list[torch.Tensor]:
        """Where the averaged buffers lie in the control vector."""
        found: list[torch.Tensor] = []
        offset = self._fixed
        for buffer in self._averaged:
            found.append(self.layout.control[offset : offset + buffer.numel()].view_as(buffer))
            offset += buffer.numel()
        return found

    def _backward_over(self) -> None:
        self._queued = False
        self.backwards += 1
        self._ended()

    def _the_group(self) -> Group:
        if self._group is None:
            raise ElasticError("backward() outside of the loop over job.shards()")
        return self._group
