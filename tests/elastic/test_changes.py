"""Workers of a real job are killed, stopped, told to go, and added: no step and no sample is lost."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.elastic.forked import ForkedJob
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]

COUNT = Path(__file__).parent / "programs" / "count.py"
SAMPLES, BATCH, EPOCHS = 640, 16, 5
STEPS = SAMPLES // BATCH * EPOCHS


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A worker that takes 20 ms a step until `finished` is asked for."""
    return [str(COUNT), str(SAMPLES), str(BATCH), str(EPOCHS), "0.02", str(tmp_path / "hurry")]


def step_of(job: ForkedJob, name: str) -> int:
    return max((line["step"] for line in job.lines(name) if "step" in line), default=0)


def reach(job: ForkedJob, name: str, step: int) -> None:
    job.until(lambda: step_of(job, name) >= step, f"step {step} of {name}")


def views(job: ForkedJob, name: str) -> list[list[str]]:
    return [line["members"] for line in job.lines(name) if "members" in line]


def finished(job: ForkedJob, *names: str) -> None:
    """They go through, with every sample counted once an epoch, and agree to the last bit."""
    (job.folder / "hurry").touch()
    last = []
    for name in names:
        assert job.wait(name) == 0, (job.folder / f"{name}.log").read_text()[-2000:]
        last.append(job.lines(name)[-1])
    assert all(line["exact"] for line in last), last
    assert {line["step"] for line in last} == {STEPS}
    assert len({line["digest"] for line in last}) == 1


def no_step_missing(job: ForkedJob, *names: str) -> None:
    """Each applied every step from its first on, once."""
    for name in names:
        steps = [line["step"] for line in job.lines(name) if "size" in line]
        assert steps == list(range(steps[0], STEPS + 1)), (name, steps)


@pytest.mark.parametrize("victim", [0, soak(1)])
def test_one_of_two_is_killed(tmp_path: Path, command: list[str], victim: int):
    with ForkedJob(tmp_path) as job:
        names = ["a", "b"]
        for name in names:
            job.start(name, command)
        job.until(lambda: any(len(v) == 2 for n in names for v in views(job, n)), "both are members")
        oldest = [v for n in names for v in views(job, n) if len(v) == 2][-1]
        killed, other = oldest[victim], oldest[1 - victim]
        reach(job, other, step_of(job, other) + 3)
        at = job.kill(killed)
        before = step_of(job, other)
        reach(job, other, before + 2)
        finished(job, other)
        no_step_missing(job, other)
        after = [line["at"] - at for line in job.lines(other) if "size" in line and line["at"] > at]
        print(f"next step {after[0] * 1000:.0f} ms after the kill")


def test_a_worker_joins_and_the_others_go_on(tmp_path: Path, command: list[str]):
    """training-D1: the others stay in their epoch until all are ready, then switch together."""
    with ForkedJob(tmp_path) as job:
        job.start("a", command)
        reach(job, "a", 5)
        job.start("late", command)
        job.until(lambda: views(job, "a")[-1] == ["a", "late"], "both are members")
        finished(job, "a", "late")
        no_step_missing(job, "a", "late")


def test_a_worker_that_is_told_to_go_leaves_at_a_step_boundary(tmp_path: Path, command: list[str]):
    """training-N12"""
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b", "c"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 3 for v in views(job, "a")), "all three are members")
        job.kill("b", signal.SIGTERM)
        assert job.wait("b") == 0
        finished(job, "a", "c")
        no_step_missing(job, "a", "c")
        recovered = (tmp_path / "coordinator.log").read_text()
        assert "rerun" not in recovered


def test_a_stopped_worker_is_put_out_and_comes_back(tmp_path: Path, command: list[str]):
    """training-N2"""
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 2 for v in views(job, "a")), "both are members")
        job.kill("b", signal.SIGSTOP)
        job.until(lambda: views(job, "a")[-1] == ["a"], "it was put out", 10.0)
        reach(job, "a", step_of(job, "a") + 3)
        job.kill("b", signal.SIGCONT)
        job.until(lambda: views(job, "a")[-1] == ["a", "b"], "it is back", 30.0)
        finished(job, "a", "b")


def test_steps_go_on_without_the_coordinator(tmp_path: Path, command: list[str]):
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 2 for v in views(job, "a")), "both are members")
        job.kill("coordinator")
        reach(job, "a", step_of(job, "a") + 20)
        job.start_coordinator()
        job.start("late", command)
        job.until(lambda: len(views(job, "a")[-1]) == 3, "it grows again")
        finished(job, "a", "b", "late")


def test_coordinator_and_a_worker_die_together(tmp_path: Path, command: list[str]):
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b", "c"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 3 for v in views(job, "a")), "all three are members")
        job.kill("coordinator")
        job.kill("b")
        stuck = step_of(job, "a")
        time.sleep(0.5)
        assert step_of(job, "a") <= stuck + 2
        job.start_coordinator()
        back = time.monotonic()
        reach(job, "a", stuck + 5)
        print(f"five steps more {time.monotonic() - back:.2f} s after it was back")
        finished(job, "a", "c")


def test_below_the_minimum_the_job_pauses_and_says_so(tmp_path: Path, command: list[str]):
    with ForkedJob(tmp_path, minimum=2, environment={"PYTHONUNBUFFERED": "1"}) as job:
        for name in ("a", "b"):
            job.start(name, command)
        reach(job, "a", 5)
        job.kill("b")
        log = tmp_path / "a.log"
        job.until(lambda: "paused: 1 of at least 2" in log.read_text(), "it says that it waits")
        stuck = step_of(job, "a")
        time.sleep(0.3)
        assert step_of(job, "a") == stuck
        job.start("c", command)
        finished(job, "a", "c")


def test_shrink_to_one_and_grow_back(tmp_path: Path, command: list[str]):
    """training-N11"""
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b", "c"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 3 for v in views(job, "a")), "all three are members")
        job.kill("b")
        job.kill("c")
        job.until(lambda: views(job, "a")[-1] == ["a"], "it is alone")
        reach(job, "a", step_of(job, "a") + 5)
        job.start("b", command)
        job.start("c", command)
        job.until(lambda: len(views(job, "a")[-1]) == 3, "they are back")
        finished(job, "a", "b", "c")


def test_a_second_kill_while_the_first_is_dealt_with(tmp_path: Path, command: list[str]):
    """training-N6"""
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b", "c", "d"):
            job.start(name, command)
        job.until(lambda: any(len(v) == 4 for v in views(job, "a")), "all are members")
        job.kill("b")
        job.kill("c")
        finished(job, "a", "d")


def test_it_runs_under_torchrun(tmp_path: Path, command: list[str]):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHOAL_")}
    job = ForkedJob(tmp_path)
    (tmp_path / "hurry").touch()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    process = job._spawn("torchrun", [*torchrun, *command], environment)
    assert process.wait(90.0) == 0, (tmp_path / "torchrun.log").read_text()[-3000:]
    done = [line for line in job.lines("torchrun") if line.get("done")]
    assert len(done) == 2
    assert all(line["exact"] for line in done)
    assert max(line["size"] for line in job.lines("torchrun") if "size" in line) == 2
