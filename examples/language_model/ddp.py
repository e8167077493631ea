"""The same model in plain torch DDP, for comparison: when a worker dies, torchrun starts all anew.

    torchrun --nproc-per-node 2 --max-restarts 3 ddp.py

A checkpoint is written every so many steps; those since the last one are done again after a restart.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import corpus
import torch
import torch.distributed as dist
from model import CharacterModel
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train, evaluate on held-out files, write a sample."""
    options = parse_options()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    if world > 1:
        dist.init_process_group("gloo")
    output = Path(os.environ.get("SHOAL_OUTPUT", "output"))
    output.mkdir(parents=True, exist_ok=True)
    training, held_out = corpus.load()
    model = CharacterModel(len(corpus.ALPHABET))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    first = restore(output, model, optimizer)
    say(rank, f"{len(training):,} characters, {len(held_out):,} held out, {count(model):,} parameters")
    say(rank, f"resumed from step {first}" if first else "starting at step 0", everybody=first > 0)
    parallel = DistributedDataParallel(model) if world > 1 else model
    train(options, parallel, model, optimizer, training, output, (rank, world, first))
    loss = evaluate(model, held_out, rank, world)
    if rank == 0:
        sample = corpus.decode(model.eval().write(corpus.encode("\ndef "), 360, 0.5, options.seed))
        (output / "result.json").write_text(
            json.dumps({"step": options.steps, "held_out_loss": loss, "sample": sample})
        )
        say(rank, f"held-out loss {loss:.3f} nats per character")
        print(sample, flush=True)
    if world > 1:
        dist.barrier()  # nobody takes the group down while a peer still uses it
        dist.destroy_process_group()


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=48, help="texts per step, over all workers")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="per worker")
    parser.add_argument("--checkpoint-every", type=int, default=30, help="steps")
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    return parser.parse_args()


def train(
    options: argparse.Namespace,
    parallel: torch.nn.Module,
    model: CharacterModel,
    optimizer: torch.optim.Optimizer,
    text: torch.Tensor,
    output: Path,
    place: tuple[int, int, int],
) -> None:
    """Run the steps that are left; rank 0 writes checkpoints and one line per `log_every` steps."""
    rank, world, first = place
    began = time.monotonic()
    for step in range(first, options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.lr * warm_up_then_decay(step, options.steps)
        batch = sample_batch(text, options.batch, model.context, options.seed, step)[rank::world]
        logits = parallel(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % options.checkpoint_every == 0 and rank == 0:
            save(output, model, optimizer, step + 1)
        if (step + 1) % options.log_every == 0 or step == first:
            speed = (step + 1 - first) / (time.monotonic() - began)
            say(rank, f"step {step + 1}/{options.steps} loss {loss.item():.3f} ({speed:.1f} steps/s)")


def warm_up_then_decay(step: int, steps: int) -> float:
    """Factor of the learning rate: up over 20 steps, then down to a tenth at the end."""
    return min(1.0, (step + 1) / 20) * (1 - 0.9 * step / steps)


def sample_batch(text: torch.Tensor, count: int, context: int, seed: int, step: int) -> torch.Tensor:
    """`count` random pieces of context + 1 characters: shape (count, context + 1), int64."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - context - 1, (count, 1), generator=generator)
    return text[starts + torch.arange(context + 1)].long()


def evaluate(model: CharacterModel, text: torch.Tensor, rank: int, world: int) -> float:
    """Mean loss in nats per character over a fixed sample of the held-out text."""
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for batch in sample_batch(text, 256, model.context, 1, 0).split(32)[rank::world]:
            logits = model(batch[:, :-1])
            total[0] += functional.cross_entropy(
                logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
            )
            total[1] += batch[:, 1:].numel()
    if world > 1:
        dist.all_reduce(total)
    return float(total[0] / total[1])


def save(output: Path, model: CharacterModel, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write a checkpoint whole or not at all."""
    temporary = output / "checkpoint.tmp"
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary
    )
    temporary.replace(output / "checkpoint.pt")


def restore(output: Path, model: CharacterModel, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint; the step to go on with, 0 when there is none."""
    path = output / "checkpoint.pt"
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def count(model: torch.nn.Module) -> int:
    """How many numbers the model learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def say(rank: int, text: str, *, everybody: bool = False) -> None:
    """One line, from rank 0 or from everybody."""
    if rank == 0 or everybody:
        print(text, flush=True)


if __name__ == "__main__":
    main()
