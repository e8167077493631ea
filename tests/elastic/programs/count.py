"""Count how often each sample was learned: parameter i falls by one each time sample i is applied.

The loss of a sample is its own parameter, so its gradient in a step of N samples is 1/N, and plain SGD
with a rate of N takes one off. fp64: exact. Arguments: samples, batch, epochs, seconds a step; and a
file: once it is there nobody waits any more.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch

from shoal import elastic

samples, batch, epochs, pace = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
hurry = Path(sys.argv[5]) if len(sys.argv) > 5 else None
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
    if pace and hurry is not None and hurry.exists():
        pace = 0.0
    time.sleep(pace)
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
