"""DDP under torchrun, or started by hand: a checkpoint every ten steps, resumed from after a restart."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bench.elastic.models import loss_of, take
from bench.elastic.workers.loop import Loop

_EVERY = 10


def main() -> None:
    """Train for ever; the launcher ends it. `BENCH_CHECKPOINTS=0` writes none."""
    loop = Loop(f"rank-{os.environ['RANK']}")
    timeout = timedelta(seconds=float(os.environ.get("BENCH_TIMEOUT", "30")))
    dist.init_process_group("gloo", timeout=timeout)
    rank, world = dist.get_rank(), dist.get_world_size()
    loop.recorder.event("joined")
    path = loop.settings.path / "checkpoint.pt"
    step = _resume(loop, path)
    model = DistributedDataParallel(loop.model)
    writes = rank == 0 and os.environ.get("BENCH_CHECKPOINTS", "1") == "1"
    committed = step
    while True:
        step += 1
        loop.begin(step)
        loop.optimizer.zero_grad()
        loop.backward(
            loss_of(model, take(loop.samples, loop.settings, step, rank, world), loop.settings)
        )
        loop.optimizer.step()
        loop.recorder.step(step, world, committed)
        if writes and step % _EVERY == 0:
            state = {
                "step": step,
                "model": loop.model.state_dict(),
                "optimizer": loop.optimizer.state_dict(),
            }
            torch.save(state, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
            committed = step


def _resume(loop: Loop, path: Path) -> int:
    if not path.exists():
        return 0
    state = torch.load(path)
    loop.model.load_state_dict(state["model"])
    loop.optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    main()
