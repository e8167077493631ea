"""With AdaptDL: alone, or in a job that its scheduler stops and starts again at each change."""

import os
import sys

import adaptdl.env
import adaptdl.torch
import torch
from torch import nn

from bench.elastic.loops.data import TRAIN, accuracy, new_model

EPOCHS, BATCH = 4, 64
os.environ.setdefault("ADAPTDL_CHECKPOINT_PATH", sys.argv[1])
adaptdl.torch.init_process_group("gloo")
model = new_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(TRAIN) // BATCH)
model = adaptdl.torch.AdaptiveDataParallel(model, optimizer, scheduler)
loader = adaptdl.torch.AdaptiveDataLoader(TRAIN, BATCH, shuffle=True)
for _ in adaptdl.torch.remaining_epochs_until(EPOCHS):
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if scheduler.last_epoch % 64 == 0 and adaptdl.env.replica_rank() == 0:
            # its own module would count this evaluation as training
            print(f"step {scheduler.last_epoch}: accuracy {accuracy(model.module):.3f}", flush=True)
