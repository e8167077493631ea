"""What the workers of a soak run: every sample is counted, and a small network is trained beside it.

Entry i of `counts` falls by one each time sample i is applied: its gradient in a step of N samples is
1/N, and plain SGD takes it with a rate of N. The network brings what else a state has: dropout (random
numbers), AdamW (moments) and a schedule.

Arguments: samples, batch, epochs, seconds a step, folder. In the folder, `hurry` ends the waiting and
`resize` holds the number of workers that the script is to ask for; checkpoints go to `checkpoints`.
"""

import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional

from shoal import elastic

samples, batch, epochs, pace = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
folder = Path(sys.argv[5])
hurry, resize = folder / "hurry", folder / "resize"
DIGEST_EVERY = 50
ASK_SECONDS = 0.5
torch.set_num_threads(1)
faulthandler.register(signal.SIGUSR1)  # a soak that hangs asks where
torch.manual_seed(1)


class Data(torch.utils.data.Dataset):
    """Sample i is its number and a point that follows from it."""

    points = torch.randn(samples, 16)

    def __len__(self):
        return samples

    def __getitem__(self, index):
        return index, self.points[index]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = torch.nn.Parameter(torch.zeros(samples, dtype=torch.float64))
        self.network = torch.nn.Sequential(
            torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1),
            torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1),
        )  # fmt: skip

    def forward(self, index, x):
        loss = functional.mse_loss(self.network(x), x.sum(1, keepdim=True).tanh())
        return loss + self.counts[index].mean()


def tell(**fields):
    os.write(1, (json.dumps({"at": time.monotonic(), **fields}) + "\n").encode())


def digest():
    """Of everything that must be the same on all."""
    found = hashlib.sha256()
    for each in model.parameters():
        found.update(each.detach().numpy().tobytes())
        for _, slot in sorted(adam.state.get(each, {}).items()):
            found.update(slot.numpy().tobytes())
    return found.hexdigest()


def changed(view):
    tell(epoch=view.epoch, members=[member.name for member in view.members])


def incarnation():
    """Which life of this process is training."""
    return next(m.incarnation for m in job.view.members if m.name == os.environ["SHOAL_ELASTIC_NAME"])


model = Model()
sgd = torch.optim.SGD([model.counts], lr=1.0)
adam = torch.optim.AdamW(model.network.parameters(), lr=0.001)
schedule = torch.optim.lr_scheduler.ExponentialLR(adam, 0.99995)
job = elastic.init(checkpoint=folder / "checkpoints", checkpoint_every=10.0)
model, sgd, adam, schedule = job.wrap(model, sgd, adam, schedule)
job.on_change(changed)
asked_at = 0.0
held = None
for index, x in job.shards(Data(), batch_size=batch, epochs=epochs, seed=1):
    if pace and hurry.exists():
        pace = 0.0
    time.sleep(pace)
    if job.rank == 0 and time.monotonic() - asked_at > ASK_SECONDS and resize.exists():
        asked_at = time.monotonic()
        job.resize(int(resize.read_text()))
    sgd.param_groups[0]["lr"] = float(min(batch, samples - job.cursor.position))
    adam.zero_grad()
    sgd.zero_grad()
    model(index, x).backward()
    sgd.step()
    adam.step()
    schedule.step()
    if job.stepped:
        life = incarnation()
        if held is not None and held[:2] == (job.step - 1, life):
            tell(
                of=held[0], digest=held[2]
            )  # the same life goes on from it: it is no step that was void
        held = (job.step, life, digest()) if job.step % DIGEST_EVERY == 0 else None
        tell(step=job.step, life=life, size=job.size, committed=job.committed)
counted = -model.counts.detach()
tell(
    done=True,
    exact=bool((counted.round() == epochs).all()) and (counted - epochs).abs().max().item() < 1e-6,
    low=counted.min().item(),
    high=counted.max().item(),
    last=job.step,
    digest=digest(),
)
