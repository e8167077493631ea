"""A whole job whose gradients go through a codec while workers come and go."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from tests.elastic.forked import ForkedJob

pytestmark = [pytest.mark.slow, pytest.mark.process]

PROGRAM = str(Path(__file__).parents[1] / "programs" / "wide.py")


def command(
    folder: Path, codec: str, *, bucket: str = "1", width: int, steps: int, pace: float
) -> list[str]:
    words = [codec, bucket, str(width), str(steps), str(pace), str(folder / "last")]
    return [PROGRAM, *words]


def ended(job: ForkedJob, *names: str) -> None:
    """All are through, with the same parameters, and learned something."""
    for name in names:
        assert job.wait(name, 100.0) == 0, (job.folder / f"{name}.log").read_text()[-3000:]
    lasts = [job.lines(name)[-1] for name in names]
    assert len({last["digest"] for last in lasts}) == 1, lasts
    losses = [line["loss"] for line in job.lines(names[0]) if "loss" in line]
    assert sum(losses[-20:]) < sum(losses[:20])


def test_workers_come_and_go_and_all_have_the_same(tmp_path: Path):
    """training-G18: survivors are bit-identical under every codec."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with ForkedJob(tmp_path) as job:
        words = command(tmp_path, "powersgd:2", width=1000, steps=20_000, pace=0.04)

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
