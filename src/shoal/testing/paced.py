"""Paced jobs on a real cluster: the file that `simulate.paced` runs in virtual time, with real tasks.

Each job trains with the elastic runtime: real workers, coordinators, views, gradients. Its steps are
pauses of the length that the file says, so how fast it is with how many workers is known exactly.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shoal.client import Client
from shoal.cluster.local.settings import load, save
from shoal.objects.job import Job, JobSpec, Resources, Restart, Role, Speed
from shoal.objects.meta import Metadata
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.simulate.paced.compare import Outcome
from shoal.simulate.paced.jobs import PacedFile, PacedJob
from shoal.testing.local import LocalHome, nodes, wait_until

__all__ = ["WORKER", "run"]

_GRACE_SECONDS = 10.0
_COORDINATOR_MILLIS = 100

WORKER = """
import sys, time
import torch
from shoal import elastic

steps, step, loss, samples = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
job = elastic.init()
model = torch.nn.Linear(1, 1)
model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = torch.utils.data.TensorDataset(torch.zeros(steps * samples, 1))
began = time.monotonic()
for (x,) in job.shards(data, batch_size=samples, micro_batch=samples, epochs=1, seed=0):
    tasks = job.size
    due = began + step * (1 + loss * (tasks - 1)) / tasks
    time.sleep(max(0.0, due - time.monotonic()))
    began = time.monotonic()
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


def run(file: PacedFile, policy: str, seed: int, folder: Path, *, patience: float) -> Outcome:
    """As `simulate.paced.run`, in a home of its own below `folder`, with real tasks. What a step costs
    beyond its pause comes on top, and so does the start of each task.

    Raises:
        TimeoutError: the jobs did not end within `patience` seconds.
    """
    script = folder / "paced.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(WORKER)
    jobs = file.jobs(seed)
    room = 1000 * file.slots + min(900, _COORDINATOR_MILLIS * len(jobs))
    shape = {"cpu": CpuMillis(room), "memory": Bytes(64 << 30)}
    declared = nodes(**{f"node{at}": shape for at in range(file.nodes)})
    local = LocalHome(folder / "home", declared, server=True)
    save(local.home.create(), msgspec.structs.replace(load(local.home), policy=policy))
    with local, Client.connect(local.home.path) as client:
        wait_until(lambda: all(node.ready for node in local.cluster.nodes()), what="every node is ready")
        _submit(client, file, jobs, script)
        names = [job.name for job in jobs]
        wait_until(lambda: _ended(client, names), patience, "the end of all jobs")
        found = {name: client.get(Job, "default", name) for name in names}
    failed = [f"{name}: {job.status.message}" for name, job in found.items() if not _well(job)]
    if failed:
        raise RuntimeError(f"jobs failed under {policy}: {'; '.join(failed)}")
    first = min(job.metadata.created for job in found.values())
    return Outcome(
        policy=policy,
        seed=seed,
        completion={name: job.status.finished - job.metadata.created for name, job in found.items()},
        makespan=max(job.status.finished for job in found.values()) - first,
        changes=sum(_changes(job) for job in found.values()),
    )


def _submit(client: Client, file: PacedFile, jobs: Iterable[PacedJob], script: Path) -> None:
    """Each at its time, counted from the first."""
    began = time.monotonic()
    start: float | None = None
    for job in jobs:
        start = job.at if start is None else start
        time.sleep(max(0.0, began + job.at - start - time.monotonic()))
        client.create(_object(file, job, script))


def _object(file: PacedFile, job: PacedJob, script: Path) -> Job:
    samples = max(file.nodes * file.slots, job.maximum)
    words = (str(job.steps), repr(job.step), repr(job.loss), str(samples))
    worker = Role(
        name="worker",
        replicas=job.maximum,
        min_replicas=job.minimum,
        command=(sys.executable, str(script), *words),
        resources=Resources(cpu=CpuMillis(1000)),
    )
    return Job(
        metadata=Metadata(name=job.name),
        spec=JobSpec(
            roles=(worker,),
            runtime="elastic",
            restart=Restart(limit=3),
            grace_period=Seconds(_GRACE_SECONDS),
            speed=Speed(curve=job.speeds, work=float(job.steps), restart=Seconds(file.restart)),
        ),
    )


def _ended(client: Client, names: Iterable[str]) -> bool:
    phases = [client.get(Job, "default", name).status.phase for name in names]
    return all(phase in ("Succeeded", "Failed", "Cancelled") for phase in phases)


def _well(job: Job) -> bool:
    return job.status.phase == "Succeeded" and job.status.attempt == 1


def _changes(job: Job) -> int:
    said = job.status.elastic
    return max(0, len(said.sizes) - 1) if said is not None else 0
