"""With torchft: one replica group here, and a lighthouse, whose address the environment tells."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn
from torch.distributed import TCPStore
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from bench.elastic.loops.data import TRAIN, accuracy, new_model

EPOCHS, BATCH = 4, 64
checkpoint = Path(sys.argv[1]) / "checkpoint.pt"
replica, replicas = int(os.environ.get("REPLICA", "0")), int(os.environ.get("REPLICAS", "1"))
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(TRAIN) // BATCH)
tracked = {"model": model, "optimizer": optimizer, "scheduler": scheduler}


def state():
    """What a new replica needs."""
    return {name: each.state_dict() for name, each in tracked.items()}


def load(kept):
    """Become what an earlier run, or another replica, was."""
    for name, each in kept.items():
        tracked[name].load_state_dict(each)


if checkpoint.exists():
    load(torch.load(checkpoint))
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    load_state_dict=load,
    state_dict=state,
    min_replica_size=1,
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
    replica_id=f"replica-{replica}",
)
model = DistributedDataParallel(manager, model)
optimizer = Optimizer(manager, optimizer)
sampler = DistributedSampler(TRAIN, replica, replicas, group_rank=0, num_replicas=1)
for epoch in range(scheduler.last_epoch * BATCH // len(TRAIN), EPOCHS):
    sampler.set_epoch(epoch)
    for inputs, labels in DataLoader(TRAIN, BATCH // replicas, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if scheduler.last_epoch % 64 == 0 and replica == 0:
            print(f"step {scheduler.last_epoch}: accuracy {accuracy(model):.3f}", flush=True)
            torch.save(state(), checkpoint)
os._exit(0)  # its manager's threads do not end by themselves
