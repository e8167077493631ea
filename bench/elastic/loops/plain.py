"""Plain torch, one process."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from bench.elastic.loops.data import TRAIN, accuracy, new_model

EPOCHS, BATCH = 4, 64
checkpoint = Path(sys.argv[1]) / "checkpoint.pt"
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(TRAIN) // BATCH)
tracked = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
if checkpoint.exists():
    for name, state in torch.load(checkpoint).items():
        tracked[name].load_state_dict(state)
for _ in range(scheduler.last_epoch * BATCH // len(TRAIN), EPOCHS):
    for inputs, labels in DataLoader(TRAIN, BATCH, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if scheduler.last_epoch % 64 == 0:
            print(f"step {scheduler.last_epoch}: accuracy {accuracy(model):.3f}", flush=True)
            torch.save({name: each.state_dict() for name, each in tracked.items()}, checkpoint)
