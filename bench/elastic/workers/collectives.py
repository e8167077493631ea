"""Allreduces and whole backward passes of Shoal beside raw gloo, in pairs, in the same processes.

Each worker joins the job and makes a raw gloo group beside it. Then, size by size and round by round,
both reduce the same tensor, in turns of changing order, after a barrier. Results go to a JSON file of
this worker's, in seconds. Then the same for gradients of 157 parameters.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore
from torch.nn.parallel import DistributedDataParallel

from bench.elastic.resnet import SHAPES
from bench.elastic.settings import Settings
from shoal import elastic

_SIZES_MIB = (1, 4, 16, 64)
_BUCKET_BYTES = 25 << 20
_TOGETHER_MIB = 32
_WARM_UP = 2


class _Weights(nn.Module):
    """157 parameters whose gradients cost next to nothing: constants."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in SHAPES)
        self.constants = [torch.randn(shape) for shape in SHAPES]

    def forward(self) -> Tensor:
        """(): its gradient with respect to each weight is that weight's constant."""
        pairs = zip(self.weights, self.constants, strict=True)
        return torch.stack([(weight * constant).sum() for weight, constant in pairs]).sum()


class _Raw:
    """A stock gloo group of all workers."""

    def __init__(self) -> None:
        rank, world = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_WORLD"])
        store, timeout = _store(), timedelta(seconds=120)
        self.world = world
        self.gloo = ProcessGroupGloo(PrefixStore("raw", store), rank, world, timeout)
        # DDP wants the default group
        prefix = PrefixStore("ddp", store)
        dist.init_process_group("gloo", store=prefix, rank=rank, world_size=world, timeout=timeout)
        self._barrier = torch.zeros(1)

    def sum(self, tensor: Tensor) -> None:
        """In place."""
        self.gloo.allreduce([tensor]).wait()

    def sum_and_keep(self, tensor: Tensor, kept: Tensor) -> None:
        """In place; `kept` is what it was."""
        kept.copy_(tensor)
        self.sum(tensor)

    def timed(self, call: Callable[[], object]) -> float:
        """Seconds of a call that all begin together."""
        self.sum(self._barrier)
        began = time.perf_counter()
        call()
        return time.perf_counter() - began


def _store() -> TCPStore:
    return TCPStore("127.0.0.1", int(os.environ["BENCH_STORE"]), is_master=False)


def main() -> None:
    """Measure in the passes of a job's loop, then leave a result."""
    rounds = int(os.environ["BENCH_ROUNDS"])
    torch.set_num_threads(1)
    raw, ours = _Raw(), _Weights()
    buckets = _Buckets(_Weights(), raw)
    ddp = DistributedDataParallel(_Weights(), bucket_cap_mb=25, gradient_as_bucket_view=True)
    job = elastic.init()
    model, optimizer = job.wrap(ours, torch.optim.SGD(ours.parameters(), lr=0.0))
    sizes: dict[str, list[list[float]]] = {}
    passes: list[list[float]] = []
    for number, _ in enumerate(job.shards(list(range(4096)), batch_size=raw.world)):
        if job.size < raw.world:
            raise RuntimeError(f"{job.size} workers of {raw.world} are in the job")
        if number == 0:
            sizes = {str(size): _sizes(job, raw, size, rounds) for size in _SIZES_MIB}
        calls = [model().backward, buckets.backward_of(buckets.model()), ddp().backward]
        took = [0.0] * len(calls)
        for which in range(len(calls)) if number % 2 else reversed(range(len(calls))):
            took[which] = raw.timed(calls[which])
        optimizer.step()
        if number >= _WARM_UP:
            passes.append(took)
        if len(passes) == rounds:
            break
    path = Path(Settings.here().folder, f"times.{os.environ['BENCH_RANK']}.json")
    path.with_suffix(".new").write_text(json.dumps({"sizes": sizes, "passes": passes}))
    path.with_suffix(".new").replace(path)
    dist.destroy_process_group()


def _sizes(job: elastic.Job, raw: _Raw, size: int, rounds: int) -> list[list[float]]:
    tensor, kept = torch.zeros(size << 18), torch.zeros(size << 18)
    # what the gradient buckets go through; a script has `job.allreduce`, which keeps a copy until all
    # have the sum, so that it can be done again after a loss: beside it, gloo and such a copy
    group = job._training.group
    assert group is not None
    calls = [
        lambda: group.wait(group.sum(tensor)),
        lambda: raw.sum(tensor),
        lambda: job.allreduce(tensor),
        lambda: raw.sum_and_keep(tensor, kept),
    ]
    # small ones several times in a row: one alone is mostly the scheduler's mood
    times = max(1, _TOGETHER_MIB // size)
    turns: list[list[float]] = []
    for turn in range(2 * rounds + _WARM_UP):
        took = [0.0] * len(calls)
        for which in range(len(calls)) if turn % 2 else reversed(range(len(calls))):
            call = calls[which]
            took[which] = raw.timed(lambda call=call: [call() for _ in range(times)]) / times
        turns.append(took)
    return turns[_WARM_UP:]


class _Buckets:
    """What one writes by hand: after backward, copy into flat buckets, reduce them, copy back."""

    def __init__(self, model: _Weights, raw: _Raw) -> None:
        self.model, self._raw = model, raw
        self._groups: list[list[nn.Parameter]] = [[]]
        held = 0
        for weight in reversed(model.weights):
            if held and held + weight.nbytes > _BUCKET_BYTES:
                self._groups.append([])
                held = 0
            self._groups[-1].append(weight)
            held += weight.nbytes
        self._flats = [torch.zeros(sum(w.numel() for w in group)) for group in self._groups]

    def backward_of(self, loss: Tensor) -> Callable[[], None]:
        """A call that leaves the mean of all workers' gradients in the parameters."""
        return lambda: self._backward(loss)

    def _backward(self, loss: Tensor) -> None:
        for weight in self.model.weights:
            weight.grad = None
        loss.backward()
        works = []
        for flat, group in zip(self._flats, self._groups, strict=True):
            torch.cat([weight.grad.flatten() for weight in group], out=flat)
            works.append(self._raw.gloo.allreduce([flat]))
        for flat, group, work in zip(self._flats, self._groups, works, strict=True):
            work.wait()
            flat.div_(self._raw.world)
            at = 0
            for weight in group:
                weight.grad.copy_(flat[at : at + weight.numel()].view_as(weight))
                at += weight.numel()


if __name__ == "__main__":
    main()
