"""`count.py` with local steps: parameter i falls by one each time sample i is learned and agreed on.

Arguments: samples, batch, epochs, seconds a step, a file that stops the waiting, and what `job.wrap` is
given as JSON ("outer": true: Nesterov's momentum, which leaves the counting, but not the agreeing).
Shares must be equal: a batch that every world size divides.
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
pace = Pace(float(sys.argv[4]), -(-samples // batch) * epochs, Path(sys.argv[5]))
given = json.loads(sys.argv[6])
outer = elastic.Outer(0.7, 0.9) if given.pop("outer", False) else elastic.AVERAGE
torch.set_num_threads(1)


def tell(**fields):
    os.write(1, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


model = torch.nn.Module()
model.first = torch.nn.Parameter(torch.zeros(samples // 2, dtype=torch.float64))
model.second = torch.nn.Parameter(torch.zeros(samples - samples // 2, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=float(batch))
job = elastic.init(checkpoint=given.pop("checkpoint", None), checkpoint_every=0.2)
model, optimizer = job.wrap(model, optimizer, mode="local", outer=outer, **given)
job.on_change(lambda view: tell(epoch=view.epoch, members=[m.name for m in view.members]))
for index in job.shards(range(samples), batch_size=batch, epochs=epochs, seed=1):
    pace.wait(job.step)
    torch.cat([model.first, model.second])[index].mean().backward()
    optimizer.step()
    if job.stepped:
        tell(step=job.step, size=job.size, committed=job.committed)
data = torch.cat([model.first, model.second]).detach()
tell(
    done=True,
    exact=bool((data + epochs).abs().max() < 1e-9),
    low=data.min().item(),
    high=data.max().item(),
    step=job.step,
    digest=hashlib.sha256(data.numpy().tobytes()).hexdigest(),
)
