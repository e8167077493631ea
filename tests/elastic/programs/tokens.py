"""Train on rows of which only some places count: the loss is the mean over those. Tells the parameters.
Arguments: samples that one pass is handed at most."""

import json
import os
import sys

import torch

from shoal import elastic

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(0)
rows, targets = torch.randn(90, 6, 4, generator=generator), torch.randn(90, 6, generator=generator)
mask = torch.rand(90, 6, generator=generator) < torch.linspace(0.1, 1.0, 90)[:, None]
mask[::11] = False
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
job = elastic.init()
job.wrap(model, optimizer)


def count(batch):
    return int(batch[2].sum())


data = torch.utils.data.TensorDataset(rows, targets, mask)
for x, y, counts in job.shards(data, 16, epochs=3, micro_batch=int(sys.argv[1]), weight=count):
    errors = (model(x).squeeze(-1) - y).square()
    (errors * counts).sum().div(counts.sum().clamp(min=1)).backward()
    optimizer.step()
values = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
os.write(1, (json.dumps({"step": job.step, "size": job.size, "values": values}) + "\n").encode())
