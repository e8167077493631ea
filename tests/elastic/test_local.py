"""Workers that train alone between agreements lose each other and nothing else (training-A12)."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from shoal import elastic
from shoal.elastic import ElasticError
from shoal.elastic.checkpoint.manifest import list_checkpoints
from tests.elastic.forked import ForkedJob
from tests.elastic.variants import soak

APART = Path(__file__).parent / "programs" / "apart.py"
SAMPLES, BATCH, EPOCHS = 240, 12, 10
STEPS = SAMPLES // BATCH * EPOCHS


def command(tmp_path: Path, **given: Any) -> list[str]:
    numbers = [str(each) for each in (SAMPLES, BATCH, EPOCHS, 0.04)]
    return [str(APART), *numbers, str(tmp_path / "hurry"), json.dumps({"sync_every": 4} | given)]


def among(job: ForkedJob, name: str, size: int, steps: int = 3) -> None:
    """From now on: so many more steps of `name` as one of `size`."""
    before = len(job.lines(name))

    def there() -> bool:
        return [each.get("size") for each in job.lines(name)[before:]].count(size) >= steps

    job.until(there, f"{steps} steps of {name} among {size}")


def ended(job: ForkedJob, *names: str) -> list[dict[str, Any]]:
    (job.folder / "hurry").touch()
    assert {name: job.wait(name) for name in names} == dict.fromkeys(names, 0)
    last = [job.lines(name)[-1] for name in names]
    assert len({each["digest"] for each in last}) == 1, last
    return last


@pytest.mark.parametrize("victim", ["a", soak("b")])
@pytest.mark.process
@pytest.mark.slow
def test_a_worker_dies_and_comes_back(tmp_path: Path, victim: str):
    """training-A12: what was not agreed on is learned again by those who are left, and counted once."""
    words = command(tmp_path)
    other = "b" if victim == "a" else "a"
    with ForkedJob(tmp_path) as job:
        job.start("a", words)
        job.start("b", words)
        among(job, other, 2, 6)
        job.kill(victim)
        among(job, other, 1)
        job.start(victim, words)
        among(job, other, 2)
        last = ended(job, "a", "b")
    assert all(each["exact"] and each["step"] == STEPS for each in last), last


@pytest.mark.process
@pytest.mark.slow
def test_three_come_and_one_is_told_to_go(tmp_path: Path):
    """training-A12, upscaling; then a notice, and the coordinator dies: nothing is lost or repeated."""
    words = command(tmp_path)
    with ForkedJob(tmp_path) as job:
        for name in ("a", "b", "c"):
            job.start(name, words)
        among(job, "a", 3, 4)
        job.kill("coordinator")
        job.start_coordinator()
        job.workers["b"].send_signal(signal.SIGTERM)
        assert job.wait("b") == 0
        told = [each for each in job.lines("b") if "step" in each]
        assert [each["step"] for each in told] == list(range(told[0]["step"], told[-1]["step"] + 1))
        last = ended(job, "a", "c")
    assert all(each["exact"] and each["step"] == STEPS for each in last), last


@pytest.mark.process
@pytest.mark.slow
def test_all_die_and_go_on_from_a_checkpoint(tmp_path: Path):
    words = command(tmp_path, checkpoint=str(tmp_path / "kept"))
    with ForkedJob(tmp_path, minimum=2) as job:
        job.start("a", words)
        job.start("b", words)
        among(job, "a", 2, 8)
        kept = tmp_path / "kept"  # the first is of step 0, from which nothing resumes
        job.until(lambda: any(each.step for each in list_checkpoints(kept)), "a checkpoint", 60.0)
        job.kill("a")
        job.kill("b")
        job.start("a", words)
        job.start("b", words)
        last = ended(job, "a", "b")
        log = (tmp_path / "a.log").read_text() + (tmp_path / "b.log").read_text()
    assert "resumed from the checkpoint of step" in log
    assert all(each["exact"] and each["step"] == STEPS for each in last), last


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "local"}, "sync_every"),
        ({"mode": "local", "sync_every": 0}, "sync_every"),
        ({"mode": "local", "sync_every": 2, "blocks": 2}, "no blocks= any more"),
        ({"mode": "local", "sync_every": 4, "delay": 1}, "no delay= any more"),
        ({"mode": "local", "sync_every": 4, "alpha": 0.5}, "no alpha= any more"),
        ({"min_contrib": 2}, "no min_contrib= any more"),
        ({"codec": "auto"}, "'auto' were removed"),
        ({"bucket": "auto"}, "'auto' were removed"),
        ({"mode": "local", "sync_every": 4, "codec": "bf16"}, "codec"),
        ({"mode": "async"}, "'async'"),
        ({"sync_every": 4}, "mode='local'"),
    ],
)
def test_bad_input(given: dict[str, Any], words: str):
    with pytest.raises(ElasticError, match=words):
        elastic.init().wrap(**given)
