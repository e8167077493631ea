"""What is learned does not depend on who was there; and scripts that go wrong are told in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.elastic import forked
from tests.elastic.forked import ForkedJob
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]

PROGRAM = str(Path(__file__).parent / "programs" / "network.py")


def command(folder: Path, precision: str, *, pace: float = 0.02, harm: str = "") -> list[str]:
    return [PROGRAM, precision, "250", "16", "12", str(pace), harm, str(folder / "hurry")]


def alone(folder: Path, precision: str) -> torch.Tensor:
    words = command(folder, precision, pace=0.0)
    return values(forked.output(folder, words)[-1])


def values(line: str) -> torch.Tensor:
    import json

    return torch.tensor(json.loads(line)["values"], dtype=torch.float64)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-9), soak("fp32", 1e-2)])
def test_the_same_is_learned_whoever_comes_and_goes(tmp_path: Path, precision: str, tolerance: float):
    """training-G18, N9: 192 steps, the last of each epoch smaller and uneven."""
    expected = alone(tmp_path, precision)
    with ForkedJob(tmp_path / "job") as job:
        words = command(job.folder, precision)
        for name in ("a", "b", "c"):
            job.start(name, words)
        job.until(lambda: any(line.get("size") == 3 for line in job.lines("a")), "all are members")
        job.kill("b")
        job.until(lambda: any(line.get("size") == 2 for line in job.lines("a")[-3:]), "two are left")
        (job.folder / "hurry").touch()
        results = []
        for name in ("a", "c"):
            assert job.wait(name) == 0
            results.append(torch.tensor(job.lines(name)[-1]["values"], dtype=torch.float64))
    assert torch.equal(*results), "survivors differ"
    difference = ((results[0] - expected).abs() / expected.abs().clamp(min=1e-3)).max().item()
    print(f"{precision}: relative difference to one process {difference:.1e}")
    assert difference <= tolerance


def test_a_worker_that_raises_goes_alone(tmp_path: Path):
    with ForkedJob(tmp_path) as job:
        words = command(tmp_path, "fp32", harm="raise")
        job.start("good", words)
        job.start("bad", words)
        code = job.wait("bad")
        if not any(line.get("size") == 2 for line in job.lines("good")):
            pytest.fail("they never were two: " + (tmp_path / "bad.log").read_text()[-500:])
        assert code == 1
        (tmp_path / "hurry").touch()
        assert job.wait("good") == 0
        assert job.lines("good")[-1]["step"] == 192


def test_a_sample_on_which_every_worker_crashes_ends_the_job(tmp_path: Path):
    """It is named after the second, and does not eat the workers one by one."""
    with ForkedJob(tmp_path) as job:
        words = command(tmp_path, "fp32", pace=0.3, harm="poison")
        for name in ("a", "b", "c", "d"):
            job.start(name, words)
        codes = {name: job.wait(name) for name in ("a", "b", "c", "d")}
        logs = {name: (tmp_path / f"{name}.log").read_text() for name in codes}
        assert set(codes.values()) == {1}, logs
        crashed = [
            name
            for name, text in logs.items()
            if any(line.startswith("ValueError: a sample") for line in text.splitlines())
        ]
        assert len(crashed) == 2, logs
        told = [text for name, text in logs.items() if name not in crashed]
        assert all("a sample that nobody can learn" in text for text in told), told
        assert all("Stopped" in text for text in told)


def test_gradients_that_are_not_numbers_are_the_scripts_affair(tmp_path: Path):
    """As in plain torch; all workers have the same, and end."""
    with ForkedJob(tmp_path, minimum=2) as job:
        words = command(tmp_path, "fp32", pace=0.0, harm="nan")
        for name in ("a", "b"):
            job.start(name, words)
        for name in ("a", "b"):
            assert job.wait(name) == 0
        assert all(value != value for value in job.lines("a")[-1]["values"])
