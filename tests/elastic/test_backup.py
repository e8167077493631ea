"""Where the first workers that are ready make a step: a slow one holds nobody up, and all is counted."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from shoal import elastic
from shoal.elastic import ElasticError
from shoal.testing.elastic import ElasticJob

LATE = Path(__file__).parent / "programs" / "late.py"
SAMPLES, BATCH, EPOCHS = 240, 12, 30
STEPS = SAMPLES // BATCH * EPOCHS
PACE = 0.05
FULL = PACE * BATCH / 3
"""Seconds that the slow one of three takes for its part of a batch."""


def command(tmp_path: Path, slow: str, enough: int = 2) -> list[str]:
    numbers = [str(each) for each in (SAMPLES, BATCH, EPOCHS, PACE)]
    return [str(LATE), *numbers, str(tmp_path / "hurry"), str(enough), slow]


def steps(job: ElasticJob, name: str) -> list[dict[str, Any]]:
    return [line for line in job.lines(name) if "size" in line]


def reach(job: ElasticJob, name: str, more: int, size: int = 3) -> None:
    """So many steps more, in a view of this size."""

    def there() -> list[dict[str, Any]]:
        return [line for line in steps(job, name) if line["size"] == size]

    since = len(there())
    job.until(lambda: len(there()) >= since + more, f"{more} more steps of {name} among {size}")


def began(job: ElasticJob, words: list[str], *names: str) -> list[str]:
    """They are members, and have taken some steps: their names, the leader first."""
    for name in names:
        job.start(name, words)
    reach(job, names[0], 8, len(names))
    return [line["members"] for line in job.lines(names[0]) if "members" in line][-1]


def ended(job: ElasticJob, *names: str) -> dict[str, Any]:
    """They go through and agree to the last bit; each sample was learned, or counted as late."""
    (job.folder / "hurry").touch()
    assert {name: job.wait(name) for name in names} == dict.fromkeys(names, 0)
    last = [job.lines(name)[-1] for name in names]
    assert len({each["digest"] for each in last}) == 1, last
    for each in last:
        assert each["step"] == STEPS, last
        assert each["whole"], last
        assert each["learned"] + each["late"] == SAMPLES * EPOCHS, last
    return last[0]


def no_step_missing(job: ElasticJob, *names: str) -> None:
    for name in names:
        told = [line["step"] for line in steps(job, name)]
        assert told == list(range(told[0], STEPS + 1)), name


@pytest.mark.process
@pytest.mark.slow
def test_a_slow_worker_holds_nobody_up(tmp_path: Path):
    with ElasticJob(tmp_path) as job:
        began(job, command(tmp_path, "c"), "a", "b", "c")
        first = len(steps(job, "a"))
        reach(job, "a", 20)
        told = steps(job, "a")[first:]
        pace = (told[-1]["at"] - told[0]["at"]) / (len(told) - 1)
        print(f"{pace:.3f} s a step; the slow one takes {FULL:.3f} s for its part")
        assert pace < 0.75 * FULL
        last = ended(job, "a", "b", "c")
        no_step_missing(job, "a", "b", "c")
        assert last["late"] > 0
        passes = {line["own"] for line in steps(job, "c")}
        assert {1, BATCH // 3} <= passes  # it catches up in small passes, and takes part again


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["slow", "leader", "slow leader", "other"])
def test_one_is_killed(tmp_path: Path, victim: str):
    """Whoever goes, the others go on; and one comes back."""
    with ElasticJob(tmp_path) as job:
        names = ["a", "b", "c"]
        # the oldest is the leader: it is there first
        job.start("a", command(tmp_path, "a" if victim == "slow leader" else "c"))
        reach(job, "a", 1, 1)
        words = command(tmp_path, "a" if victim == "slow leader" else "c")
        job.start("b", words)
        job.start("c", words)
        reach(job, "a", 8, 3)
        gone = {"slow": "c", "leader": "a", "slow leader": "a", "other": "b"}[victim]
        left = [name for name in names if name != gone]
        job.kill(gone)
        reach(job, left[0], 5, 2)
        job.start(gone, words)
        reach(job, left[0], 5, 3)
        ended(job, *names)
        no_step_missing(job, *left)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("slow", ["a", "b"])
def test_one_joins_and_one_is_told_to_go(tmp_path: Path, slow: str):
    words = command(tmp_path, slow)
    with ElasticJob(tmp_path) as job:
        began(job, words, "a", "b", "c")
        job.start("d", words)
        reach(job, "a", 6, 4)
        job.kill("b", signal.SIGTERM)
        assert job.wait("b") == 0
        reach(job, "a", 4, 3)
        ended(job, "a", "c", "d")
        no_step_missing(job, "a", "c", "d")
        assert "rerun" not in (tmp_path / "coordinator.log").read_text()


@pytest.mark.process
@pytest.mark.slow
def test_all_die_and_what_was_late_is_still_known(tmp_path: Path):
    kept = {"LATE_CHECKPOINT": str(tmp_path / "kept")}
    words = command(tmp_path, "c")
    with ElasticJob(tmp_path, environment=kept) as job:
        began(job, words, "a", "b", "c")
        job.until(lambda: list((tmp_path / "kept").glob("**/*manifest*")), "a checkpoint")
        reach(job, "a", 8, 3)
        for name in ("a", "b", "c"):
            job.kill(name)
        for name in ("a", "b", "c"):
            job.start(name, words)
        last = ended(job, "a", "b", "c")
        assert last["late"] > 0
        assert "resumed from the checkpoint of step" in "".join(
            (tmp_path / f"{name}.log").read_text() for name in ("a", "b", "c")
        )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_contrib": 0}, "at least 1, not 0"),
        ({"min_contrib": 2, "codec": "bf16"}, "as they are"),
        ({"min_contrib": 2, "bucket": "auto"}, "as they are"),
        ({"min_contrib": 2, "mode": "local", "sync_every": 4}, "as they are"),
    ],
)
def test_bad_input(given: dict[str, Any], words: str):
    with pytest.raises(ElasticError, match=words):
        elastic.init().wrap(**given)
