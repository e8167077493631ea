"""Training under the whole platform: real workers, coordinator, agents and server, one job's life."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from shoal.objects.job import ElasticStatus, Job
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import Standing, begin_cli, role
from tests.scenarios.training import script as training_script

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

pytest.importorskip("torch")

PATIENCE_SECONDS = 100.0
"""Four processes import torch on a machine that may be busy."""
START_SECONDS = 20.0
"""From the submission of the urgent job to its start, on a node that is full: far above what it takes,
below what a worker that ignores its notice costs. `make bench` measures it."""
SAMPLES, BATCH, EPOCHS = 8000, 16, 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """One node with room for three workers of half a core, their coordinator, and a little more."""
    declared = nodes(one={"cpu": CpuMillis(1700), "memory": Bytes(8 << 30)})
    with Standing(tmp_path_factory.mktemp("training") / "home", declared) as standing:
        yield standing


def test_killed_preempted_and_grown_again_no_step_is_lost(home: Standing, tmp_path: Path) -> None:
    """training-N12, training-A13 in small: a worker is killed and comes back, an urgent job takes two
    of three workers and gives them back; training goes on all the while, and misses no step."""
    script = tmp_path / "train.py"
    script.write_text(training_script(SAMPLES, BATCH, EPOCHS))
    words = ("run", "--min", "1", "--max", "3", "--cpu", "500m", "--name", "train", "--")
    with begin_cli(home.home.path, *words, sys.executable, str(script)) as runs:
        try:
            wait_until(lambda: _exists(home), PATIENCE_SECONDS, "the job")
            job = home.adopt(JOB, "train")
            until(home, job, lambda said: said.world == 3 and said.step > 5, "three members train")

            os.kill(home.processes(job, "worker", 1).command_pid, signal.SIGKILL)
            until(home, job, lambda said: said.recoveries >= 1, "the others recover")
            until(home, job, lambda said: said.world == 3, "the third is back")

            urgent = home.job(role("exec sleep 600", resources={"cpu": "1"}), priority="production")
            home.running(urgent)
            took = home.look(urgent).status.started - urgent.metadata.created
            assert took <= START_SECONDS
            until(home, job, lambda said: said.world == 1, "one goes on alone")
            at = home.look(job).status.elastic
            assert at is not None
            until(home, job, lambda said: said.step > at.step + 5, "it trains")
            home.client.cancel("default", urgent.metadata.name)
            until(home, job, lambda said: said.world == 3, "all are back")
            (home.output(job) / "hurry").touch()
            _, err = runs.communicate(timeout=PATIENCE_SECONDS)
        except BaseException:
            runs.kill()
            raise
    assert runs.returncode == 0, err.decode()
    done = home.finished(job)
    said = done.status.elastic
    assert said is not None
    assert said.step == SAMPLES * EPOCHS // BATCH, "each sample of each epoch was in one step"
    assert (said.recoveries >= 1, said.lost_steps) == (True, 0), said
    # a busy machine may look silent for a moment; leaving with notice is never a loss
    happened = [
        event.message for event in home.client.events(kind=JOB, namespace="default", name="train")
    ]
    recovered = [message for message in happened if "training went on after" in message]
    assert any("(worker-1: " in message for message in recovered), happened
    assert not any("it has left" in message for message in recovered), happened
    assert said.last_recoveries[0].seconds < 2.0
    assert (done.status.failures, done.status.infrastructure_failures) == (1, 0)
    sizes = [each.size for each in said.sizes]
    print(f"sizes {sizes}, recovered in {said.recovery_seconds:.3f} s")
    assert {(3, 2), (2, 3)} <= set(pairwise(sizes))
    shown = home.cli("describe", "job/train").out.decode()
    assert "size over time" in shown
    assert "Recoveries" in shown
    home.clear()


def _exists(home: Standing) -> bool:
    return any(r.object.metadata.name == "train" for r in home.client.list(JOB).records)


def until(home: Standing, job: Job, condition, what: str) -> None:
    """Wait until the condition holds of what the job says of itself."""

    def holds() -> bool:
        status = home.look(job).status
        assert status.phase not in ("Failed", "Cancelled", "Succeeded"), status
        said: ElasticStatus | None = status.elastic
        return said is not None and condition(said)

    wait_until(holds, PATIENCE_SECONDS, what)
