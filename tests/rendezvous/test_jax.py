from __future__ import annotations

import importlib.util

import pytest

from tests.support.require import require

from .conftest import Group, a_job, python, told_of

PROGRAM = """
import os
import jax

jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)
from jax.experimental import multihost_utils
import numpy

everyone = multihost_utils.process_allgather(numpy.array([jax.process_index() + 1]))
print("of", jax.process_count(), "sum", int(everyone.sum()), flush=True)
jax.distributed.shutdown()
"""


def test_both_spellings() -> None:
    told = told_of(a_job("jax"), ("worker", 0), ("worker", 2), attempt=2)
    assert {n: v for n, v in told[1].env.items() if not n.startswith(("SHOAL_", "PYTHON"))} == {
        "JAX_COORDINATOR_ADDRESS": "worker-0.example:2222",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "COORDINATOR_ADDRESS": "worker-0.example",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }


def test_on_one_machine_it_listens_there_only() -> None:
    (told,) = told_of(a_job("jax"), ("worker", 0), host="127.0.0.1")
    assert told.env["JAX_COORDINATOR_BIND_ADDRESS"] == "127.0.0.1:2222"


@pytest.mark.process
@pytest.mark.slow
def test_real_processes_join_and_compute(group: Group) -> None:
    if importlib.util.find_spec("jax") is None:
        require("jax", "jax is not installed")
    env = {"JAX_PLATFORMS": "cpu"}
    group.start(a_job("jax"), [("worker", 0), ("worker", 2)], env=env, command=python(PROGRAM))
    assert all("of 2 sum 3" in text for text in group.outputs())
