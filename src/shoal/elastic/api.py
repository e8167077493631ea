"""What a script sees: `init`, and the `Job` that it gives."""

# torch's own types are partial
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import torch

from shoal.elastic import environment
from shoal.elastic.allreduce.layout import BUCKET_BYTES
from shoal.elastic.codecs.catalogue import plan
from shoal.elastic.detect.guardian import Guardian
from shoal.elastic.errors import ElasticError, GroupFailed
from shoal.elastic.joining.donor import Donor
from shoal.elastic.keeping import Keeper
from shoal.elastic.leaving import leave
from shoal.elastic.ledger.fetch import Collate, Fetch, Order, length_of
from shoal.elastic.local import local_plan
from shoal.elastic.loops import Loop, Loops, Shards
from shoal.elastic.membership import Membership
from shoal.elastic.optim.local import Outer
from shoal.elastic.optim.policy import Scale
from shoal.elastic.presence import Presence, say
from shoal.elastic.training import Training
from shoal.elastic.view import Cursor, View

__all__ = ["Job", "Summing", "init"]


class Summing:
    """Of one process. What is summed is kept until the sum is there, in memory that is used again."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._kept = torch.empty(0, dtype=torch.uint8)

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        """In place; see `Job.allreduce`."""
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
        if self._kept.numel() < tensor.nbytes or self._kept.device != tensor.device:
            self._kept = torch.empty(tensor.nbytes, dtype=torch.uint8, device=tensor.device)
        return self._kept[: tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)


_REMOVED = {
    "min_contrib": "every step waits for all workers",
    "blocks": "mode='local' exchanges all parameters at once",
    "delay": "mode='local' uses the result of an exchange at once",
    "alpha": "mode='local' takes the result of an exchange as it is",
}
"""Options of earlier versions, and what holds in their stead."""


_ORDER = (
    "the order is a function of seed and epoch alone, so that every sample counts once whatever the "
    "number of workers"
)
_REFUSED = {
    "sampler": f"{_ORDER}; choose, repeat or weight samples in the dataset (torch.utils.data.Subset)",
    "batch_sampler": f"{_ORDER}; sort or group samples in the dataset, with shuffle=False",
    "generator": f"{_ORDER}; give a seed",
    "drop_last": "a smaller last batch counts by its samples (or cut the dataset)",
    "collate_fn": "it is called collate=",
    "num_workers": "samples are read in the worker's own process",
}
"""Options of a DataLoader, and what to do in their stead."""


def init(
    *,
    max_stall: float = 60.0,
    name: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 30.0,
    load_from: str | Path | None = None,
    backend: str | None = None,
) -> Job:
    """Take part in the job that this process was started for; alone if it was started by hand.

    `max_stall`: seconds without progress after which a running worker counts as hung. `checkpoint`: a
    folder where the state is kept every `checkpoint_every` seconds and at the end of each loop, and
    taken up from; under `shoal run` a relative folder is one in `$SHOAL_OUTPUT`. `load_from`: the
    folder of another job's checkpoints: this job goes on from the newest of them while it has none of
    its own. `backend`: "gloo" or
    "nccl"; by default, and with "auto", what the parameters' devices allow.

    Raises:
        ElasticError: the surroundings contradict each other.
    """
    place, folder = environment.place(), environment.checkpoints_in(checkpoint)
    source = Path(load_from) if load_from is not None else None
    if source is not None and folder is None:
        raise ElasticError("load_from= needs a folder for the job's own checkpoints: checkpoint=")
    if place is None:
        alone = Training(None, None, say)
        return Job(alone, keeper=_keeper(folder, checkpoint_every, source, alone, None))
    key = ""
    donor = Donor(place.host, lambda: key)
    membership = Membership(name or place.name, donor.address, place.contact, say)
    training = Training(membership, donor, say)
    guardian, key = environment.guard(place, membership, max_stall)
    keeper = _keeper(folder, checkpoint_every, source, training, membership)
    return Job(training, membership, donor, guardian, keeper, backend)


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
        self._keeper = keeper
        self._donor = donor
        self._membership = membership
        self._guardian = guardian
        self._presence = Presence(training, membership, guardian)
        self._loops = Loops(training, membership, self._presence, backend)
        self._summing = Summing(training)
        self._closed = False
        if keeper is not None:
            training.boundary.calls.append(keeper.look)
            training.before_first = keeper.load
            self._loops.on_exhausted = keeper.save_last
            self._presence.before_failure = self._settle
        if membership is not None:
            atexit.register(self.close)
            self._presence.watch_ends(self._told_to_go)

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
        """The current members; None before the first batch."""
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
        return self._loops.epoch

    @property
    def cursor(self) -> Cursor:
        """Which samples have been used: all before it."""
        return self._training.cursor

    # what a script does

    def wrap(
        self,
        *things: Any,
        codec: str | None = None,
        bucket: int | None = None,
        mode: Literal["sync", "local"] = "sync",
        sync_every: int | None = None,
        outer: Outer | None = None,
        **removed: Any,
    ) -> Any:
        """Follow models, optimizers, and whatever else has a state (schedulers, scalers, averages).

        The same objects are given back, as a tuple if there are several. Models must have the same
        parameters on every worker; their values are taken from the others.

        `codec`: how gradients are compressed: "none" (the default), "bf16", "fp16" (each also with
        "+ef"), or "powersgd:4". `bucket`: bytes of gradients that are sent together (25 MiB).

        `mode="local"`: workers take `sync_every` steps alone, each on its part of the batches; then the
        mean of what they have learned is handed to the `outer` optimizer (by default DiLoCo's; AVERAGE
        is local SGD).

        Raises:
            ElasticError: one cannot be followed.
        """
        for name in removed:
            if name not in _REMOVED:
                raise TypeError(f"job.wrap() got an unexpected keyword argument {name!r}")
            raise ElasticError(f"job.wrap() has no {name}= any more: {_REMOVED[name]}")
        if self._training.begun:
            raise ElasticError("job.wrap() after job.shards(): wrap everything before the first loop")
        for thing in things:
            self._training.objects.add(thing)
        local = local_plan(mode, sync_every, outer)
        if local is not None and (codec is not None or bucket is not None):
            raise ElasticError("codec= and bucket= are of gradients: with mode='local' none are sent")
        if local is not None:
            self._training.ways.travel(local)
        if codec is not None or bucket is not None:
            self._training.ways.travel(plan(codec or "none", BUCKET_BYTES if bucket is None else bucket))
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
        **refused: Any,
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
        for name in refused:
            if name not in _REFUSED:
                raise TypeError(f"job.shards() got an unexpected keyword argument {name!r}")
            raise ElasticError(f"job.shards() has no {name}=: {_REFUSED[name]}")
        whole = {"batch_size": batch_size, "epochs": epochs, "accumulate": accumulate}
        if micro_batch is not None:
            whole["micro_batch"] = micro_batch
        for name, value in whole.items():
            if not isinstance(value, int):  # pyright: ignore - scripts seldom have types
                raise ElasticError(f"{name} must be a whole number, not {value!r}")
            if value < 1:
                raise ElasticError(f"{name} must be at least 1, not {value}")
        order = Order(length_of(dataset), seed, shuffle)
        loop = Loop(Fetch(dataset, collate), order, batch_size, epochs, micro_batch, accumulate, weight)
        training = self._training
        if (scaling := training.ways.scale(scale, batch_size)) is not None:
            training.objects.others.append(scaling)
        training.reducer  # noqa: B018 - whatever is wrong with what was wrapped is said here
        if training.group is None:
            self._loops.enter(loop)
        return Shards(lambda: self._loops.begin(loop))

    def allreduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over all workers, in place; each must call it in the same pass of the loop.

        Raises:
            ElasticError: the workers have changed, and not all of them will call it.
        """
        return self._summing.add_up(tensor)

    def save(self) -> None:
        """Keep the state of the last step now, rather than when it is time; call it on every worker.

        Raises:
            ElasticError: `elastic.init` was given no folder for checkpoints.
        """
        keeper = self._checkpoints()
        if self.rank == 0 and self._training.is_local and not self._loops.exhausted:
            keeper.soon()
        elif self.rank == 0 and self._loops.exhausted:
            keeper.save_last()
        elif self.rank == 0:
            keeper.stage()

    def load(self) -> bool:
        """Take up the newest checkpoint before the first batch; `shards` does this by itself.

        Raises:
            ElasticError: there is no folder, or what is in it cannot be used.
        """
        return self._checkpoints().load()

    def on_change(self, call: Callable[[View], None]) -> None:
        """Have `call(view)` called, between two batches, whenever the members have changed."""
        self._loops.changes.append(call)

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
        membership, guardian = self._membership, self._guardian
        if membership is not None and guardian is not None:
            guardian.training(False)
            if membership.stopped:
                guardian.close()
            elif self._presence.failed is None:
                outcome = self._outcome(membership)
                membership.send(outcome)
                guardian.end(outcome)
            membership.close()
        if self._donor is not None:
            self._donor.close()

    def _outcome(self, membership: Membership) -> dict[str, Any]:
        """The last message to the coordinator. A worker has finished if its loader is exhausted and it
        ends with exit code 0, as far as that can be known here: its sidecar sees how it ends."""
        training, code = self._training, self._presence.exit_code
        if membership.leaving:
            return {"type": "left", "step": training.applied}
        if code:
            return self._presence.failure(f"it ended with exit code {code}")
        if self._loops.exhausted:
            cursor = training.cursor.to_wire()
            return {"type": "done", "step": training.applied, "cursor": cursor}
        if training.group is not None:
            say(f"this worker ends after step {training.applied}, before its data were exhausted")
        return {"type": "left", "step": training.applied}

    def _settle(self) -> None:
        """A failed worker cannot publish the last checkpoint any more; amid the loop others wait."""
        if self._keeper is not None and self._loops.exhausted:
            self._keeper.settle()

    def _checkpoints(self) -> Keeper:
        if self._keeper is None:
            raise ElasticError("there is no folder for checkpoints: elastic.init(checkpoint=...)")
        return self._keeper

    def _told_to_go(self) -> None:
        assert self._membership is not None
        self._membership.leaving = True
        if not self._loops.under_way:  # there is no step boundary to wait for
            leave()


def _keeper(
    folder: Path | None,
    every: float,
    source: Path | None,
    training: Training,
    membership: Membership | None,
) -> Keeper | None:
    return Keeper(folder, every, source, training, membership, say) if folder is not None else None
