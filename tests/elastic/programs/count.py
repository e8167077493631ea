"""Count how often each sample was learned: parameter i falls by one each time sample i is applied.

The loss of a sample is its own parameter, so its gradient in a step of N samples is 1/N, and plain SGD
with a rate of N takes one off. fp64: exact. Arguments: samples, batch, epochs; and seconds a step
until a file exists (see `pacing`).
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
from pacing import Pace

from shoal import elastic

samples, batch, epochs = map(int, sys.argv[1:4])
steps = -(-samples // batch) * epochs
pace = Pace(float(sys.argv[4]), steps, Path(sys.argv[5]) if len(sys.argv) > 5 else None)
torch.set_num_threads(1)


def tell(**fields):
    line = json.dumps({"at": time.monotonic(), **fields}) + "\n"
    os.write(1, line.encode())  # at once: under torchrun all write into one file


model = torch.nn.Module()
model.weight = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=float(batch))
job = elastic.init()
model, optimizer = job.wrap(model, optimizer)
job.on_change(lambda view: tell(epoch=view.epoch, members=[m.name for m in view.members]))
for index in job.shards(range(samples), batch_size=batch, epochs=epochs, seed=1):
    pace.wait(job.step)
    model.weight[index].mean().backward()
    optimizer.step()
    if job.stepped:
        tell(step=job.step, size=job.size, committed=job.committed)
data = model.weight.detach()
tell(
    done=True,
    exact=bool((data == -float(epochs)).all()),
    low=data.min().item(),
    high=data.max().item(),
    step=job.step,
    digest=hashlib.sha256(data.numpy().tobytes()).hexdigest(),
)
