"""Whole jobs whose gradients travel through codecs: on a slow network, and while workers come and go."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shoal.testing.elastic import ElasticJob
from tests.elastic.codecs.networks import cable

pytestmark = [pytest.mark.slow, pytest.mark.process]

PROGRAM = str(Path(__file__).parents[1] / "programs" / "wide.py")
WIDE = 40_000
"""41 MB of gradients."""


class Apart(ElasticJob):
    """Two machines with a cable between them: `a` and the coordinator on one, `b` on the other."""

    def __init__(self, folder: Path, machines: Sequence[str]) -> None:
        super().__init__(folder, minimum=2, options=["--bind", "10.77.0.1:0"])
        self._machines = machines

    def _spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        at = name == "b"
        prefix = ("ip", "netns", "exec", self._machines[at])
        host = {"SHOAL_HOST": f"10.77.0.{at + 1}"}
        return super()._spawn(name, [*prefix, *command], {**environment, **host})


def command(
    folder: Path, codec: str, *, bucket: str = "25", width: int = WIDE, steps: int = 48, pace: float = 0
) -> list[str]:
    words = [codec, bucket, str(width), str(steps), str(pace), str(folder / "last")]
    return [PROGRAM, *words]


def ended(job: ElasticJob, *names: str) -> None:
    """All are through, with the same parameters, and learned something."""
    for name in names:
        assert job.wait(name, 100.0) == 0, (job.folder / f"{name}.log").read_text()[-3000:]
    lasts = [job.lines(name)[-1] for name in names]
    assert len({last["digest"] for last in lasts}) == 1, lasts
    losses = [line["loss"] for line in job.lines(names[0]) if "loss" in line]
    assert losses[-1] < losses[0] / 2


def chosen(job: ElasticJob, *names: str) -> str:
    """What the oldest member said that it had chosen."""
    logs = [(job.folder / f"{name}.log").read_text() for name in names]
    said = [line for log in logs for line in log.splitlines() if "workers travel as" in line]
    print(*said, sep="\n")
    assert said
    return said[-1].partition("travel as ")[2]


def test_at_one_gigabit_the_training_takes_a_codec(tmp_path: Path):
    with cable("1gbit") as machines, Apart(tmp_path, machines) as job:
        for name in ("a", "b"):
            job.start(name, command(tmp_path, "auto"))
        ended(job, "a", "b")
        assert not chosen(job, "a", "b").startswith("none")
        pace = [line["at"] for line in job.lines("a") if "step" in line]
        print(f"a step: {pace[-2] - pace[-3]:.3f} s with what was chosen")


def test_on_loopback_the_training_takes_none(tmp_path: Path):
    with ElasticJob(tmp_path, minimum=2) as job:
        for name in ("a", "b"):
            job.start(name, command(tmp_path, "auto"))
        ended(job, "a", "b")
        assert chosen(job, "a", "b").startswith("none in buckets of 25 MiB")


@pytest.mark.parametrize("codec", ["powersgd:2", "auto"])
def test_workers_come_and_go_and_all_have_the_same(tmp_path: Path, codec: str):
    """training-G18: survivors are bit-identical under every codec."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with ElasticJob(tmp_path) as job:
        words = command(tmp_path, codec, bucket="auto", width=1000, steps=20_000, pace=0.04)

        def last() -> dict[str, int]:
            return next((line for line in reversed(job.lines("a")) if "step" in line), {})

        def become(size: int) -> None:
            job.until(lambda: last().get("size") == size, f"there are {size}")
            at = last()["step"] + chance.randrange(2, 12)
            job.until(lambda: last()["step"] >= at, "it goes on")

        job.start("a", words)
        become(1)
        job.start("b", words)
        job.start("c", words)
        become(3)
        job.kill("b")
        become(2)
        job.kill("c", signal.SIGTERM)
        assert job.wait("c") == 0
        become(1)
        job.start("d", words)
        become(2)
        written = tmp_path / "written"
        written.write_text(str(last()["step"] + 50))  # workers are one step apart at most
        written.replace(tmp_path / "last")
        ended(job, "a", "d")
