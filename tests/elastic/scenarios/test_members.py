"""Workers come, go, and fail together, with real training: training-B1 to B6."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.elastic.scenarios.stage import Cue, Stage, cue
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]

LONG = {"samples": 120, "epochs": 15, "pace": 0.02}


def all_play(*cues: Cue) -> dict[str, list[Cue]]:
    return {name: list(cues) for name in "abcd"}


def ranks(stage: Stage, name: str) -> list[int]:
    """The ranks that it had, without repetition."""
    had = [line["rank"] for line in stage.lines(name) if "size" in line]
    return [rank for place, rank in enumerate(had) if not place or had[place - 1] != rank]


def test_two_four_two(tmp_path: Path):
    """training-B1: hosts A x 2, then A x 2 + B x 2, then B x 2: sizes 2, 4, 2. A peer has three rounds;
    ours a view as soon as somebody has caught up, so there may be sizes in between. The oldest is rank
    0: at the end the oldest that is left."""
    with Stage(tmp_path, minimum=2, **LONG) as stage:
        stage.enter("a0", "a1")
        stage.together("a0", "a1")
        stage.enter("b0", "b1")
        stage.together("a0", "a1", "b0", "b1")
        oldest = stage.views("a0")[0]
        assert stage.views("a0")[-1][:2] == oldest
        for name in ("a0", "a1"):
            stage.kill(name, signal.SIGTERM)
        assert [stage.wait(name) for name in ("a0", "a1")] == [0, 0]
        stage.together("b0", "b1")
        final = stage.views("b0")[-1]
        stage.finished(*final)
        stage.no_step_missing(*final)
        assert ranks(stage, oldest[0]) == [0]
        assert ranks(stage, final[0])[-1] == 0
        assert stage.losses() == []


def test_one_two_one(tmp_path: Path):
    """training-B1, its second schedule."""
    with Stage(tmp_path, **LONG) as stage:
        stage.enter("a")
        stage.reach("a", 2)
        stage.enter("b")
        stage.together("a", "b")
        stage.kill("a", signal.SIGTERM)
        assert stage.wait("a") == 0
        stage.together("b")
        stage.finished("b")
        assert ranks(stage, "b") == [1, 0]


@pytest.mark.parametrize("end", ["raise", soak("kill")])
def test_rank_0_of_four_ends_in_epoch_1(tmp_path: Path, end: str):
    """training-B2, B3: rank 0 of 4 (two hosts of two) ends in the second of three epochs, by exception
    and by kill. A peer gives up the whole host and goes on with 2; ours with the three that are left. A
    schedule and a fixed list of hosts are the same to it. All epochs are recorded."""
    parts = all_play(cue(6, "before", end, rank=0))
    with Stage(tmp_path, epochs=3, options=["--expect", "4"], parts=parts) as stage:
        stage.enter("a", "b", "c", "d")
        stage.until(lambda: (tmp_path / f"anybody-6-before-{end}.cue").exists(), "rank 0 is there")
        victim = stage.views("a")[0][0]
        assert stage.wait(victim) == (1 if end == "raise" else -9)
        others = [name for name in ("a", "b", "c", "d") if name != victim]
        stage.finished(*others)
        stage.no_step_missing(*others)
        for name in others:
            assert {line["data_epoch"] for line in stage.lines(name) if "size" in line} == {0, 1, 2}
        assert stage.losses() == [victim]


def test_a_host_is_lost(tmp_path: Path):
    """training-B2, B3: 4 to 2: both workers of one host end at once, rank 0 among them."""
    dies = [cue(6, "sending", "kill")]
    parts = {"a0": dies, "a1": dies}
    with Stage(tmp_path, epochs=3, options=["--expect", "4"], parts=parts) as stage:
        stage.enter("a0", "a1", "b0", "b1")
        stage.finished("b0", "b1")
        stage.no_step_missing("b0", "b1")
        for name in ("b0", "b1"):
            assert {line["data_epoch"] for line in stage.lines(name) if "size" in line} == {0, 1, 2}
        assert stage.views("b0")[-1] in (["b0", "b1"], ["b1", "b0"])


def test_all_ranks_fail_on_the_same_samples(tmp_path: Path):
    """training-B4: ranks 0 to 3 all exit in epoch 1. A peer fails when nobody is left. Ours fails when
    somebody comes and finds that all who had the state are gone and there is no checkpoint (if a step
    was heard to be committed), or when samples have failed a second worker: either way it tells the
    error, and every process ends with one."""
    parts = all_play(cue(6, "before", "raise", error="no way past this", again=True))
    with Stage(tmp_path, epochs=3, options=["--expect", "4"], parts=parts) as stage:
        names = ("a", "b", "c", "d")
        for _ in range(2):
            stage.enter(*names)
            assert {stage.wait(name) for name in names} == {1}
        said = stage.over()
        assert said["state"] == "failed"
        assert "no way past this" in said["message"], said
        assert not any(line.get("done") for name in names for line in stage.lines(name))


def test_one_rank_of_each_host_fails(tmp_path: Path):
    """training-B5: ranks 0 and 2, one of each of two hosts, exit. A peer takes both hosts for bad and
    fails; ours takes no host for bad, and goes on with the two that are left."""
    parts = all_play(cue(6, "before", "raise", rank=0), cue(8, "before", "raise", rank=2))
    with Stage(tmp_path, epochs=3, options=["--expect", "4"], parts=parts) as stage:
        names = ("a", "b", "c", "d")
        stage.enter(*names)
        stage.until(lambda: (tmp_path / "anybody-8-before-raise.cue").exists(), "both have failed")
        first = stage.views("a")[0]
        gone = {first[0], first[3]}
        assert {stage.wait(name) for name in gone} == {1}
        stage.finished(*(name for name in names if name not in gone))
        assert stage.losses() == [first[0], first[3]]


def test_below_the_minimum(tmp_path: Path):
    """training-B6: four with a minimum of 4, one exits. A peer fails after its timeout of 1 s; ours
    waits for another, says so, and does not hang: told to go, all go."""
    parts = all_play(cue(2, "before", "raise", rank=3))
    with Stage(tmp_path, minimum=4, parts=parts) as stage:
        names = ("a", "b", "c", "d")
        stage.enter(*names)
        stage.until(lambda: (tmp_path / "anybody-2-before-raise.cue").exists(), "one has failed")
        victim = stage.views("a")[0][3]
        assert stage.wait(victim) == 1
        others = [name for name in names if name != victim]
        stage.until(
            lambda: all("paused: 3 of at least 4" in stage.log(name) for name in others), "all say so"
        )
        assert stage.report()["state"] == "paused"
        for name in others:
            stage.kill(name, signal.SIGTERM)
        assert {stage.wait(name, 20.0) for name in others} == {0}


def test_several_that_join_at_once_all_come_in(tmp_path: Path):
    """training-D1: the view of the first is planned, and in use, while the others are still behind;
    nobody waits for a member that follows in vain."""
    play = {"samples": 120, "epochs": 12, "pace": 0.02}
    with Stage(tmp_path, **play) as stage:
        stage.enter("a")
        stage.reach("a", 3)
        stage.enter("b", "c", "d", "e")
        stage.together("a", "b", "c", "d", "e")
        stage.reach("e", stage.step("e") + 3)
        stage.finished("a", "b", "c", "d", "e")
        stage.no_step_missing("a")
        assert stage.losses() == []
