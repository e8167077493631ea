"""Train with a batch that follows the number of workers; tell the factor that the rate had, and which
samples were learned how often. Arguments: `Scale` as JSON, and a file that stops the waiting."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from shoal import elastic

SAMPLES, RATE = 320, 0.01
given, hurry = json.loads(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)


class Rated(torch.optim.SGD):
    """Remembers the rate that its last step was taken with."""

    used = 0.0

    def step(self, closure=None):
        self.used = self.param_groups[0]["lr"]
        return super().step(closure)


class Counting(torch.optim.SGD):
    """Takes one off whatever has a gradient, at any rate."""

    @torch.no_grad()
    def step(self, closure=None):
        counts = self.param_groups[0]["params"][0]
        counts.sub_(counts.grad.sign())


def tell(**fields):
    os.write(1, (json.dumps(fields) + "\n").encode())


generator = torch.Generator().manual_seed(0)
inputs, noise = (
    torch.randn(SAMPLES, 8, generator=generator),
    torch.randn(SAMPLES, 1, generator=generator),
)
targets = inputs.sum(1, keepdim=True) + noise
torch.manual_seed(1)
model, seen = torch.nn.Linear(8, 1), torch.nn.Module()
seen.counts = torch.nn.Parameter(torch.zeros(SAMPLES, dtype=torch.float64))
optimizer = Rated(model.parameters(), lr=RATE)
counter = Counting(seen.parameters(), lr=1.0)
job = elastic.init()
job.wrap(model, seen, optimizer, counter)
for index in job.shards(range(SAMPLES), batch_size=8, epochs=8, scale=elastic.Scale(**given)):
    if not hurry.exists():
        time.sleep(0.15)
    first = job.cursor.position
    loss = functional.mse_loss(model(inputs[index]), targets[index])
    (loss + seen.counts[index].mean()).backward()
    optimizer.step()
    counter.step()
    if job.stepped:
        samples = (job.cursor.position or SAMPLES) - first
        tell(size=job.size, samples=samples, left=SAMPLES - first, factor=optimizer.used / RATE)
tell(
    counts=[round(-each) for each in seen.counts.tolist()],
    digest=hashlib.sha256(model.weight.detach().numpy().tobytes()).hexdigest(),
)
