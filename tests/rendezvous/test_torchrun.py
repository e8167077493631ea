from __future__ import annotations

import importlib.util
import sys

import pytest

from shoal.objects.job import Resources, Role
from shoal.objects.quantities import CpuMillis
from shoal.testing.local import wait_until
from tests.support.require import require

from .conftest import UID, Group, a_job, python, told_of

PROGRAM = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(rank))).sum().backward()
gradient = model.module.weight.grad.sum()
print(f"of {dist.get_world_size()} sum {total.item():.0f} gradient {gradient.item():.3f}", flush=True)
dist.barrier()  # or a process whose peer has gone may abort in torch on its way out
del model, gradient  # as may one whose reducer outlives its group
dist.destroy_process_group()
"""

WRITES_ITS_SUM = """
import os
path = os.environ["HOME"] + f"/sum-{rank}"
with open(path + ".part", "w") as file:
    file.write(f"{total.item():.0f}")
os.rename(path + ".part", path)
"""


def test_what_torchrun_tells_a_worker() -> None:
    roles = (
        Role(name="worker", replicas=3, resources=Resources(cpu=CpuMillis(2500), gpu=4)),
        Role(name="master"),
    )
    job = a_job("torchrun", *roles, limit=7)
    told = told_of(job, ("master", 0), ("worker", 0), ("worker", 2), attempt=3)
    env = {n: v for n, v in told[2].env.items() if not n.startswith(("SHOAL_", "PYTHON"))}
    assert env == {
        "MASTER_ADDR": "master-0.example",
        "MASTER_PORT": "2222",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_NAME": "worker",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": f"{UID}-3",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "7",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "2",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "master-0.example",
        "PET_MASTER_PORT": "2222",
        "PET_RDZV_ID": f"{UID}-3",
        "PET_MAX_RESTARTS": "0",
    }


def test_on_one_machine_it_meets_over_the_loopback() -> None:
    (told,) = told_of(a_job("torchrun"), ("worker", 0), host="127.0.0.1")
    assert told.env["GLOO_SOCKET_IFNAME"] == told.env["NCCL_SOCKET_IFNAME"]


def test_elastic_starts_from_the_same() -> None:
    members = [("worker", 0), ("worker", 1)]
    elastic, torchrun = (told_of(a_job(runtime), *members) for runtime in ("elastic", "torchrun"))
    for one, other in zip(elastic, torchrun, strict=True):
        assert one.env == {**other.env, "SHOAL_RUNTIME": "elastic"}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_real_script_runs_unchanged(group: Group) -> None:
    if importlib.util.find_spec("torch") is None:
        require("torch", "torch is not installed")
    members = [("worker", 0), ("worker", 1), ("worker", 4)]
    group.start(a_job("torchrun"), members, env={}, command=python(PROGRAM))
    assert all("of 3 sum 6 gradient 8.000" in text for text in group.outputs(200.0))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_command_that_is_torchrun_itself(group: Group) -> None:
    if importlib.util.find_spec("torch") is None:
        require("torch", "torch is not installed")
    script, results = group.folder / "train.py", [group.folder / f"sum-{rank}" for rank in (0, 1)]
    script.write_text(PROGRAM + WRITES_ITS_SUM)
    command = [sys.executable, "-m", "torch.distributed.run", str(script)]
    group.start(a_job("torchrun"), [("worker", 0), ("worker", 1)], env={}, command=command)
    # not their exit: torchrun's last barrier may wait up to 300 s for a peer that has left already
    wait_until(lambda: all(file.exists() for file in results), 200.0, "both workers' sums")
    assert [file.read_text() for file in results] == ["3", "3"]
