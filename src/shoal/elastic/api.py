"""What a script sees: `init`, and the `Job` that it gives."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal

import torch

from shoal.elastic import embedded, environment, randomness
from shoal.elastic.allreduce.layout import BUCKET_BYTES
from shoal.elastic.codecs.catalogue import plan
from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.detect.progress import Where
from shoal.elastic.errors import ElasticError, Fenced, GroupFailed, Stopped
from shoal.elastic.joining.donor import Donor
from shoal.elastic.joining.join import join
from shoal.elastic.keeping import Keeper
from shoal.elastic.ledger.deal import Part, Step, next_step, parts_of
from shoal.elastic.ledger.fetch import Collate, Fetch, length_of
from shoal.elastic.ledger.order import Order
from shoal.elastic.local import LocalPlan
from shoal.elastic.membership import Membership
from shoal.elastic.optim.blocks import Rhythm
from shoal.elastic.optim.outer import Outer
from shoal.elastic.optim.policy import Scale
from shoal.elastic.terms import Terms, described
from shoal.elastic.training import Training
from shoal.elastic.view import Cursor, View

__all__ = ["Job", "init"]

_PROGRESS_SECONDS = 0.5
_MOST_ERROR = 500


def init(
    *,
    max_stall: float = 60.0,
    name: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    backend: str | None = None,
) -> Job:
    """Take part in the job that this process was started for; alone if it was started by hand.

    `max_stall`: seconds without progress after which a running worker counts as hung. `checkpoint`: a
    folder where the state is kept every `checkpoint_every` seconds, and taken up from; under `shoal run`
    it is in `$SHOAL_OUTPUT` unless another is given. `backend`: "gloo" or "nccl"; by default, and with
    "auto", what the parameters' devices allow.

    Raises:
        ElasticError: the surroundings contradict each other.
    """
    place = environment.find(os.environ) or embedded.under_torchrun(os.environ)
    if place is None:
        alone = Training(None, None, _say)
        return Job(alone, keeper=_keeper(checkpoint, checkpoint_every, alone, None))
    if checkpoint is None and place.kind == "platform" and (output := os.environ.get("SHOAL_OUTPUT")):
        checkpoint = Path(output) / "checkpoints"
    key: dict[str, str] = {"": ""}
    donor = Donor(place.host, lambda: key[""])
    membership = Membership(name or place.name, donor.address, place.contact, _say)
    training = Training(membership, donor, _say)
    guardian = _guard(place, membership, key, max_stall)
    keeper = _keeper(checkpoint, checkpoint_every, training, membership)
    return Job(training, membership, donor, guardian, keeper, backend)


@dataclass(frozen=True)
class _Loop:
    """What one loop over `job.shards` was given."""

    fetch: Fetch
    order: Order
    batch_size: int
    epochs: int
    micro_batch: int | None
    accumulate: int
    weight: Callable[[Any], float] | None


class _Shards:
    """Each loop over it is a further pass over the data, as with a DataLoader."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class Job:
    """The job, as one of its workers sees it. All methods belong to the thread that trains."""

    def __init__(
        self,
        training: Training,
        membership: Membership | None = None,
        donor: Donor | None = None,
        guardian: Guardian | None = None,
        keeper: Keeper | None = None,
        backend: str | None = None,
    ) -> None:
        self._training = training
        self._backend = backend
        self._keeper = keeper
        self._donor = donor
        self._membership = membership
        self._guardian = guardian
        self._changes: list[Callable[[View], None]] = []
        self._part: tuple[int, int] = (0, 0)
        self._epoch = 0
        self._loops = 0
        self._epochs_given = 0
        self._looping = False
        self._kept = torch.empty(0, dtype=torch.uint8)
        self._told = 0.0
        self._told_sick = False
        self._told_epoch = 0
        self._step_seconds = 0.0
        self._stepped_at = 0.0
        self._failed = False
        self._closed = False
        training.on_step.append(self._after_step)
        if keeper is not None:
            training.boundary.calls.append(keeper.look)
            training.before_first = keeper.load
        if guardian is not None:
            training.waiting = lambda waits: guardian.training(not waits)
        if membership is not None:
            self._watch_ends()

    # what training looks like

    @property
    def rank(self) -> int:
        """This worker's place among the members; the oldest is 0. It may change between batches."""
        return self._training.rank if self._training.group is not None else 0

    @property
    def size(self) -> int:
        """How many workers there are now."""
        return self._training.size if self._training.group is not None else 1

    @property
    def view(self) -> View | None:
        """Who takes part now; None before the first batch."""
        return self._training.group.view if self._training.group is not None else None

    @property
    def step(self) -> int:
        """How many steps this worker's parameters have taken."""
        return self._training.applied

    @property
    def committed(self) -> int:
        """The last step that every member is known to have applied."""
        return self._training.committed

    @property
    def stepped(self) -> bool:
        """Whether a step was applied in this pass of the loop: for what is to happen once a step."""
        return self._training.stepped

    @property
    def epoch(self) -> int:
        """The epoch of the batch in hand, from 0."""
        return self._epoch

    @property
    def cursor(self) -> Cursor:
        """Which samples have been used: all before it."""
        return self._training.cursor

    @property
    def late_samples(self) -> int:
        """With `min_contrib`: how many samples were passed over so far, their workers being late."""
        return self._training.late_samples

    # what a script does

    def wrap(
        self,
        *things: Any,
        codec: str | None = None,
        bucket: int | str | None = None,
        min_contrib: int | None = None,
        mode: Literal["sync", "local"] = "sync",
        sync_every: int | None = None,
        outer: Outer | None = None,
        blocks: int = 1,
        delay: int = 0,
        alpha: float = 0.0,
    ) -> Any:
        """Follow models, optimizers, and whatever else has a state (schedulers, scalers, averages).

        The same objects are given back, as a tuple if there are several. Models must have the same
        parameters on every worker; their values are taken from the others.

        `codec`: how gradients travel: "none" (the default), "bf16", "fp16" (each also with "+ef"),
        "powersgd:4", or "auto": what is measured to be fastest here, and "none" unless that is worth its
        loss of precision. `bucket`: bytes of gradients that are sent together (25 MiB), or "auto".

        `min_contrib`: a step is made of the gradients of the first so many workers that have theirs; who
        is late has no part in it, and its samples are passed over (`late_samples`): pace is bought with
        samples. By default all are waited for.

        `mode="local"`: workers take `sync_every` steps alone, each on its part of the batches; then the
        mean of what they have learned is handed to the `outer` optimizer (by default DiLoCo's; AVERAGE
        is local SGD). In a stream, each of `blocks` blocks of parameters is exchanged at another step,
        its result used `delay` steps later, a worker keeping `alpha` of its own.

        Raises:
            ElasticError: one cannot be followed.
        """
        if self._training.begun:
            raise ElasticError("job.wrap() after job.shards(): wrap everything before the first loop")
        for thing in things:
            self._training.objects.add(thing)
        local = _local_plan(mode, sync_every, outer, blocks, delay, alpha)
        if local is not None and (codec is not None or bucket is not None):
            raise ElasticError("codec= and bucket= are of gradients: with mode='local' none are sent")
        if local is not None:
            self._training.use_plan(local)
        if min_contrib is not None and min_contrib < 1:
            raise ElasticError(f"min_contrib must be at least 1, not {min_contrib}")
        if min_contrib is not None:
            self._training.wait_for(min_contrib)
        if codec is not None or bucket is not None:
            self._training.use_plan(plan(codec or "none", BUCKET_BYTES if bucket is None else bucket))
        return things[0] if len(things) == 1 else things

    def shards(
        self,
        dataset: Any,
        batch_size: int,
        epochs: int = 1,
        seed: int = 0,
        *,
        shuffle: bool = True,
        micro_batch: int | None = None,
        accumulate: int = 1,
        collate: Collate | None = None,
        scale: Scale | None = None,
        weight: Callable[[Any], float] | None = None,
    ) -> Iterable[Any]:
        """This worker's parts of the batches of `epochs` passes over the dataset.

        Each loop over what is returned goes on where the one before ended: a script may loop once over
        all epochs, or once an epoch. One that leaves a loop early has to do so on every worker.

        `batch_size` is the batch of all workers together. `micro_batch` caps what one pass of the loop
        body is handed (by default the most that it was ever handed); `accumulate`: the script itself
        calls `optimizer.step()` in every so many passes only, and divides its loss by that. `scale`: let
        the batch, and the learning rate with it, grow with the number of workers. `weight`: by how much
        what is handed out counts, where the loss is a mean over something else than samples: for one
        over tokens, say, `weight=lambda batch: int((batch["labels"] != -100).sum())`.

        Raises:
            ElasticError: bad input, or the job cannot go on; each says why.
        """
        whole = {"batch_size": batch_size, "epochs": epochs, "accumulate": accumulate}
        if micro_batch is not None:
            whole["micro_batch"] = micro_batch
        for name, value in whole.items():
            if not isinstance(value, int):  # pyright: ignore - scripts seldom have types
                raise ElasticError(f"{name} must be a whole number, not {value!r}")
            if value < 1:
                raise ElasticError(f"{name} must be at least 1, not {value}")
        order = Order(length_of(dataset), seed, shuffle)
        loop = _Loop(Fetch(dataset, collate), order, batch_size, epochs, micro_batch, accumulate, weight)
        training = self._training
        training.scale(scale, batch_size)
        training.reducer  # noqa: B018 - whatever is wrong with what was wrapped is said here
        if training.group is None:
            training.begin_loop(self._terms(loop), self._epochs_given)
            self._enter(seed)
        return _Shards(lambda: self._begin(loop))

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over all workers, in place; each must call it in the same pass of the loop.

        Raises:
            ElasticError: the workers have changed meanwhile, and not all of them will call it.
        """
        training = self._training
        while training.group is not None and training.size > 1:
            kept = self._keep(tensor)
            # a view is not what an operation that never ends may go on writing into
            target = tensor if tensor.is_contiguous() and not tensor._is_view() else tensor.clone()
            try:
                training.group.wait(training.group.sum(target))
            except GroupFailed:
                if training.current_group.stuck and target is tensor:
                    tensor.set_(torch.empty_like(tensor))  # pyright: ignore
                tensor.copy_(kept)
                training.recover()
                continue
            if target is not tensor:
                tensor.copy_(target)
            break
        return tensor

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy, in memory that the next call uses again."""
        if self._kept.numel() < tensor.nbytes or self._kept.device != tensor.device:
            self._kept = torch.empty(tensor.nbytes, dtype=torch.uint8, device=tensor.device)
        return self._kept[: tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)

    def save(self) -> None:
        """Keep the state of the last step now, rather than when it is time; call it on every worker.

        Raises:
            ElasticError: `elastic.init` was given no folder for checkpoints.
        """
        if self._keeper is None:
            raise ElasticError("there is no folder for checkpoints: elastic.init(checkpoint=...)")
        if self.rank == 0 and self._training.is_local:
            self._keeper.soon()
        elif self.rank == 0:
            self._keeper.stage()

    def load(self) -> bool:
        """Take up the newest checkpoint before the first batch; `shards` does this by itself.

        Raises:
            ElasticError: there is no folder, or what is in it cannot be used.
        """
        if self._keeper is None:
            raise ElasticError("there is no folder for checkpoints: elastic.init(checkpoint=...)")
        return self._keeper.load()

    def on_change(self, call: Callable[[View], None]) -> None:
        """Have `call(view)` called, between two batches, whenever the members have changed."""
        self._changes.append(call)

    def resize(self, size: int) -> None:
        """Ask for another number of workers."""
        if size < 1:
            raise ElasticError(f"a job has at least one worker, not {size}")
        if self._membership is not None:
            self._membership.insist({"type": "resize", "size": size})

    def close(self) -> None:
        """Take no part any more. Done at the end of the process by itself."""
        if self._closed:
            return
        self._closed = True
        if self._keeper is not None:
            self._keeper.close()
        membership = self._membership
        if membership is not None and not self._failed:
            training = self._training
            message = {"type": "done", "step": training.applied, "cursor": training.cursor.to_wire()}
            if membership.leaving:
                message = {"type": "left", "step": training.applied}
            membership.send(message)
        if self._guardian is not None:
            self._guardian.training(False)
        if membership is not None:
            membership.close()
        if self._donor is not None:
            self._donor.close()
        if self._guardian is not None:
            self._guardian.close()

    # inside

    def _enter(self, seed: int) -> None:
        if self._membership is None:
            self._training.alone()
            self._training.before_first()
            return
        self._membership.groups.train_on(self._training.reducer.layout.device, self._backend)
        self._membership.start()
        self._join(self._membership)
        randomness.seed(seed * 65537 + self._membership.incarnation)

    def _join(self, membership: Membership) -> None:
        if self._guardian is not None:
            self._guardian.training(False)
        join(self._training, membership)
        if self._guardian is not None:
            self._guardian.training(True)
        self._changed()

    def _terms(self, loop: _Loop) -> Terms:
        training, order = self._training, loop.order
        objects = training.objects
        return Terms(
            self._loops, order.length, loop.batch_size, loop.epochs, order.seed, order.shuffle,
            loop.accumulate, *described(objects.models, objects.optimizers, objects.others),
            training.travel, str(training.scaling.policy) if training.scaling is not None else "kept",
        )  # fmt: skip

    def _begin(self, loop: _Loop) -> Iterator[Any]:
        if self._looping:
            raise ElasticError(
                "a loop over job.shards() has not ended: two at a time would share the same samples out"
            )
        self._looping = True
        first, self._epochs_given = self._epochs_given, self._epochs_given + loop.epochs
        self._training.begin_loop(self._terms(loop), first)
        self._loops += 1
        return self._guarded(loop)

    def _guarded(self, loop: _Loop) -> Iterator[Any]:
        """Hand out parts; progress is expected only while the script is in the loop."""
        self._expect(True)
        try:
            yield from self._parts(loop, self._epochs_given)
            self._at(0, 0)  # what fails from here on does not fail on samples
        except GeneratorExit:
            self._training.break_off()
            raise
        finally:
            self._looping = False
            self._expect(False)

    def _expect(self, on: bool) -> None:
        if self._guardian is not None:
            self._guardian.training(on)

    def _parts(self, loop: _Loop, end_epoch: int) -> Iterator[Any]:
        training = self._training
        parts: list[Any] = []
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
                self._epoch = step.epoch
            part = parts.pop(0)
            first, end = (part.first, part.end) if part.samples else self._repeated(training)
            self._at(first, end)
            batch = loop.fetch(loop.order.indices(self._epoch, first, end))
            training.begin_part(part, _counts(loop, batch, part))
            self._progress()
            yield batch

    def _next(self, loop: _Loop, end_epoch: int) -> Step | None:
        if self._training.behind:
            return None
        training, batch = self._training, loop.batch_size
        if training.scaling is not None:
            training.scaling.world_is(training.size, training.applied)
            batch = training.scaling.policy.batch(batch, training.size)
        return next_step(training.cursor, loop.order.length, batch, end_epoch)

    def _at(self, first: int, end: int) -> None:
        """The script is handed these samples now; none if both are the same."""
        self._part = (first, end)
        if self._guardian is not None:
            self._guardian.at(Where(self._training.applied + 1, self._epoch, first, end))

    @staticmethod
    def _repeated(training: Training) -> tuple[int, int]:
        """Who has no sample of its own runs its body on another's; it counts nothing."""
        assert training.hand.step is not None
        return training.hand.step.first, training.hand.step.first + 1

    def _changed(self) -> None:
        """Tell the script of a view that it has not been told of."""
        view = self.view
        if view is not None and view.epoch != self._told_epoch:
            self._told_epoch = view.epoch
            for call in self._changes:
                call(view)

    def _after_step(self) -> None:
        if not self._training.reducer.finite and not self._told_sick:
            self._warn_of_gradients()
        now = time.monotonic()
        if self._stepped_at:
            taken = now - self._stepped_at
            self._step_seconds = (
                taken if not self._step_seconds else (0.9 * self._step_seconds + 0.1 * taken)
            )
        self._stepped_at = now

    def _warn_of_gradients(self) -> None:
        """Once, on the worker they come from. A scaler meets such steps now and then, and skips them."""
        self._told_sick = True
        if any(isinstance(each, torch.amp.GradScaler) for each in self._training.objects.others):
            return
        first, end = self._part
        _say(
            f"the gradients that this worker made in step {self._training.applied}, of the samples at "
            f"{first} to {end - 1} of epoch {self._epoch}'s order, are not finite, and all workers have "
            "learned from them: look at the data and the loss, or give a GradScaler to job.wrap"
        )

    def _progress(self) -> None:
        if self._guardian is not None:
            self._guardian.touch()
        now = time.monotonic()
        if self._membership is None or now - self._told < _PROGRESS_SECONDS:
            return
        self._told = now
        training = self._training
        self._membership.send({
            "type": "progress",
            "step": training.committed,
            "cursor": training.committed_cursor.to_wire(),
            "step_seconds": round(self._step_seconds, 6),
            "samples": training.hand.planned,
            "world": training.size,
        })  # fmt: skip

    def _watch_ends(self) -> None:
        """How this process may end: told to, of its own error, or because it is through."""
        atexit.register(self.close)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._told_to_go)
        previous = sys.excepthook

        def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._say_failed(kind, error)
            previous(kind, error, trace)

        sys.excepthook = failed

    def _told_to_go(self, number: int, frame: FrameType | None) -> None:
        assert self._membership is not None
        self._membership.leaving = True
        if not self._looping:  # there is no step boundary to wait for
            raise SystemExit(0)

    def _say_failed(self, kind: type[BaseException], error: BaseException) -> None:
        self._failed = True
        if self._membership is None:
            return
        message = {
            "type": "failed",
            "step": self._training.applied + 1,
            "samples": [list(self._part)] if self._part != (0, 0) else [],
            "epoch_of_data": self._epoch,
            "error": f"{kind.__name__}: {error}"[:_MOST_ERROR],
        }
        self._membership.send(message)


def _counts(loop: _Loop, batch: Any, part: Part) -> float | None:
    if loop.weight is None:
        return None
    if not part.samples:
        return 0.0
    counts = float(loop.weight(batch))
    if not counts >= 0 or math.isinf(counts):
        raise ElasticError(f"weight= gave {counts:g} for a batch: it must be a number, and not below 0")
    return counts


def _local_plan(
    mode: str, every: int | None, outer: Outer | None, blocks: int, delay: int, alpha: float
) -> LocalPlan | None:
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


def _keeper(
    folder: str | Path | None, every: float, training: Training, membership: Membership | None
) -> Keeper | None:
    return Keeper(Path(folder), every, training, membership, _say) if folder is not None else None


def _guard(
    place: environment.Place, membership: Membership, key: dict[str, str], max_stall: float
) -> Guardian:
    contact = None
    deadline = time.monotonic() + 60.0
    while contact is None and time.monotonic() < deadline:
        contact = place.contact()
        if contact is None:
            time.sleep(0.05)
    if contact is not None and contact.ended and not contact.failed:
        _say(f"nothing to do: {contact.ended}")
        raise SystemExit(0)
    if contact is not None and contact.ended:
        raise Stopped(contact.ended)
    if contact is None:
        raise ElasticError("the job's coordinator has not shown up for a minute: see its log")
    key[""] = contact.key

    def find() -> str | None:
        found = place.contact()
        return found.address or None if found is not None else None

    guardian = Guardian(
        name=membership.name, key=contact.key, find=find, max_stall_seconds=max_stall,
        address_file=place.file,
    )  # fmt: skip
    guardian.training(False)
    membership.on_joined = guardian.joined
    return guardian


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"elastic: {text}", file=sys.stderr, flush=True)  # noqa: T201
