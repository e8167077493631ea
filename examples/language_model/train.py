"""Learn Python from the standard library's source, on as many workers as there are just now.

    python train.py                                         # alone
    shoal run --min 1 --max 4 -- python train.py            # elastic
    torchrun --nproc-per-node 2 train.py

Workers may come, go and die: no step is lost, every sample is used once, and if all of them die training
goes on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import corpus
import torch
from model import CharacterModel
from torch.nn import functional
from torch.utils.data import Dataset

from shoal import elastic


class Pieces(Dataset[torch.Tensor]):
    """`count` random pieces of the text, each of context + 1 characters."""

    def __init__(self, text: torch.Tensor, count: int, context: int, seed: int) -> None:
        self.text, self.length = text, context + 1
        generator = torch.Generator().manual_seed(seed)
        self.starts = torch.randint(len(text) - context - 1, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> torch.Tensor:
        start = int(self.starts[index])
        return self.text[start : start + self.length].long()


def main() -> None:
    """Train, evaluate on held-out files, write a sample."""
    options = parse_options()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    output = Path(os.environ.get("SHOAL_OUTPUT", "output"))
    output.mkdir(parents=True, exist_ok=True)
    training, held_out = corpus.load()
    model = CharacterModel(len(corpus.ALPHABET))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 20) * (1 - 0.9 * step / options.steps)
    )
    pieces = Pieces(training, options.steps * options.batch, model.context, options.seed)

    job = elastic.init(checkpoint=output / "checkpoints", checkpoint_every=10.0)
    model, optimizer, scheduler = job.wrap(model, optimizer, scheduler)
    job.on_change(lambda view: print(f"view {view.epoch}: {view.size} workers", flush=True))
    for batch in job.shards(pieces, batch_size=options.batch, seed=options.seed):
        loss = cross_entropy(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if job.stepped:
            tell(job, loss.item())

    if job.rank == 0:
        held_out_loss = evaluate(model, held_out)
        sample = corpus.decode(model.eval().write(corpus.encode("\ndef "), 360, 0.5, options.seed))
        result = {"step": job.step, "held_out_loss": held_out_loss, "sample": sample}
        (output / "result.json").write_text(json.dumps(result))
        print(f"held-out loss {held_out_loss:.3f} nats per character\n{sample}", flush=True)


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=48, help="texts per step, over all workers")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def cross_entropy(model: CharacterModel, texts: torch.Tensor) -> torch.Tensor:
    """Mean loss in nats per character; `texts`: (batch, context + 1) indices."""
    logits = model(texts[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())


def evaluate(model: CharacterModel, text: torch.Tensor) -> float:
    """Mean loss over a fixed sample of the held-out text."""
    model.eval()
    pieces = Pieces(text, 256, model.context, seed=1)
    batches = torch.stack([pieces[index] for index in range(len(pieces))]).split(32)
    with torch.no_grad():
        return sum(float(cross_entropy(model, batch)) for batch in batches) / len(batches)


def tell(job: elastic.Job, loss: float) -> None:
    """One line a step for whoever draws it; every tenth for people."""
    fields = {"step": job.step, "loss": round(loss, 4), "size": job.size, "rank": job.rank}
    print(json.dumps({"at": round(time.time(), 3), **fields}), flush=True)


if __name__ == "__main__":
    main()
