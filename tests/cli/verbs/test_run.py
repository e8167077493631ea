"""`shoal run` against a real server whose controllers the test plays."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.job import Job, Scheduling, Topology
from shoal.objects.kinds import JOB
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Node
from shoal.objects.quantities import CpuMillis
from tests.cli.conftest import Shell
from tests.cli.world import a_cluster, status, write_log
from tests.server.harness import LiveServer, eventually

Play = Callable[[Job], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", cluster=a_cluster())
    yield live
    live.close()


@pytest.fixture
def played(server: LiveServer) -> Iterator[Callable[[Play], None]]:
    """Calls the function with the first job that appears, from a thread."""
    threads: list[threading.Thread] = []

    def start(play: Play) -> None:
        def wait_and_play() -> None:
            with server.client() as client:
                eventually(lambda: bool(client.list(JOB).records))
                play(client.list(JOB).records[0].object)

        threads.append(threading.Thread(target=wait_and_play))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(30)


@pytest.mark.slow
def test_it_follows_the_job_to_its_end(
    sh: Shell, server: LiveServer, played: Callable[[Play], None]
) -> None:
    def play(job: Job) -> None:
        write_log(server, job, 0, b"hello\n")
        status(server, job, phase="Succeeded", started=1.0, finished=3.0, exitCode=0)

    played(play)
    said = sh("run", "--", "true", "-x")
    assert (said.code, said.out) == (0, "[worker 0] hello\n")
    name = said.err.split()[0]
    assert said.err.splitlines()[0] == f"{name} is submitted"
    for words in (f"shoal logs -f {name}", f"shoal describe {name}", f"shoal cancel {name}"):
        assert words in said.err
    assert f"{name} succeeded after 2.0s" in said.err
    assert "started Shoal" not in said.err  # it was up


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"phase": "Failed", "exitCode": 3, "message": "worker 0 exited with 3"}, 3),
        ({"phase": "Failed", "exitCode": 137}, 137),
        ({"phase": "Failed"}, 100),
        ({"phase": "Cancelled"}, 103),
    ],
)
def test_its_exit_code_is_the_jobs(
    sh: Shell, server: LiveServer, played: Callable[[Play], None], ended: dict[str, Any], code: int
) -> None:
    played(lambda job: status(server, job, started=1.0, finished=3.0, **ended) and None)
    assert sh("run", "--", "true").code == code


@pytest.mark.slow
def test_a_job_that_the_cluster_cannot_run_ends_with_one_sentence(
    sh: Shell, server: LiveServer, played: Callable[[Play], None]
) -> None:
    why = "role worker asks for an image, which needs a cluster that runs containers"
    failed = {"phase": "Failed", "reason": "Unsupported", "message": why, "finished": 3.0}
    played(lambda job: status(server, job, **failed) and None)
    said = sh("run", "--", "true")
    name = said.err.split()[0]
    assert said.code == 100
    assert [line for line in said.err.splitlines() if why in line] == [
        f"{name} failed before it started: {why}"
    ]


@pytest.mark.slow
def test_it_says_what_the_job_waits_for(
    sh: Shell, server: LiveServer, played: Callable[[Play], None]
) -> None:
    def play(job: Job) -> None:
        for message in ("it needs 4 cpu", "it needs 4 cpu", "it needs 3 cpu"):
            held = Scheduling(code="NoRoom", message=message)
            status(server, job, writer="scheduler", scheduling=held)
        restarting = Condition(type="Restarting", status="True", reason="Backoff", changed=5.0)
        status(server, job, phase="Running", started=1.0, failures=1, conditions=[restarting])
        status(server, job, phase="Suspended", conditions=[])
        status(server, job, phase="Succeeded", finished=3.0)

    played(play)
    said = sh("run", "--restart", "2", "--", "true")
    assert said.err.count("waits: it needs 4 cpu") <= 1
    assert "waits: it needs 3 cpu" in said.err or "succeeded" in said.err


@pytest.mark.slow
def test_detached(sh: Shell, client: Client) -> None:
    said = sh("run", "-d", "--name", "mine", "--", "true")
    assert (said.code, said.out) == (0, "job/mine\n")
    assert "shoal logs -f job/mine" in said.err
    job = client.get(Job, "default", "mine")
    assert job.spec.roles[0].command == ("true",)
    assert job.spec.roles[0].working_directory == str(Path.cwd())
    assert sh("run", "-d", "-o", "json", "--", "true").document["kind"] == "Job"
    again = sh("run", "-d", "--name", "mine", "--", "true")
    assert (again.code, again.out) == (4, "")


def test_what_is_said_reaches_the_job(sh: Shell, client: Client) -> None:
    said = sh(
        "run", "-d", "--name", "all", "--workers", "2", "--priority", "production", "--cpu", "500m",
        "--memory", "1Gi", "--env", "A=b", "--restart", "2", "--wall-time", "1h",
        "--gpu", "0.5", "--node-hours", "2.5", "--within", "node", "--isolation", "strict", "--",
        "sh", "-c", "echo --workers 9",
    )  # fmt: skip
    assert said.code == 0, said.err
    spec = client.get(Job, "default", "all").spec
    (role,) = spec.roles
    assert role.command == ("sh", "-c", "echo --workers 9")
    assert (role.replicas, role.resources.cpu, role.resources.memory) == (2, 500, 2**30)
    assert (spec.runtime, spec.isolation, spec.restart.limit) == ("torchrun", "strict", 2)
    assert (spec.priority, spec.limits.wall_time, role.env["A"]) == ("production", 3600, "b")
    assert (role.resources.gpu, role.resources.gpu_share, spec.limits.node_hours) == (0, 0.5, 2.5)
    assert spec.topology == Topology(required="node")


@pytest.mark.slow
def test_processors_come_from_the_clusters_nodes(sh: Shell, server: LiveServer, client: Client) -> None:
    from shoal.objects.kinds import NODE
    from shoal.store.base import SYSTEM

    for name in ("n1", "n2"):
        node = client.create(Node(metadata=Metadata(name=name, namespace="")))
        server.store.patch_status(
            NODE, "", name, actor=SYSTEM, writer="node", uid=node.metadata.uid, counter=0,
            fields={"capacity": {"cpu": CpuMillis(1000).text()}},
        )  # fmt: skip
    sh("run", "-d", "--name", "four", "--workers", "4", "--", "true")
    assert client.get(Job, "default", "four").spec.roles[0].resources.cpu == 450


def test_a_dry_run_prints_a_manifest(sh: Shell, tmp_path: Path) -> None:
    said = sh("run", "--dry-run", "-o", "yaml", "--name", "mine", "--array", "0-9%2", "--", "true")
    assert said.code == 0
    assert "array:" in said.out
    assert not (tmp_path / "home").exists()  # nothing was started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "there is no command to run"),
        (["--", "no-such-program"], 127, "no-such-program: command not found"),
        (["--workers", "2", "--max", "3", "--", "true"], 2, "give one of the two"),
        (["--workers", "0", "--", "true"], 2, "--workers"),
        (["--cpu", "lots", "--", "true"], 2, "--cpu"),
        (["--array", "a-b", "--", "true"], 2, "--array"),
        (["--env", "NO_SUCH_VARIABLE", "--", "true"], 2, "NO_SUCH_VARIABLE"),
        (["--runtime", "slurm", "--", "true"], 2, "slurm"),
        (["--queue", "nope", "--", "true"], 2, "there is no queue nope"),
        (["--name", "Not A Name", "--", "true"], 2, "Not A Name"),
    ],
)
def test_what_cannot_run(sh: Shell, server: LiveServer, words: list[str], code: int, says: str) -> None:
    said = sh("run", *words)
    assert (said.code, said.out) == (code, "")
    assert says in said.err
    with server.client() as client:
        assert not client.list(JOB).records


def test_a_file_that_is_no_program(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)")
    said = sh("run", "--", str(script))
    assert (said.code, f"did you mean: python {script}?" in said.err) == (126, True)


def test_a_directory_that_is_gone(
    sh: Shell, server: LiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "this directory does not exist any more" in sh("run", "--", "true").err


@pytest.mark.slow
def test_ctrl_c_cancels_and_waits_for_the_end(
    sh: Shell, server: LiveServer, client: Client, played: Callable[[Play], None]
) -> None:
    def play(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # `run` listens since before the job was there
        eventually(lambda: client.get(Job, *job.key).spec.cancelled)
        write_log(server, job, 0, b"saved\n")
        status(server, job, phase="Cancelled", finished=3.0)

    played(play)
    said = sh("run", "--", "true")
    assert said.code == 103
    assert "cancelling job/true-" in said.err
    assert "press Ctrl-C again to leave" in said.err
    assert said.out == "[worker 0] saved\n"


@pytest.mark.slow
def test_the_second_ctrl_c_leaves(
    sh: Shell, server: LiveServer, client: Client, played: Callable[[Play], None]
) -> None:
    def play(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # `run` listens since before the job was there
        eventually(lambda: client.get(Job, *job.key).spec.cancelled)
        os.kill(os.getpid(), signal.SIGINT)

    played(play)
    said = sh("run", "--", "true")
    assert said.code == 130
    assert "is being cancelled; see shoal get job/true-" in said.err


@pytest.mark.slow
def test_a_cancel_that_fails_is_said_and_the_next_ctrl_c_leaves(
    sh: Shell,
    server: LiveServer,
    client: Client,
    played: Callable[[Play], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = threading.Event()

    def refuse(*_: object) -> None:
        tried.set()
        raise Unavailable("the disk is full")

    def play(job: Job) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert tried.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Client, "cancel", refuse)
    played(play)
    said = sh("run", "--", "true")
    assert said.code == 130
    assert "was not cancelled, and goes on; see shoal get job/true-" in said.err


@pytest.mark.slow
def test_a_job_that_is_deleted_meanwhile(
    sh: Shell, server: LiveServer, client: Client, played: Callable[[Play], None]
) -> None:
    played(lambda job: client.delete(JOB, *job.key) and None)
    said = sh("run", "--", "true")
    assert (said.code, "was deleted while it was being followed" in said.err) == (102, True)
    with pytest.raises(NotFound):
        client.get(Job, "default", "true")
