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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from shoal.elastic.allreduce import control
from shoal.elastic.allreduce.arrangement import Arrangement
from shoal.elastic.allreduce.backup import Backup, Result
from shoal.elastic.allreduce.control import Said, Sum
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.allreduce.layout import Layout
from shoal.elastic.allreduce.sending import buffers
from shoal.elastic.allreduce.streams import Writers
from shoal.elastic.codecs.tuner import Plan
from shoal.elastic.errors import ElasticError, GroupFailed
from shoal.elastic.optim.adascale import contribution, square_norm

__all__ = ["Enough", "Reducer"]


@dataclass(frozen=True)
class Enough:
    """A step goes on with the gradients of so many `ranks`. `ready`, called by any thread: the epoch
    whose group is built here, for a rank that is late says it too."""

    ranks: int
    ready: Callable[[], int]


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
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.perf_counter,
        enough: Enough | None = None,
    ) -> None:
        """`averaged`: fp32 buffers whose mean over the samples is agreed on with each step. `plan`: how
        buckets may travel; `say` is told what was chosen of it. `enough`: not every rank is waited
        for."""
        self.parameters = list(parameters)
        self._averaged = list(averaged)
        self._ended = ended
        self._clock = clock
        self._enough = enough
        self._backup: Backup | None = None
        self._fixed = control.FIXED + len(self.parameters)
        # with something to measure, a duration is said too
        self._timed = plan.measures
        extra = self._fixed + sum(each.numel() for each in self._averaged) + self._timed
        self._arrangement = Arrangement([p.data for p in self.parameters], extra, plan, say)
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
        self._began = self._seconds = 0.0
        self.backwards = 0
        self.measures_noise = False
        """Whether AdaScale wants to know how much this rank's gradient differs from others'."""
        self._square = 0.0
        self._looked: tuple[torch.Tensor, torch.Tensor] | None = None
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(functools.partial(self._made, index))
            for index, parameter in enumerate(self.parameters)
        ]

    @property
    def layout(self) -> Layout:
        """Of the current step."""
        return self._arrangement.layout

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
        """The epoch whose group was said to be built here, in the step in hand."""
        return self._said.ready

    @property
    def late(self) -> bool:
        """Whether the others go on without this rank in the step that is to begin."""
        return self._backup is not None and self._backup.late

    @property
    def kept(self) -> bool:
        """Whether what others made of the step that is to begin is here, whatever becomes of them."""
        return self._backup is not None and self._backup.kept

    @property
    def finished(self) -> tuple[bool, ...]:
        """Of the current step: which of `buffers` hold the sum over all ranks."""
        return self._arrangement.sending.finished

    def begin_step(self) -> None:
        """Nothing of an earlier step is left in the buckets."""
        self._used = [False] * len(self.parameters)
        self._square = 0.0
        self._broken = None
        self._fresh = True
        self._arrangement.sending.begin_step()

    def begin_part(self, group: Group, weight: float, last: bool, said: Said, share: float) -> None:
        """What comes next is a part of this weight; `said` goes with the last one. `share`: this rank's
        part of the step's samples, by which its statistics count."""
        self._group, self._weight, self._last, self._said = group, weight, last, said
        self._share = share
        for parameter in self.parameters:
            parameter.grad = None
        if self._fresh:
            self._fresh = False
            self._arrangement.begin_step(group)
            self._back_up(group)
        for each in self._weights.values():
            each.fill_(weight)
        self._fired = [False] * len(self.parameters)
        self._waiting = [len(bucket.indices) for bucket in self.layout.buckets]
        self._queued = False
        self._armed = True
        self.backwards = 0
        self._began = self._clock()

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
        group, backup = self._the_group(), self._backup
        result = backup.meet(self._said.place) if backup is not None else None
        if result is None:
            self._send_full(everything=True)
            self._arrangement.sending.finish(group)
        else:
            self._take(result)
        if backup is not None:
            backup.advance()
        if self._arrangement.measures:
            self._seconds = self._clock() - self._began
            self._arrangement.record(float(self.layout.control[-1]), group)
        return self.understood()

    def understood(self) -> Sum:
        """What the control vector says, once its bucket is finished."""
        ranks = self._the_group().size
        return control.read(self.layout.control[: self._fixed], ranks, self._said.ready)

    def abandon(self) -> None:
        """The group is broken, and has been interrupted: nothing writes into the buckets after this.
        `finished` then tells which had come all the same."""
        if self._backup is not None:
            self._backup.close()
            self._backup = None
        if self._group is not None:
            self._arrangement.sending.abandon(self._group)

    def average_square(self) -> float:
        """The squared norm of the average gradient, after `install`: the same number on every rank."""
        return sum(float(square_norm(bucket.views)) for bucket in self.layout.buckets)

    def complete(self) -> None:
        """Every bucket holds the sum: what this rank lacked has come from peers."""
        self._arrangement.sending.complete()

    def install(self, total: Sum, planned: int) -> None:
        """Hand the averages to the parameters; `planned` samples were dealt for this step."""
        self._arrangement.commit()
        correct = planned / total.weight if 0 < total.weight != planned else 1.0
        for bucket in self.layout.buckets:
            if correct != 1.0:
                bucket.flat[: sum(map(torch.Tensor.numel, bucket.views))].mul_(correct)
            for index, view in zip(bucket.indices, bucket.views, strict=True):
                self.parameters[index].grad = view if total.used[index] else None
                if not total.used[index]:
                    self._arrangement.keep(index, view, self._the_group())
        if total.samples:
            present = total.samples / planned  # by samples, however much each of them counts
            for buffer, agreed in zip(self._averaged, self._statistics(), strict=True):
                buffer.copy_(agreed if present == 1.0 else agreed / present)

    def buffers(self) -> list[torch.Tensor]:
        """What a peer needs to have a bucket: the flat tensors, in order."""
        return buffers(self.layout)

    def owe_nothing(self) -> None:
        """This rank has taken another's state: what codecs left out of its own gradients is void."""
        self._arrangement.owe_nothing()

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
        number, view = self._arrangement.places[index]
        if self._used[index]:
            view.add_(gradient, alpha=self._weight)
        else:
            torch.mul(gradient, self._weight_of[index], out=view)
        self._writers.wrote(number)
        self._used[index] = self._fired[index] = True
        parameter.grad = None
        self._waiting[number] -= 1
        if self._last and self._backup is None and not self._waiting[number]:
            self._send_full(everything=False)

    def _back_up(self, group: Group) -> None:
        """Where not every rank is waited for, nothing is sent before it is known who is in the step."""
        if self._backup is not None and self._backup.group is not group:
            self._backup.close()
            self._backup = None
        enough = self._enough
        if enough is not None and self._backup is None and group.size > enough.ranks:
            device = self.layout.device
            self._backup = Backup(group, enough.ranks, self._zeros, enough.ready, device)

    def _zeros(self, said: Said) -> list[torch.Tensor]:
        """What `buffers` gives, of a rank that has nothing to add."""
        found = [torch.zeros_like(each) for each in self.buffers()]
        vector = found[-1][-self.layout.control.numel() :]
        control.write(vector[: self._fixed], said, [False] * len(self.parameters))
        return found

    def _take(self, result: Result) -> None:
        """The step is made of others' gradients."""
        for flat, sums in zip(self.buffers(), result.sums, strict=True):
            flat.copy_(sums)
            if sums.is_cuda:  # it was made on another stream, whose memory it goes back to
                sums.record_stream(torch.cuda.current_stream(sums.device))
        self._said = result.said
        self._arrangement.sending.complete()

    def _send_full(self, *, everything: bool) -> None:
        """Send full buckets, in order; with `everything` also those that lack gradients."""
        if self._broken is not None:
            return
        group, sending = self._the_group(), self._arrangement.sending
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
        bucket, carried = self.layout.buckets[number], self._arrangement.carried
        for index, view in zip(bucket.indices, bucket.views, strict=True):
            if not self._used[index] or not self._said.counts:
                view.zero_()
        if self.measures_noise:
            self._square += float(square_norm(bucket.views))
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
        if self.measures_noise and self._said.samples and self._share > 0:
            own = contribution(self._square, self._share, self._said.samples)
            self._said = replace(self._said, noise=own, noisy=True)
        control.write(vector[: self._fixed], self._said, used)
        for buffer, target in zip(self._averaged, self._statistics(), strict=True):
            torch.mul(buffer, self._share, out=target)
        if self._timed:
            vector[-1] = self._seconds

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
