"""Gradient hooks that fill buckets and send them while backward goes on.

In the parts of a step before the last, a gradient is weighed and added to its place in the bucket. In
the last part each bucket is sent as soon as it is full, in the same order on every rank; when backward
ends, the gradients left over are taken as they are, everything is awaited, and `parameter.grad` is the
average over the samples of the whole step: a view into the bucket.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shoal.elastic.allreduce import control
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group, Pending
from shoal.elastic.allreduce.layout import BUCKET_BYTES, Layout, plan
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
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """`averaged`: fp32 buffers whose mean over the samples is agreed on with each step."""
        self.parameters = list(parameters)
        self._averaged = list(averaged)
        self._ended = ended
        self._statistics = sum(each.numel() for each in self._averaged)
        extra = control.FIXED + len(self.parameters) + self._statistics
        self.layout: Layout = plan([p.data for p in self.parameters], extra, bucket_bytes)
        self._waiting = [len(bucket.indices) for bucket in self.layout.buckets]
        self._used = [False] * len(self.parameters)
        self._fired = [False] * len(self.parameters)
        self._pending: list[Pending | None] = []
        self._finished: list[bool] = []
        self._group: Group | None = None
        self._weight = 1.0
        self._last = True
        self._queued = False
        self._broken: GroupFailed | None = None
        self._said = Said(0)
        self._share = 0.0
        self._armed = False
        self.backwards = 0
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(index))
            for index, parameter in enumerate(self.parameters)
        ]

    @property
    def finished(self) -> tuple[bool, ...]:
        """Of the current step: which buckets hold the sum over all ranks."""
        return tuple(self._finished) or (False,) * len(self.layout.buckets)

    def begin_step(self) -> None:
        """Nothing of an earlier step is left in the buckets."""
        self._used = [False] * len(self.parameters)
        self._finished = []
        self._pending = []
        self._broken = None

    def begin_part(self, group: Group, weight: float, last: bool, said: Said, share: float) -> None:
        """What comes next is a part of this weight; `said` goes with the last one. `share`: this rank's
        part of the step's samples, by which its statistics count."""
        self._group, self._weight, self._last, self._said = group, weight, last, said
        self._share = share
        self._fired = [False] * len(self.parameters)
        self._waiting = [len(bucket.indices) for bucket in self.layout.buckets]
        self._queued = False
        self._armed = True
        self.backwards = 0
        for parameter in self.parameters:
            parameter.grad = None

    def rest(self) -> None:
        """Gradients that are made from now on are nobody's business."""
        self._armed = False

    def finish(self) -> Sum:
        """Send what is left, wait for everything, and say what all have said.

        Raises:
            GroupFailed: not every bucket has come; `finished` tells which have.
        """
        if self._broken is not None:
            raise self._broken
        self._launch_ready(everything=True)
        group = self._the_group()
        if not self.layout.control_rides:
            self._pending.append(group.sum(self.layout.control))
            self._finished.append(False)
        for number, pending in enumerate(self._pending):
            if pending is not None:
                group.wait(pending)
            self._finished[number] = True
            self._pending[number] = None
        return self.understood()

    def understood(self) -> Sum:
        """What the control vector says, once its bucket is finished."""
        fixed = control.FIXED + len(self.parameters)
        return control.read(self.layout.control[:fixed], self._the_group().size, self._said.ready)

    def abandon(self) -> None:
        """The group is broken, and has been interrupted: nothing writes into the buckets after this.
        `finished` then tells which had come all the same."""
        group = self._group
        for number, pending in enumerate(self._pending):
            if pending is not None and group is not None:
                with contextlib.suppress(GroupFailed):
                    group.wait(pending)
                    self._finished[number] = True
            self._pending[number] = None

    def complete(self) -> None:
        """Every bucket holds the sum: what this rank lacked has come from peers."""
        self._finished = [True] * len(self.buffers())
        self._pending = [None] * len(self._finished)

    def install(self, total: Sum, planned: int) -> None:
        """Hand the averages to the parameters; `planned` samples were dealt for this step."""
        correct = planned / total.samples if 0 < total.samples != planned else 1.0
        for bucket in self.layout.buckets:
            if correct != 1.0:
                bucket.flat.mul_(correct)
            for index, view in zip(bucket.indices, bucket.views, strict=True):
                self.parameters[index].grad = view if total.used[index] else None
        offset = control.FIXED + len(self.parameters)
        for buffer in self._averaged:
            part = self.layout.control[offset : offset + buffer.numel()].view_as(buffer)
            if total.samples:
                buffer.copy_(part)
            offset += buffer.numel()

    def buffers(self) -> list[torch.Tensor]:
        """What a peer needs to have a bucket: the flat tensors, in order."""
        flats = [bucket.flat for bucket in self.layout.buckets]
        return flats if self.layout.control_rides else [*flats, self.layout.control]

    def close(self) -> None:
        """Take the hooks away."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, index: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            if self._armed:
                self._made(index, parameter)

        return hook

    @torch.no_grad()
    def _made(self, index: int, parameter: torch.Tensor) -> None:
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
        number, position = self.layout.place[index]
        view = self.layout.buckets[number].views[position]
        if self._used[index]:
            view.add_(gradient, alpha=self._weight)
        else:
            torch.mul(gradient, self._weight, out=view)
        self._used[index] = self._fired[index] = True
        parameter.grad = None
        self._waiting[number] -= 1
        if self._last and not self._waiting[number]:
            self._launch_ready(everything=False)

    def _launch_ready(self, *, everything: bool) -> None:
        """Send full buckets, in order; with `everything` also those that lack gradients."""
        if self._broken is not None:
            return
        group = self._the_group()
        buckets = self.layout.buckets
        while len(self._pending) < len(buckets):
            number = len(self._pending)
            if self._waiting[number] and not everything:
                return
            self._complete(number)
            try:
                self._pending.append(group.sum(buckets[number].flat))
                self._finished.append(False)
            except GroupFailed as failure:
                self._broken = failure
                if everything:
                    raise
                return

    def _complete(self, number: int) -> None:
        """What this rank has nothing to add to is zero; the control vector goes with the last bucket."""
        bucket = self.layout.buckets[number]
        for index, view in zip(bucket.indices, bucket.views, strict=True):
            if not self._used[index] or not self._said.samples:
                view.zero_()
        if number == len(self.layout.buckets) - 1:
            self._speak()

    def _speak(self) -> None:
        fixed = control.FIXED + len(self.parameters)
        used = self._used if self._said.samples else [False] * len(self.parameters)
        control.write(self.layout.control[:fixed], self._said, used)
        offset = fixed
        for buffer in self._averaged:
            target = self.layout.control[offset : offset + buffer.numel()].view_as(buffer)
            torch.mul(buffer, self._share, out=target)
            offset += buffer.numel()

    def _backward_over(self) -> None:
        self._queued = False
        self.backwards += 1
        self._ended()

    def _the_group(self) -> Group:
        if self._group is None:
            raise ElasticError("backward() outside of the loop over job.shards()")
        return self._group
