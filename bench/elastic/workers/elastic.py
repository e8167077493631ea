"""The same training with `shoal.elastic`. Ends by itself when its data is used up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from bench.elastic.models import loss_of
from bench.elastic.workers.loop import Loop
from shoal import elastic


def main() -> None:
    """`BENCH_HOLD`: a file whose appearance lets a warm standby join."""
    loop = Loop()
    settings = loop.settings
    if hold := os.environ.get("BENCH_HOLD"):
        _wait_for(Path(hold))
    job = elastic.init()
    model, optimizer = job.wrap(loop.model, loop.optimizer)
    loop.recorder.event("started")
    joined = False
    for batch in job.shards(
        loop.samples, batch_size=settings.batch, epochs=settings.epochs, seed=settings.order
    ):
        if not joined:
            loop.recorder.event("joined")
            joined = True
        loop.begin(job.step + 1)
        loop.backward(loss_of(model, batch, settings))
        optimizer.step()
        loop.recorder.step(
            job.step if job.stepped else job.step + 1, job.size, job.committed, applied=job.stepped
        )
    path = settings.path / f"final.{os.getpid()}.pt"
    torch.save({"step": job.step, "model": model.state_dict()}, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    loop.recorder.event("ended")


def _wait_for(path: Path, deadline_seconds: float = 300) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has not appeared within {deadline_seconds:.0f} s")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
