"""The loops over `job.shards`: batches dealt, fetched, handed out, whatever becomes of the members."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from shoal.elastic import randomness
from shoal.elastic.errors import ElasticError, Fenced
from shoal.elastic.joining.join import join
from shoal.elastic.ledger.deal import Part, Step, next_step, parts_of
from shoal.elastic.ledger.fetch import Fetch, Order
from shoal.elastic.membership import Membership
from shoal.elastic.presence import Presence, say
from shoal.elastic.terms import Terms, described
from shoal.elastic.training import Training
from shoal.elastic.view import View

__all__ = ["Loop", "Loops", "Shards"]


_CHECKED_LOOPS = 2
"""Schedulers are created before the first loop, or in the first epoch; later loops need not wait."""


@dataclass(frozen=True)
class Loop:
    """What one loop over `job.shards` was given; see there."""

    fetch: Fetch
    order: Order
    batch_size: int
    epochs: int
    micro_batch: int | None
    accumulate: int
    weight: Callable[[Any], float] | None


class Shards:
    """Each loop over it is a further pass over the data, as with a DataLoader."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class Loops:
    """Of one process. `under_way`: the script is in a loop, or this process is a member and the script
    about to begin its first: a step boundary will come; `exhausted`: the newest loop has handed out all
    its batches; `epoch`: that of the batch in hand.

    Calls in `changes` get each view, between two batches.
    """

    def __init__(
        self, training: Training, membership: Membership | None, presence: Presence, backend: str | None
    ) -> None:
        self.under_way = False
        self.exhausted = False
        self.epoch = 0
        self.changes: list[Callable[[View], None]] = []
        self._training = training
        self._membership = membership
        self._presence = presence
        self._backend = backend
        self.on_exhausted: Callable[[], object] = lambda: None
        self._begun = 0
        self._epochs_given = 0
        self._told_epoch = 0

    def enter(self, loop: Loop) -> None:
        """Before the first loop: become a member.

        Raises:
            ElasticError: the others were given something else, or the job cannot go on.
        """
        training, membership = self._training, self._membership
        training.objects.check_schedulers()  # takes a moment, for which members would wait later
        training.begin_loop(self._terms(loop), self._epochs_given)
        if membership is None:
            training.alone()
            training.before_first()
            return
        membership.groups.train_on(training.reducer.layout.device, self._backend)
        membership.start()
        self._join(membership)
        self.under_way = True
        randomness.seed(loop.order.seed * 65537 + membership.incarnation)

    def begin(self, loop: Loop) -> Iterator[Any]:
        """Hand out this worker's parts, one after the other.

        Raises:
            ElasticError: the loop before has not ended.
        """
        if self.under_way and self._begun:
            raise ElasticError(
                "a loop over job.shards() has not ended: two at a time would share the same samples out"
            )
        if 0 < self._begun < _CHECKED_LOOPS:
            self._training.objects.check_schedulers()
        self.under_way, self.exhausted = True, False
        first, self._epochs_given = self._epochs_given, self._epochs_given + loop.epochs
        self._training.begin_loop(self._terms(loop), first)
        self._begun += 1
        if self._begun == 2 and loop.epochs > 1:
            say(
                f"a second loop over job.shards(epochs={loop.epochs}): each goes through the data "
                f"{loop.epochs} times; in a loop over epochs leave epochs= out"
            )
        return self._guarded(loop)

    def _guarded(self, loop: Loop) -> Iterator[Any]:
        """Progress is expected only while the script is in the loop."""
        self._presence.expect(True)
        try:
            yield from self._parts(loop, self._epochs_given)
            self.exhausted = True
            self.on_exhausted()
            self._presence.at(self.epoch, 0, 0)  # what fails from here on does not fail on samples
        except GeneratorExit:
            self._training.break_off()
            raise
        finally:
            self.under_way = False
            self._presence.expect(False)

    def _parts(self, loop: Loop, end_epoch: int) -> Iterator[Any]:
        training = self._training
        parts: list[Part] = []
        while True:
            training.end_part()
            try:
                training.settle()
            except Fenced:
                assert self._membership is not None
                self._join(self._membership)
                continue
            self._changed()
            if training.hand.step is None:
                step = self._next(loop, end_epoch)
                if step is None:
                    if training.finish():
                        return
                    continue
                share = training.share(step)
                most = loop.micro_batch or training.largest
                parts = list(parts_of(step, share, most, loop.accumulate))
                training.begin_step(step, share[1] - share[0])
                self.epoch = step.epoch
            part = parts.pop(0)
            first, end = (part.first, part.end) if part.samples else _repeated(training.hand.step)
            self._presence.at(self.epoch, first, end)
            indices = loop.order.indices(self.epoch, first, end)
            # the mean over a sample given twice is that of the sample
            copies = 2 if len(indices) == 1 and training.objects.needs_pairs() else 1
            batch = loop.fetch([*indices] * copies)
            training.begin_part(part, _counts(loop, batch, part, copies))
            self._presence.progress()
            yield batch

    def _next(self, loop: Loop, end_epoch: int) -> Step | None:
        training, batch = self._training, loop.batch_size
        if training.behind:
            return None
        if (scaling := training.ways.scaling) is not None:
            scaling.world_is(training.size, training.applied)
            batch = scaling.policy.batch(batch, training.size)
        return next_step(training.cursor, loop.order.length, batch, end_epoch)

    def _join(self, membership: Membership) -> None:
        self._presence.expect(False)
        join(self._training, membership)
        self._presence.expect(True)
        self._changed()

    def _changed(self) -> None:
        """Call the script back with a view that is new to it."""
        group = self._training.group
        if group is not None and group.epoch != self._told_epoch:
            self._told_epoch = group.epoch
            for call in self.changes:
                call(group.view)

    def _terms(self, loop: Loop) -> Terms:
        training, order = self._training, loop.order
        objects = training.objects
        return Terms(
            self._begun, order.length, loop.batch_size, loop.epochs, order.seed, order.shuffle,
            loop.accumulate, *described(objects.models, objects.optimizers, objects.others),
            *training.ways.words,
        )  # fmt: skip


def _repeated(step: Step | None) -> tuple[int, int]:
    """A rank without samples runs the body on another's; it counts nothing."""
    assert step is not None
    return step.first, step.first + 1


def _counts(loop: Loop, batch: Any, part: Part, copies: int) -> float | None:
    if loop.weight is None:
        return None
    if not part.samples:
        return 0.0
    counts = float(loop.weight(batch))
    if not counts >= 0 or math.isinf(counts):
        raise ElasticError(f"weight= gave {counts:g} for a batch: it must be a number, and not below 0")
    return counts / copies
