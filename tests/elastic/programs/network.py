"""A small network with batch normalisation left out, in fp64 or fp32: tells its parameters at the end.

Arguments: precision, samples, batch, epochs, seconds a step, what goes wrong (or nothing), a file that
stops the waiting.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from pacing import Pace
from torch.nn import functional
from torch.utils.data import TensorDataset

from shoal import elastic

precision, samples, batch, epochs = sys.argv[1], *map(int, sys.argv[2:5])
harm, steps = sys.argv[6], -(-samples // batch) * epochs
pace = Pace(float(sys.argv[5]), steps, Path(sys.argv[7]))
torch.set_num_threads(1)
torch.set_default_dtype({"fp64": torch.float64, "fp32": torch.float32}[precision])
generator = torch.Generator().manual_seed(1)
x = torch.randn(samples, 8, generator=generator)
if harm == "poison":
    x[37] = float("inf")
data = TensorDataset(x, x.square().sum(1, keepdim=True).tanh())
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
together = 0
for inputs, targets in job.shards(data, batch_size=batch, epochs=epochs, seed=3):
    pace.wait(job.step)
    together += job.size == 2
    if harm == "raise" and together > 5 and os.environ["SHOAL_ELASTIC_NAME"] == "bad":
        raise ValueError("this worker is out of luck")
    if harm == "poison" and not torch.isfinite(inputs).all():
        raise ValueError("a sample that nobody can learn")
    loss = functional.mse_loss(model(inputs), targets)
    if harm == "nan" and job.step == 5:
        loss = loss * float("nan")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if job.stepped:
        print(json.dumps({"at": time.monotonic(), "step": job.step, "size": job.size}), flush=True)
values = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
print(json.dumps({"done": True, "step": job.step, "values": values}), flush=True)
