"""Count how often each sample was learned where workers that are late are not waited for.

The loss of a sample is its own parameter, so that its gradient is not 0 exactly where it had part in the
step; made 1, plain SGD with a rate of 1 takes one off. Arguments: samples, batch, epochs, seconds a
part, a file that stops the waiting, `min_contrib`, and which rank takes as long for each sample: "first"
or "last".
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
hurry, enough, slow = Path(sys.argv[5]), int(sys.argv[6]), sys.argv[7]
torch.set_num_threads(1)


def digest():
    return hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest()


def tell(**fields):
    os.write(1, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


model = torch.nn.Module()
model.weight = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
job = elastic.init(checkpoint=os.environ.get("LATE_CHECKPOINT"), checkpoint_every=0.2)
model, optimizer = job.wrap(model, optimizer, min_contrib=enough)
job.on_change(lambda view: tell(epoch=view.epoch, members=[m.name for m in view.members]))
for index in job.shards(range(samples), batch_size=batch, epochs=epochs, seed=1):
    if job.size > 1 and job.rank == (0 if slow == "first" else job.size - 1):
        seconds = pace * len(index)
    else:
        seconds = pace if job.size > 1 else 4 * pace  # alone it waits for others
    if not hurry.exists():
        time.sleep(seconds)
    model.weight[index].mean().backward()
    if model.weight.grad is not None:
        model.weight.grad.sign_()
    optimizer.step()
    if job.stepped:
        tell(
            step=job.step, size=job.size, late=job.late_samples, own=len(index),
            committed=job.committed, digest=digest(),
        )  # fmt: skip
data = model.weight.detach()
tell(
    done=True,
    learned=-round(data.sum().item()),
    whole=bool((data == data.round()).all() and data.max() <= 0 and data.min() >= -epochs),
    late=job.late_samples,
    step=job.step,
    digest=digest(),
)
