"""The script of a small training job: its steps take a tenth of a second, until it is told to hurry."""

from __future__ import annotations

__all__ = ["script"]


def script(samples: int, batch: int, epochs: int) -> str:
    """Steps of `batch` samples; a file `hurry` in the job's output lets them follow at once."""
    return f"""
import os, time
import torch
from shoal import elastic

torch.manual_seed(0)
torch.set_num_threads(1)
job = elastic.init()
model = torch.nn.Linear(8, 2)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = torch.utils.data.TensorDataset(torch.randn({samples}, 8), torch.randint(0, 2, ({samples},)))
for x, y in job.shards(data, batch_size={batch}, epochs={epochs}, seed=0):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    if not os.path.exists(os.environ["SHOAL_OUTPUT"] + "/hurry"):
        time.sleep(0.1)
"""
