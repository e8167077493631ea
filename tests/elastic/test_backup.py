"""Where the first workers that are ready make a step: a slow one holds nobody up, and all is counted."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from shoal import elastic
from shoal.elastic import ElasticError
from shoal.elastic.training import Training
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


def began(job: ElasticJob, words: list[str]) -> list[str]:
    """Three are members, and have taken some steps: their names, the leader first."""
    for name in ("a", "b", "c"):
        job.start(name, words)
    reach(job, "a", 8)
    return [line["members"] for line in job.lines("a") if len(line.get("members", ())) == 3][-1]


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
    """Each applied every step from its first on, once, and came by the same parameters and counts."""
    seen: dict[int, tuple[str, int]] = {}
    for name in names:
        told = steps(job, name)
        assert [line["step"] for line in told] == list(range(told[0]["step"], STEPS + 1)), name
        for line in told:
            mine = line["digest"], line["late"]
            assert seen.setdefault(line["step"], mine) == mine, (name, line)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("slow", ["first", "last"])
def test_a_slow_worker_holds_nobody_up(tmp_path: Path, slow: str):
    with ElasticJob(tmp_path) as job:
        members = began(job, command(tmp_path, slow))
        late, fast = (members[0], members[1]) if slow == "first" else (members[2], members[0])
        first = len(steps(job, fast))
        reach(job, fast, 20)
        told = steps(job, fast)[first:]
        pace = (told[-1]["at"] - told[0]["at"]) / (len(told) - 1)
        print(f"{pace:.3f} s a step; the slow one takes {FULL:.3f} s for its part")
        assert pace < 0.75 * FULL
        assert ended(job, *members)["late"] > 0
        no_step_missing(job, *members)
        passes = {line["own"] for line in steps(job, late)}
        assert {1, BATCH // 3} <= passes  # it catches up in small passes, and takes part again


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("slow", "victim"), [("first", 0), ("last", 0), ("last", 1), ("last", 2)])
def test_one_is_killed_and_comes_back(tmp_path: Path, slow: str, victim: int):
    """The slow one, the leader, a slow leader, or another."""
    words = command(tmp_path, slow)
    with ElasticJob(tmp_path) as job:
        members = began(job, words)
        gone = members.pop(victim)
        job.kill(gone)
        reach(job, members[0], 5, 2)
        job.start(gone, words)
        reach(job, members[0], 5, 3)
        ended(job, *members, gone)
        no_step_missing(job, *members)


@pytest.mark.process
@pytest.mark.slow
def test_only_who_was_late_is_left(tmp_path: Path):
    """It has, or applies now, every step that the others took for committed."""
    with ElasticJob(tmp_path) as job:
        *others, late = began(job, command(tmp_path, "last"))
        behind = len(steps(job, late))
        job.until(lambda: len(steps(job, late)) > behind, "the slow one has just applied one")
        for name in others:
            job.kill(name)
        ended(job, late)
        no_step_missing(job, late)
        mine = {line["step"]: line["digest"] for line in steps(job, late)}
        for name in others:
            told = steps(job, name)
            both = [line for line in told if min(mine) <= line["step"] <= told[-1]["committed"]]
            assert both
            assert [line["digest"] for line in both] == [mine[line["step"]] for line in both]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("slow", ["first", "last"])
def test_one_joins_and_one_is_told_to_go(tmp_path: Path, slow: str):
    words = command(tmp_path, slow)
    with ElasticJob(tmp_path) as job:
        members = began(job, words)
        job.start("d", words)
        reach(job, members[0], 6, 4)
        gone = members.pop(1)
        job.kill(gone, signal.SIGTERM)
        assert job.wait(gone) == 0
        reach(job, members[0], 4, 3)
        ended(job, *members, "d")
        no_step_missing(job, *members, "d")
        assert "rerun" not in (tmp_path / "coordinator.log").read_text()


@pytest.mark.process
@pytest.mark.slow
def test_all_die_and_what_was_late_is_still_known(tmp_path: Path):
    kept = {"LATE_CHECKPOINT": str(tmp_path / "kept")}
    words = command(tmp_path, "last")
    with ElasticJob(tmp_path, environment=kept) as job:
        began(job, words)
        job.until(lambda: list((tmp_path / "kept").glob("**/*manifest*")), "a checkpoint")
        reach(job, "a", 8)
        for name in ("a", "b", "c"):
            job.kill(name)
        before = {name: len(job.lines(name)) for name in ("a", "b", "c")}
        for name in before:
            job.start(name, words)
        job.until(lambda: all(len(job.lines(name)) > before[name] for name in before), "all are back")
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


def test_workers_that_wait_for_other_numbers_are_told_apart():
    said: set[str] = set()
    for enough in (None, 2, 3):
        training = Training(None, None)
        if enough is not None:
            training.ways.wait_for(enough)
        said.add(training.ways.words[0])
    assert len(said) == 3
