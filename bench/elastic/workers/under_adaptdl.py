"""AdaptDL: its loader, its data parallelism; a fixed batch, so no scaling rule has anything to do."""

from __future__ import annotations

from typing import Any

import adaptdl.checkpoint
import adaptdl.env
import adaptdl.torch
import torch

from bench.elastic.models import loss_of
from bench.elastic.workers.loop import Loop


class _Steps(adaptdl.checkpoint.State):
    """How many have been made; kept with its checkpoints."""

    def __init__(self) -> None:
        super().__init__("steps")
        self.made = 0

    def save(self, fileobj: Any) -> None:
        """To a binary file."""
        fileobj.write(str(self.made).encode())

    def load(self, fileobj: Any) -> None:
        """From a binary file."""
        self.made = int(fileobj.read())


def main() -> None:
    """Train for ever; the launcher ends it."""
    loop = Loop()
    settings = loop.settings
    adaptdl.torch.init_process_group("gloo")
    world = adaptdl.env.num_replicas()
    loop.recorder.event("joined")
    steps = _Steps()
    adaptdl.checkpoint.load_state(steps)
    model = adaptdl.torch.AdaptiveDataParallel(loop.model, loop.optimizer)
    loader = adaptdl.torch.AdaptiveDataLoader(
        loop.samples, batch_size=settings.batch, shuffle=True, drop_last=True
    )
    for _ in adaptdl.torch.remaining_epochs_until(settings.epochs):
        for batch in loader:
            loop.begin(steps.made + 1)
            loop.optimizer.zero_grad()
            loop.backward(loss_of(model, batch, settings))
            loop.optimizer.step()
            steps.made += 1
            loop.recorder.step(steps.made, world, steps.made)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
