"""What an elastic run must equal: one process of stock torch, whole batches, the same order."""

from __future__ import annotations

import torch

from bench.elastic.models import loss_of
from bench.elastic.workers.loop import Loop
from shoal.elastic.ledger.fetch import Order


def main() -> None:
    """Train to the end of the data; leave `final.static.pt`."""
    loop = Loop()
    settings, step = loop.settings, 0
    order = Order(settings.samples, settings.order)
    for epoch in range(settings.epochs):
        for first in range(0, settings.samples, settings.batch):
            step += 1
            end = min(first + settings.batch, settings.samples)
            where = torch.tensor(order.indices(epoch, first, end))
            loop.optimizer.zero_grad()
            loss_of(loop.model, [tensor[where] for tensor in loop.samples.tensors], settings).backward()
            loop.optimizer.step()
            loop.recorder.step(step, 1, step)
    torch.save({"step": step, "model": loop.model.state_dict()}, settings.path / "final.static.pt")


if __name__ == "__main__":
    main()
