"""A wide layer whose steps are mostly the sending of gradients. Arguments: codec, bucket, width, steps,
seconds a step, and a file in which the last step may be named."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch

from shoal import elastic

codec, bucket = sys.argv[1], sys.argv[2]
width, steps = int(sys.argv[3]), int(sys.argv[4])
pace, last = float(sys.argv[5]), Path(sys.argv[6])
batch = 8
torch.set_num_threads(1)


def tell(**fields):
    os.write(1, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


torch.manual_seed(1)
model = torch.nn.Linear(256, width, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.005 * width)
data = torch.randn(batch * 8, 256)
job = elastic.init()
size = int(bucket) << 20
model, optimizer = job.wrap(model, optimizer, codec=codec, bucket=size)
for index in job.shards(range(batch * steps), batch_size=batch, seed=1):
    time.sleep(pace)
    loss = (model(data[index % len(data)]) - 1.0).square().mean()
    loss.backward()
    optimizer.step()
    if job.stepped:
        tell(step=job.step, size=job.size, loss=loss.item())
        if last.exists() and job.step >= int(last.read_text()):
            break
weight = model.weight.detach()
tell(done=True, step=job.step, digest=hashlib.sha256(weight.numpy().tobytes()).hexdigest())
