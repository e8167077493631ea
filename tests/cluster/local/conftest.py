"""Real homes with real agents, gone after each test."""

import itertools
import sys

import pytest

from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskSpec, Told, task_name
from shoal.testing.local import LocalHome, nodes

_numbers = itertools.count(1)


@pytest.fixture
def make_home(tmp_path):
    """Makes a home with the nodes that are declared; it is up, and checked when the test ends."""
    homes = []

    def make(server=False, environment=None, **declared):
        local = LocalHome(
            tmp_path / f"home{len(homes)}",
            nodes(**(declared or {"one": {}})),
            server=server,
            environment=environment,
        )
        homes.append(local)
        local.up()
        return local

    yield make
    for local in homes:
        local.close()


@pytest.fixture
def make_spec():
    """Makes a task of a job of its own, unless `job` names one."""

    def make(command, *, node="one", index=0, incarnation=1, job="", cpu=100, memory=None, **fields):
        job = job or f"job{next(_numbers)}"
        uid = f"{abs(hash(job)) % (1 << 32):08x}-0000"
        return TaskSpec(
            namespace="default",
            name=task_name(job, uid, "worker", index, incarnation),
            job=job,
            job_uid=uid,
            role="worker",
            index=index,
            attempt=1,
            incarnation=incarnation,
            placement=Placement(node=node, devices=fields.pop("devices", ())),
            command=tuple(command),
            cpu=CpuMillis(cpu),
            memory=None if memory is None else Bytes(memory),
            **fields,
        )

    return make


@pytest.fixture
def tell_nothing():
    """A rendezvous that adds nothing."""
    return lambda group, endpoints: {spec.name: Told() for spec in group}


def python(source):
    """A command that runs this Python."""
    return (sys.executable, "-I", "-S", "-c", source)
