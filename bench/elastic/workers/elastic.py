"""The same training with `shoal.elastic`. Ends by itself when its data is used up."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from bench.elastic.marks import Recorder
from bench.elastic.models import loss_of
from bench.elastic.workers.loop import Loop
from shoal import elastic
from shoal.elastic.allreduce.groups import Group
from shoal.elastic.view import View


def main() -> None:
    """`BENCH_HOLD`: a file whose appearance lets a warm standby join."""
    loop = Loop()
    settings = loop.settings
    if hold := os.environ.get("BENCH_HOLD"):
        _wait_for(Path(hold))
    job = elastic.init()
    if os.environ.get("BENCH_GROUPS"):
        _time_groups(job, loop.recorder)
    job.on_change(lambda view: loop.recorder.event(f"view:{view.kind}:{view.epoch}"))
    model, optimizer = job.wrap(loop.model, loop.optimizer)
    loop.recorder.event("started")
    joined = False
    for batch in job.shards(
        loop.samples, batch_size=settings.batch, epochs=settings.epochs, seed=settings.order
    ):
        if not joined:
            loop.recorder.event("joined")
            loop.recorder.event(f"rank:{job.rank}")
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


def _time_groups(job: elastic.Job, recorder: Recorder) -> None:
    """Mark each group that comes into use: how long this worker knew its view and stood without it.

    No part of the library tells this, so its two calls are wrapped here.
    """
    membership = job._membership
    assert membership is not None
    groups, known = membership.groups, dict[int, tuple[int, str]]()
    want, take = groups.want, groups.take

    def timed_want(view: View) -> None:
        known.setdefault(view.epoch, (time.monotonic_ns(), view.kind))
        want(view)

    def timed_take(epoch: int, timeout_seconds: float) -> Group | None:
        began_ns = time.monotonic_ns()
        group = take(epoch, timeout_seconds)
        # a newcomer that waits for a planned group stands in nobody's way
        if group is not None and not (known[epoch][1] == "switch" and timeout_seconds):
            at_ns, kind = known[epoch]
            # a planned group is built while the one before is used
            stood = time.monotonic_ns() - (began_ns if kind == "switch" else at_ns)
            recorder.event(f"group:{kind}:{epoch}:{stood}")
        return group

    groups.want, groups.take = timed_want, timed_take


def _wait_for(path: Path, deadline_seconds: float = 300) -> None:
    deadline = time.monotonic() + deadline_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} has not appeared within {deadline_seconds:.0f} s")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
