"""What `shoal run` and `shoal wait` give back to a shell, whatever ends the job."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import PATIENCE_SECONDS, Ran, Standing, begin_cli, python

pytestmark = [pytest.mark.process, pytest.mark.slow]

JOB_FAILED, NOT_FINISHED, JOB_NOT_FOUND, JOB_CANCELLED = 100, 101, 102, 103
STAY = ("--", "sh", "-c", "echo up; exec sleep 60")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
        ("kill -SEGV $$", 139),
        ("exec nosuch-program", 127),
        ("exec /etc/passwd", 126),
    ],
)
def test_run_gives_the_tasks_exit_code_back(guarded: Standing, script: str, code: int) -> None:
    ran = guarded.cli("run", "--name", "coded", "--", "sh", "-c", f"echo out; {script}")
    job = guarded.adopt(JOB, "coded")
    assert (ran.code, b"out" in ran.out) == (code, True), ran.err
    assert job.status.exit_code == code
    assert guarded.cli("wait", "job/coded").code == (0 if code == 0 else JOB_FAILED)


def test_the_deciding_task_gives_the_code(guarded: Standing) -> None:
    script = "test $SHOAL_INDEX = 1 || exec sleep 60; sleep 0.2; exit 42"
    ran = guarded.cli("run", "--name", "several", "--workers", "3", "--", "sh", "-c", script)
    job = guarded.adopt(JOB, "several")
    assert ran.code == 42, ran.err
    assert "-worker-1-" in job.status.decided_by


@pytest.fixture
def runs() -> Iterator[ThreadPoolExecutor]:
    """For commands that are to be followed while something else happens."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def follow(
    standing: Standing, runs: ThreadPoolExecutor, name: str, *words: str
) -> tuple[Future[Ran], Job]:
    """`shoal run` in a thread; returns once its job runs."""
    ran = runs.submit(standing.cli, "run", "--name", name, *words)

    def there() -> bool:
        assert not ran.done(), ran.result()
        return is_there(standing, name)

    wait_until(there, PATIENCE_SECONDS, f"job {name} is there")
    return ran, standing.running(standing.adopt(JOB, name))


def is_there(standing: Standing, name: str) -> bool:
    return name in [record.object.metadata.name for record in standing.client.list(JOB).records]


def test_too_much_memory_is_128_and_9_and_said(guarded: Standing) -> None:
    grow = python("import time; held = b'x' * (300 << 20); time.sleep(60)")
    ran = guarded.cli("run", "--name", "greedy", "--memory", "64Mi", "--", *grow)
    guarded.adopt(JOB, "greedy")
    assert ran.code == 137, ran.err
    assert "memory" in ran.err.splitlines()[-1]


def test_a_job_that_no_task_decided_has_failed_with_100(guarded: Standing) -> None:
    ran = guarded.cli("run", "--name", "endless", "--wall-time", "500ms", *STAY)
    guarded.adopt(JOB, "endless")
    assert ran.code == JOB_FAILED, ran.err
    assert "wall time" in ran.err


def test_a_task_that_is_killed_from_outside_is_128_and_the_signal(
    guarded: Standing, runs: ThreadPoolExecutor
) -> None:
    ran, job = follow(guarded, runs, "killed", *STAY)
    os.kill(guarded.processes(job).command_pid, signal.SIGKILL)
    assert ran.result().code == 137


def test_a_killed_supervisor_costs_a_start_and_no_exit_code(
    guarded: Standing, runs: ThreadPoolExecutor
) -> None:
    script = 'test "$SHOAL_INCARNATION" -gt 1 && exit 6; exec sleep 60'
    ran, job = follow(guarded, runs, "orphan", "--", "sh", "-c", script)
    os.kill(guarded.processes(job).supervisor_pid, signal.SIGKILL)
    assert ran.result().code == 6, ran.result().err
    status = guarded.look(job).status
    assert (status.infrastructure_failures, status.failures) == (1, 1)


def test_cancelled_or_deleted_by_somebody_else(guarded: Standing, runs: ThreadPoolExecutor) -> None:
    cancelled, _ = follow(guarded, runs, "revoked", *STAY)
    deleted, job = follow(guarded, runs, "removed", *STAY)
    waited = runs.submit(guarded.cli, "wait", "revoked")
    assert guarded.cli("cancel", "job/revoked").code == 0
    assert guarded.cli("delete", "-y", "job/removed").code == 0
    assert cancelled.result().code == JOB_CANCELLED
    assert waited.result().code == JOB_CANCELLED
    assert "was deleted" in deleted.result().refused(JOB_NOT_FOUND)
    guarded.until_gone(JOB, "default", job.metadata.name)
    assert "removed" in guarded.cli("wait", "removed").refused(JOB_NOT_FOUND)


def test_not_finished_in_time_is_101(guarded: Standing, runs: ThreadPoolExecutor) -> None:
    ran, job = follow(guarded, runs, "long", *STAY)
    assert "long" in guarded.cli("wait", "--timeout", "200ms", "long").refused(NOT_FINISHED)
    assert guarded.look(job).status.phase == "Running", "waiting changes nothing"
    guarded.client.cancel("default", "long")
    assert ran.result().code == JOB_CANCELLED


def test_a_job_outlives_the_terminal_that_follows_it(guarded: Standing) -> None:
    with begin_cli(guarded.home.path, "run", "--name", "left", *STAY) as follower:
        wait_until(lambda: is_there(guarded, "left"), PATIENCE_SECONDS, "its job is there")
        job = guarded.running(guarded.adopt(JOB, "left"))
        follower.kill()
    time.sleep(0.3)
    assert guarded.look(job).status.phase == "Running"


def test_the_code_comes_through_a_killed_server_and_agent(
    tmp_path: Path, runs: ThreadPoolExecutor
) -> None:
    declared = nodes(one={"cpu": CpuMillis(2000), "memory": Bytes(1 << 30)})
    with Standing(tmp_path / "home", declared) as standing:
        script = "echo first; while [ ! -e $SHOAL_OUTPUT/go ]; do sleep 0.05; done; echo last; exit 21"
        ran, job = follow(standing, runs, "through", "--no-prefix", "--", "sh", "-c", script)
        for component in ("server", "one"):
            before = standing.local.pid(component)
            standing.local.kill(component)
            wait_until(
                lambda c=component, b=before: standing.local.pid(c) not in (0, b),
                PATIENCE_SECONDS,
                f"{component} is started again",
            )
        (standing.output(job) / "go").touch()
        assert ran.result().code == 21, ran.result().err
        assert ran.result().out == b"first\nlast\n"
