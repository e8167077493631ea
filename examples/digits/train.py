"""Learn scikit-learn's handwritten digits in seconds: plain torch DDP, one process or many.

    python train.py
    shoal run --workers 2 -- python train.py --epochs 5

Checkpoints go to $SHOAL_OUTPUT after every epoch; a run that is started again goes on from there.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for some epochs, then print the accuracy on images that were held out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all workers")
    options = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if world > 1:
        dist.init_process_group("gloo")
    output = Path(os.environ.get("SHOAL_OUTPUT", "output"))
    output.mkdir(parents=True, exist_ok=True)
    images, labels = digits()
    held_out = len(images) // 5
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = restore(output / "checkpoint.pt", model, optimizer)
    parallel = DistributedDataParallel(model) if world > 1 else model
    for epoch in range(first, options.epochs):
        order = torch.randperm(len(images) - held_out, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(options.batch):
            mine = batch[rank::world]
            if len(batch) < world:
                continue  # too few images left to give every worker one
            loss = functional.cross_entropy(parallel(images[held_out:][mine]), labels[held_out:][mine])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            save(output / "checkpoint.pt", model, optimizer, epoch + 1)
            print(f"epoch {epoch + 1}/{options.epochs} loss {loss.item():.3f}", flush=True)
    if rank == 0:
        right = (model(images[:held_out]).argmax(1) == labels[:held_out]).float().mean()
        print(f"accuracy {right.item():.3f} on {held_out} held-out images", flush=True)
    if world > 1:
        dist.barrier()  # nobody takes the group down while a peer still uses it
        dist.destroy_process_group()


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 64), float32 in 0 to 1, and labels (1797,), int64, in a fixed shuffled order."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data.data, dtype=torch.float32)[order] / 16
    return images, torch.tensor(data.target, dtype=torch.int64)[order]


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Write a checkpoint whole or not at all."""
    temporary = path.with_suffix(".tmp")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, temporary)
    temporary.replace(path)


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the checkpoint; the epoch to go on with, 0 when there is none."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


if __name__ == "__main__":
    main()
