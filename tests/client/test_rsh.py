"""mpirun's remote shell, beside real tasks."""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal import rendezvous
from shoal.client import rsh
from shoal.objects.job import Job, JobSpec, Role
from shoal.objects.meta import Metadata
from shoal.objects.task import RENDEZVOUS_FOLDER, Endpoint, Placement, TaskBootstrap, TaskSpec, task_name
from shoal.store.base import SYSTEM
from shoal.testing.cluster import start_group
from shoal.testing.local import LocalHome, nodes, wait_until
from tests.rendezvous.test_mpi import PROGRAM, RANK, ranks
from tests.server.harness import LiveServer
from tests.support.require import require


def test_called_wrongly(capfd: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("worker-0",), ("worker", "true"), ("worker-x", "true"), ("-1", "true")):
        assert rsh.main(words, {}) == 255
        assert "ROLE-INDEX" in capfd.readouterr().err


def test_outside_of_a_task(capfd: pytest.CaptureFixture[str]) -> None:
    assert rsh.main(("worker-0", "true"), {"SHOAL_API": "unix:///x"}) == 255
    assert "SHOAL_NAMESPACE is not set" in capfd.readouterr().err


def test_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_API", f"unix://{tmp_path}/api.sock")
    said = {"SHOAL_NAMESPACE": "default", "SHOAL_JOB": "mpi", "SHOAL_RSH_SECONDS": "0.2"}
    assert rsh.main(("worker-0", "true"), {**os.environ, **said}) == 255
    assert "worker-0: " in capfd.readouterr().err


class Mpi:
    """A server, two nodes, and the tasks of a job, told as the platform tells them."""

    def __init__(self, folder: Path) -> None:
        self.local = LocalHome(folder / "home", nodes(one={}, two={}))
        self.local.up()
        self.server = LiveServer(folder / "home", cluster=self.local.cluster)
        self._ended = threading.Event()
        self._syncing = threading.Thread(target=self._sync, daemon=True)
        self._syncing.start()

    def _sync(self) -> None:
        """Keep the server's cache of tasks up to date, as its controllers' threads do."""
        tasks = self.server.with_caches().tasks
        while not self._ended.is_set():
            tasks.sync()
            tasks.ready.wait(0.1)

    def close(self) -> None:
        self._ended.set()
        self._syncing.join(30)
        self.server.close()
        self.local.close()

    def start(self, *roles: Role) -> tuple[TaskSpec, ...]:
        made = self.server.store.create(
            Job(metadata=Metadata(name="mpi"), spec=JobSpec(roles=roles, runtime="mpi")), actor=SYSTEM
        )
        uid = made.metadata.uid
        specs = tuple(
            TaskSpec(
                namespace="default", name=task_name("mpi", uid, role.name, index, 1), job="mpi",
                job_uid=uid, role=role.name, index=index, attempt=1, incarnation=1,
                placement=Placement(node="one" if index == 0 else "two"), command=role.command,
            )
            for role in roles
            for index in range(role.replicas)
        )  # fmt: skip

        def render(
            group: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
        ) -> dict[str, TaskBootstrap]:
            told = rendezvous.render(made, 1, group, endpoints)
            return {name: self._with_token(made, each) for name, each in told.items()}

        start_group(self.local.cluster, specs, render)
        return specs

    def output(self, spec: TaskSpec) -> str:
        """What the task has written, once it has ended."""
        key = spec.key
        wait_until(lambda: self.local.phase(key) == "Ended", 90.0, f"the end of {spec.name}")
        text = b"".join(self.local.cluster.logs(key)).decode()
        task = self.local.task(key)
        assert task is not None
        assert task.outcome is not None
        assert task.outcome.exit_code == 0, text
        return text

    def _with_token(self, job: Job, told: TaskBootstrap) -> TaskBootstrap:
        env = {
            "SHOAL_API": f"unix://{self.server.home.tasks_socket}",
            "SHOAL_TOKEN_FILE": f"{RENDEZVOUS_FOLDER}/token",
        }
        files = {"token": self.server.job_tokens.mint(job)}
        return TaskBootstrap(
            env={**told.env, **env}, files={**told.files, **files}, command=told.command
        )


@pytest.fixture
def mpi(tmp_path: Path) -> Iterator[Mpi]:
    if shutil.which("mpirun") is None or ctypes.util.find_library("mpi") is None:
        require("mpi", "no mpirun is installed (openmpi-bin)")
    mpi = Mpi(tmp_path)
    yield mpi
    mpi.close()


def said(output: str) -> str:
    """Without what Open MPI warns of now and then: that it lost a race for a child's group."""
    return "\n".join(line for line in output.splitlines() if "plm:rsh: Warning: setpgid" not in line)


@pytest.mark.process
@pytest.mark.slow
def test_ranks_run_beside_their_own_tasks(mpi: Mpi) -> None:
    """Each rank shows its own task's scratch folder: it is where that task is."""
    library = ctypes.util.find_library("mpi")
    shown = PROGRAM.replace('os.environ.get("TASK", "launcher")', 'os.environ["SHOAL_TASK"]')
    command = ("mpirun", "-n", "3", "python3", "-c", shown, str(library))
    specs = mpi.start(Role(name="worker", replicas=3, command=command))
    text = said(mpi.output(specs[0]))
    assert ranks(text) == [
        f"rank {rank} of 3 sum 6 beside {spec.name}" for rank, spec in enumerate(specs)
    ]
    assert re.sub(RANK, "", text).split() == [], "and nothing else"
    for spec in specs[1:]:
        assert mpi.local.phase(spec.key) == "Running"  # hosts wait to be stopped
        mpi.local.cluster.stop(spec.key, grace_seconds=10.0, reason="JobFinished")
        mpi.output(spec)


@pytest.mark.process
@pytest.mark.slow
def test_the_exit_code_is_the_commands(mpi: Mpi) -> None:
    script = (
        'import os, subprocess, sys; r = [os.environ["SHOAL_RENDEZVOUS"] + "/rsh"]; '
        'print(subprocess.run([*r, "worker-0", "exit 7"]).returncode); '
        'print(subprocess.run([*r, "worker-0", "echo", "$SHOAL_ROLE", ">&2"], stderr=-1).stderr); '
        'e = {**os.environ, "SHOAL_RSH_SECONDS": "0.3"}; '
        'print(subprocess.run([*r, "worker-9", "true"], env=e, stderr=-1).returncode)'
    )
    launcher = Role(name="launcher", command=("python3", "-c", script))
    specs = mpi.start(launcher, Role(name="worker", command=("sleep", "60")))
    assert mpi.output(specs[0]).splitlines() == ["7", "b'worker\\n'", "255"]
