"""Real homes with real agents, gone after each test, or after a module's tests that leave no harm."""

import contextlib
import itertools
import subprocess

import pytest

from shoal.client import Client
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Placement, TaskSpec, task_name
from shoal.testing.local import LocalHome, nodes, wait_until
from tests.support.require import require

_numbers = itertools.count(1)


@pytest.fixture
def make_home(tmp_path):
    """Makes a home with the nodes that are declared; it is up, and checked when the test ends."""
    with _homes(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_home(tmp_path_factory):
    """As `make_home`, for all tests of a module."""
    with _homes(tmp_path_factory.mktemp("shared")) as make:
        yield make


@contextlib.contextmanager
def _homes(folder):
    homes = []

    def make(server=False, environment=None, **declared):
        local = LocalHome(
            folder / f"home{len(homes)}",
            nodes(**(declared or {"one": {}})),
            server=server,
            environment=environment,
        )
        homes.append(local)
        local.up()
        return local

    try:
        yield make
    finally:
        for local in homes:
            local.close()


@pytest.fixture
def run_job():
    """Runs a job of the server's and returns its task: the server ends tasks of jobs unknown to it."""

    def run(local):
        with Client.connect(local.home.path) as client:
            client.run(["sleep", "600"], cpu="100m", restarts=0)
        wait_until(lambda: [task.phase for task in local.cluster.list().tasks] == ["Running"])
        return local.cluster.list().tasks[0]

    return run


@pytest.fixture(scope="session")
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


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, path):
        self.path = path

    def fill(self):
        """Take all the room that is left; what gives it back."""
        filler = self.path / "filler"
        with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        return filler.unlink


@pytest.fixture
def small_disk(tmp_path):
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        require("mount", f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield SmallDisk(path)
    subprocess.run(["umount", "--lazy", str(path)], check=True)
