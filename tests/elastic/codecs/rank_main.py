"""One rank of a real gloo group: `python -m tests.elastic.codecs.rank_main TASK`, the
rest in the environment as torchrun has it.

Prints one line of JSON. Task: `hook` (PowerSGD beside torch's hook, step for step).
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

from shoal.elastic.codecs import Bucket, make
from shoal.elastic.codecs.base import Exchanges
from tests.elastic.codecs.ranks import leave


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    leave({"hook": hook}[sys.argv[1]]())


def hook() -> dict[str, object]:
    """The largest relative difference between what torch's hook and the codec decode, over all steps."""
    rank, steps = int(os.environ["POWERSGD_RANK"]), 8
    shapes = [(48, 40), (48,), (16, 8, 3, 3)]
    count = sum(torch.Size(shape).numel() for shape in shapes)
    world = dist.get_world_size()
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=2
    )
    codec = make(f"powersgd:{rank}")
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    worst, digest = 0.0, 0.0
    for step in range(steps):
        gradient = torch.randn(count, generator=generator)
        ours = gradient / world
        theirs = gradient.clone()
        if step == 0:
            _share_first_q(codec, state, shapes, rank)
        exchanges = Exchanges(codec, _launch, lambda work: work.wait())
        exchanges.begin(Bucket(0, ours, tuple(shapes)))
        list(exchanges.finish())
        codec.commit()
        powerSGD_hook.powerSGD_hook(state, _TorchBucket(theirs, shapes)).wait()  # type: ignore[arg-type]
        worst = max(worst, float((ours - theirs).norm() / theirs.norm()))
        digest += float(ours.double().sum())
    return {"worst": worst, "digest": digest.hex()}


def _launch(tensor: torch.Tensor) -> dist.Work:
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work


class _TorchBucket:
    """What torch's hook asks of DDP's bucket; DDP's own cannot be made from Python."""

    def __init__(self, flat: torch.Tensor, shapes: list[tuple[int, ...]]) -> None:
        self._flat = flat
        sizes = [torch.Size(shape).numel() for shape in shapes]
        self._views = [part.view(s) for part, s in zip(flat.split(sizes), shapes, strict=True)]

    def buffer(self) -> torch.Tensor:
        return self._flat

    def index(self) -> int:
        return 0

    def gradients(self) -> list[torch.Tensor]:
        return self._views

    def is_last(self) -> bool:
        return True


def _share_first_q(
    codec: object,
    state: powerSGD_hook.PowerSGDState,
    shapes: list[tuple[int, ...]],
    rank: int,
) -> None:
    """Both begin from the codec's Q: the hook draws from a generator of its own."""
    count = sum(torch.Size(shape).numel() for shape in shapes)
    probe = make(f"powersgd:{rank}")
    rounds = probe.exchange(Bucket(0, torch.zeros(count), tuple(shapes)))
    next(rounds)
    rounds.close()
    state.iter = state.start_powerSGD_iter
    state.q_memory_dict[0] = probe._places[0].second  # type: ignore[attr-defined]
    rows = [s[0] * min(rank, s[0], torch.Size(s[1:]).numel()) for s in shapes if len(s) > 1]
    state.p_memory_dict[0] = torch.zeros(sum(rows))


if __name__ == "__main__":
    main()
