"""A script of twenty lines, with the lines that go wrong put in; and what became of its workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.elastic.forked import ForkedJob

__all__ = ["End", "ends", "run", "write"]

HEAD = """
import ctypes, json, os, sys, time
import torch
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset
from shoal import elastic

torch.set_num_threads(1)
who = os.environ.get("SHOAL_ELASTIC_NAME", "alone")
x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
data = TensorDataset(x, x.sum(1, keepdim=True))
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step(batch):
    functional.mse_loss(model(batch[0]), batch[1]).backward()
    optimizer.step()
    tell(step=job.step, size=job.size)


def tell(**fields):
    print(json.dumps({"at": time.monotonic(), **fields}), flush=True)


def finish():
    values = [v for p in model.parameters() for v in p.flatten().tolist()]
    tell(done=True, step=job.step, values=values)


"""

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class End:
    """How a worker ended, and all that it said."""

    code: int
    said: str

    @property
    def sentence(self) -> str:
        """The last line that is not the script's own."""
        lines = [line for line in self.said.splitlines() if line and not line.startswith("{")]
        return lines[-1] if lines else ""


def write(folder: Path, body: str) -> list[str]:
    """The command of a script: `body` after what all scripts begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "train.py"
    path.write_text(HEAD + body.lstrip("\n"))
    return [str(path)]


def run(
    folder: Path,
    body: str,
    names: Sequence[str] = ("a", "b"),
    *,
    minimum: int | None = None,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[ForkedJob], object] = lambda job: None,
) -> dict[str, End]:
    """Start these workers together (by default none goes on before all are there); how they ended."""
    with ForkedJob(folder, minimum or len(names), environment=environment) as job:
        command = write(folder, body)
        for name in names:
            job.start(name, command)
        meanwhile(job)
        return ends(job)


def ends(job: ForkedJob) -> dict[str, End]:
    """Wait for all workers, and for the coordinator to have heard it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    codes = {name: job.wait(name, max(0.1, deadline - time.monotonic())) for name in job.workers}
    return {name: End(code, (job.folder / f"{name}.log").read_text()) for name, code in codes.items()}
