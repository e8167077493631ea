"""With DDP, for torchrun, which restarts all workers when one is lost."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from bench.elastic.loops.data import TRAIN, accuracy, new_model

EPOCHS, BATCH = 4, 64
checkpoint = Path(sys.argv[1]) / "checkpoint.pt"
dist.init_process_group("gloo")
model = DistributedDataParallel(new_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(TRAIN) // BATCH)
tracked = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
if checkpoint.exists():
    for name, state in torch.load(checkpoint).items():
        tracked[name].load_state_dict(state)
sampler = DistributedSampler(TRAIN, shuffle=True)
for epoch in range(scheduler.last_epoch * BATCH // len(TRAIN), EPOCHS):
    sampler.set_epoch(epoch)
    for inputs, labels in DataLoader(TRAIN, BATCH // dist.get_world_size(), sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if scheduler.last_epoch % 64 == 0 and dist.get_rank() == 0:
            print(f"step {scheduler.last_epoch}: accuracy {accuracy(model):.3f}", flush=True)
            new = checkpoint.with_suffix(".new")
            torch.save({name: each.state_dict() for name, each in tracked.items()}, new)
            new.replace(checkpoint)
dist.destroy_process_group()
