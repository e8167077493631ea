"""What one job of an application has shown of its speed sizes the next one at once: real workers, whose
steps are pauses, so that two of them are faster than one and than four."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.ranges import IndexSet
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

pytest.importorskip("torch")

PATIENCE_SECONDS = 180.0
BEST = 2
STEPS = 40
"""So many at one size are looked at several times: coordinators report every two seconds."""
LONG_ENOUGH_STEPS = 290
"""So many with four take more than a minute: then it is believed that they are slower."""
SCRIPT = """
import os, time
import torch
from shoal import elastic

torch.set_num_threads(1)
job = elastic.init()
model = torch.nn.Linear(1, 1)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = torch.utils.data.TensorDataset(torch.zeros(100_000, 1))
began = time.monotonic()
for (x,) in job.shards(data, batch_size=8, micro_batch=8, epochs=1, seed=0):
    pause = 0.24 / job.size + 0.06 * (job.size - 1)  # 0.24, 0.18, 0.20, 0.24 s
    time.sleep(max(0.0, began + pause - time.monotonic()))
    began = time.monotonic()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Two nodes; each has room for three workers of half a core and for coordinators."""
    shape = {"cpu": CpuMillis(1900), "memory": Bytes(8 << 30)}
    with Standing(tmp_path_factory.mktemp("app") / "home", nodes(one=shape, two=shape)) as standing:
        yield standing


def trains(home: Standing, script: Path, application: str) -> Job:
    worker = role("", replicas=4, minReplicas=1, resources={"cpu": "500m"})
    worker["command"] = [sys.executable, str(script)]
    speed = {"application": application} if application else {"restart": "100ms"}
    return home.job(worker, runtime="elastic", speed=speed)


def until_world(home: Standing, job: Job, size: int, steps: int = 1) -> None:
    """It has made so many steps, and more, with so many workers."""
    begun: list[int] = []

    def done() -> bool:
        status = home.look(job).status
        assert status.phase not in ("Failed", "Cancelled", "Succeeded"), status
        said = status.elastic
        if said is None or said.world != size:
            begun.clear()
            return False
        begun.append(said.step)
        return said.step >= begun[0] + steps

    wait_until(done, PATIENCE_SECONDS, f"{job.metadata.name} trains with {size}")


def workers(job: Job) -> int:
    """That it was given."""
    slots = job.status.allocation.slots
    return sum(len(IndexSet.parse(each.indices)) for each in slots if each.role == "worker")


@pytest.mark.soak
def test_the_second_job_of_an_application_has_its_best_size_from_its_first_allocation(
    home: Standing, tmp_path: Path
) -> None:
    """The first tries its largest, is made smaller for somebody else, and is then as large as is best;
    the second is that from the start, though the cluster is empty. One of no application is not."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    first = trains(home, script, "of-pauses")
    until_world(home, first, 4, LONG_ENOUGH_STEPS)
    production = home.job(
        role("exec sleep 600", resources={"cpu": "500m"}, replicas=4), priority="production"
    )
    home.running(production)
    until_world(home, first, BEST, STEPS)
    home.client.cancel("default", production.metadata.name)
    home.finished(production)
    until_world(home, first, BEST, STEPS)
    why = home.client.explain(JOB, "default", first.metadata.name).message
    assert f"steps a second with {BEST} tasks" in why and "it is given no more for now" in why
    home.client.cancel("default", first.metadata.name)
    home.finished(first)

    second = trains(home, script, "of-pauses")
    given = home.until(second, lambda job: bool(job.status.allocation.slots))
    assert (given.status.allocation.id, workers(given)) == (1, BEST)
    other = trains(home, script, "")
    until_world(home, other, 4)
    home.client.cancel("default", other.metadata.name)
    home.finished(other)
    until_world(home, second, BEST, STEPS)
    time.sleep(1.0)
    assert home.look(second).status.allocation.id == 1, "it was never changed"
    home.clear()
