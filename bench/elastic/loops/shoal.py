"""With Shoal: alone, or in a job whose workers come and go."""

import sys
from pathlib import Path

import torch
from torch import nn

from bench.elastic.loops.data import TRAIN, accuracy, new_model
from shoal import elastic

EPOCHS, BATCH = 4, 64
job = elastic.init(checkpoint=Path(sys.argv[1]) / "checkpoint")
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(TRAIN) // BATCH)
job.wrap(model, optimizer, scheduler)
for inputs, labels in job.shards(TRAIN, BATCH, EPOCHS):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if job.stepped and scheduler.last_epoch % 64 == 0:
        print(f"step {scheduler.last_epoch}: accuracy {accuracy(model):.3f}", flush=True)
