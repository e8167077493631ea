"""Compares what `backward()` leaves in `grad` with the gradient of the step's whole batch.

Tells in the end the largest difference in any step, the sums that `job.allreduce` gave, and a digest.
"""

import copy
import hashlib
import json
import os

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

from shoal import elastic
from shoal.elastic.ledger.fetch import Order

SAMPLES, BATCH, SEED = 50, 16, 3

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(1)
x, y = torch.randn(SAMPLES, 3, generator=generator), torch.rand(SAMPLES, 4, generator=generator)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sigmoid())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
order = Order(SAMPLES, SEED)
worst, sums, passes = 0.0, [], 0
for inputs, targets in job.shards(TensorDataset(x, y), batch_size=BATCH, epochs=2, seed=SEED):
    first = job.cursor.position
    twin = copy.deepcopy(model)
    functional.mse_loss(model(inputs), targets).backward()
    indices = order.indices(job.epoch, first, min(first + BATCH, SAMPLES))
    functional.mse_loss(twin(x[indices]), y[indices]).backward()
    for mine, whole in zip(model.parameters(), twin.parameters(), strict=True):
        worst = max(worst, (mine.grad - whole.grad).abs().max().item())
    sums.append(job.allreduce(torch.tensor([job.rank + 1.0])).item())
    passes += 1
    optimizer.step()
values = torch.cat([p.detach().flatten() for p in model.parameters()])
digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()
told = {"gradients": worst, "sums": sums, "passes": passes, "digest": digest}
os.write(1, (json.dumps(told) + "\n").encode())
