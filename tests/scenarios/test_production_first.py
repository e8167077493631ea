"""A cluster full of elastic training, and a production job that arrives: real processes, real training.

The field's standing example at a small size: whoever experiments holds everything, production asks for
half, the experiment goes on with half and takes it back afterwards. Part of `make soak`: the suite has
the same with one worker killed before (test_elastic_training.py), and `make demo` shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import Standing, role
from tests.scenarios.training import script as training_script

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(400)]

pytest.importorskip("torch")

PATIENCE_SECONDS = 120.0
START_SECONDS = 10.0
"""From the submission of the production job to its start, on a cluster that is full: far above what it
takes, below what a worker that ignores its notice costs. `make bench` measures it."""
SAMPLES, BATCH = 14_000, 16


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Two nodes; each has room for three workers of half a core and a coordinator."""
    shape = {"cpu": CpuMillis(1600), "memory": Bytes(8 << 30)}
    with Standing(tmp_path_factory.mktemp("first") / "home", nodes(one=shape, two=shape)) as standing:
        yield standing


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(training_script(SAMPLES, BATCH, epochs=1))
    return path


def experiment(home: Standing, script: Path, name: str, most: int) -> Job:
    words = ("run", "-d", "-p", "experiment", "--min", "1", "--max", str(most), "--cpu", "500m")
    assert home.cli(*words, "--name", name, "--", sys.executable, str(script)).code == 0
    return home.adopt(JOB, name)


def until_world(home: Standing, job: Job, size: int) -> int:
    """Wait until it trains with so many; the step it is at."""

    def trains() -> bool:
        status = home.look(job).status
        assert status.phase not in ("Failed", "Cancelled", "Succeeded"), status
        said = status.elastic
        return said is not None and said.world == size and said.step > 3

    wait_until(trains, PATIENCE_SECONDS, f"{job.metadata.name} trains with {size}")
    said = home.look(job).status.elastic
    assert said is not None
    return said.step


def seconds_to_start(home: Standing, job: Job) -> float:
    home.running(job)
    return home.look(job).status.started - job.metadata.created


def ended_without_a_loss(home: Standing, job: Job) -> None:
    (home.output(job) / "hurry").touch()
    status = home.finished(job).status
    assert status.phase == "Succeeded"
    assert (status.failures, status.infrastructure_failures, status.attempt) == (0, 0, 1)
    said = status.elastic
    assert said is not None
    assert said.step == SAMPLES // BATCH, "each sample was in one step"
    assert (said.recoveries, said.lost_steps) == (0, 0)


def test_an_experiment_with_everything_gives_half_and_takes_it_back(home: Standing, script: Path):
    """The standing example: all slots, production asks for half, and half goes on."""
    train = experiment(home, script, "train", 6)
    before = until_world(home, train, 6)
    production = home.job(
        role("exec sleep 600", resources={"cpu": "500m"}, replicas=3), priority="production"
    )
    took = seconds_to_start(home, production)
    print(f"started {took:.2f} s after it was submitted")
    assert took <= START_SECONDS
    assert until_world(home, train, 3) >= before
    home.client.cancel("default", production.metadata.name)
    until_world(home, train, 6)
    ended_without_a_loss(home, train)
    home.clear()


def test_several_elastic_jobs_make_room_together_and_none_is_killed(home: Standing, script: Path):
    """One alone could not: production takes more than any of them can spare."""
    jobs = [experiment(home, script, name, 3) for name in ("left", "right")]
    for job in jobs:
        until_world(home, job, 3)
    production = home.job(
        role("exec sleep 600", resources={"cpu": "500m"}, replicas=4), priority="production"
    )
    took = seconds_to_start(home, production)
    print(f"started {took:.2f} s after it was submitted")
    assert took <= START_SECONDS
    for job in jobs:
        until_world(home, job, 1)
    steps = {job.metadata.name: until_world(home, job, 1) for job in jobs}
    home.client.cancel("default", production.metadata.name)
    for job in jobs:
        assert until_world(home, job, 3) >= steps[job.metadata.name]
    for job in jobs:
        ended_without_a_loss(home, job)
    home.clear()
