"""Replicas train; one dies, and comes back: training-A1 to A4."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.elastic.checkpoint.manifest import list_checkpoints
from tests.elastic.scenarios.stage import Stage, cue

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_two_replicas_without_a_fault(tmp_path: Path):
    """training-A1: two replicas (minimum 2), MLP 3 to 4 by Adam, 4 steps: both finish, and are equal
    after every step, the optimizers included."""
    with Stage(tmp_path, minimum=2) as stage:
        stage.enter("a", "b")
        stage.finished("a", "b")
        stage.no_step_missing("a", "b")
        assert stage.losses() == []


def test_a_replica_dies_and_the_other_waits_for_it(tmp_path: Path):
    """training-A2 (synchronous quorum): replica 1 dies at step 2 of 4. With a minimum of 2 the survivor
    waits for it; it takes the survivor's state, step 4 is reached, and one failure was counted."""
    parts = {"b": [cue(2, "before", "kill")]}
    with Stage(tmp_path, minimum=2, parts=parts) as stage:
        stage.enter("a", "b")
        assert stage.wait("b") == -9
        stage.enter("b")
        stage.finished("a", "b")
        stage.no_step_missing("a")
        assert stage.losses() == ["b"]


def test_a_replica_dies_and_the_other_goes_on(tmp_path: Path):
    """training-A2 (asynchronous quorum): with a minimum of 1 the survivor trains on alone meanwhile, and
    does not wait for the one that heals; so there are more steps than the reference's 4."""
    parts = {"b": [cue(2, "before", "kill")]}
    play = {"samples": 960, "pace": 0.01, "parts": parts}
    with Stage(tmp_path, options=["--expect", "2"], **play) as stage:
        stage.enter("a", "b")
        assert stage.wait("b") == -9
        stage.reach("a", 4)
        stage.enter("b")
        stage.until(lambda: stage.views("a")[-1] == ["a", "b"], "it is back")
        stage.finished("a", "b")
        stage.no_step_missing("a")
        assert stage.losses() == ["b"]


def test_the_group_after_a_loss_breaks_while_its_members_agree(tmp_path: Path):
    """Nobody else is lost, so nobody but the members can tell the coordinator; and it is in time."""
    parts = {"b": [cue(2, "before", "kill")], "a": [cue(2, "before", "shaken")]}
    with Stage(tmp_path, minimum=2, parts=parts) as stage:
        stage.enter("a", "b")
        assert stage.wait("b") == -9
        stage.enter("b")
        stage.finished("a", "b")
        stage.no_step_missing("a")


def test_both_ranks_of_a_replica_die(tmp_path: Path):
    """training-A3: 2 replicas of 2 ranks; both ranks of replica 1 die at step 2, and come back."""
    dies = [cue(2, "before", "kill")]
    with Stage(tmp_path, minimum=4, parts={"b0": dies, "b1": dies}) as stage:
        stage.enter("a0", "a1", "b0", "b1")
        # one may see the other's end before it comes to step 2 itself: then it waits for it to be back
        dead = ["b0", "b1"]
        while dead:
            stage.until(lambda: any(stage.workers[name].poll() is not None for name in dead), "a kill")
            for name in [name for name in dead if stage.workers[name].poll() is not None]:
                assert stage.wait(name) == -9
                stage.enter(name)
                dead.remove(name)
        stage.finished("a0", "a1", "b0", "b1")
        stage.no_step_missing("a0", "a1")
        assert sorted(stage.losses()) == ["b0", "b1"]


def test_replicas_that_begin_alike_take_nothing_over(tmp_path: Path):
    """training-A4: the same seed and no copy of the state at the start. A peer can be told to skip that
    copy; ours makes it always, so what must hold is that it changes nothing: they learn what a process
    learns that nobody gave a state."""
    with Stage(tmp_path / "two", minimum=2) as two:
        two.enter("a", "b")
        two.finished("a", "b")
    with Stage(tmp_path / "one") as one:
        one.enter("c")
        one.finished("c")
    for together, alone in zip(two.lines("a")[-1]["values"], one.lines("c")[-1]["values"], strict=True):
        assert together == pytest.approx(alone, abs=1e-5)


def test_a_replica_that_is_behind_heals_even_so(tmp_path: Path):
    """training-A4: one peer is already past step 1 (it finds a checkpoint that only it sees); the other
    is behind, and takes its state, whichever of them is rank 0."""
    for oldest in ("a", "b"):
        folder = tmp_path / f"{oldest}-first"
        kept = {"checkpoint": str(folder / "kept")}
        saves = {"b": [cue(1, "applied", "save")]}
        with Stage(folder / "earlier", samples=24, init=kept, parts=saves) as earlier:
            earlier.enter("b")
            earlier.finished("b")
        found = max(each.step for each in list_checkpoints(folder / "kept"))
        with Stage(folder / "later", minimum=2, samples=24, epochs=2) as stage:
            other = "b" if oldest == "a" else "a"
            for name in (oldest, other):
                stage.play["init"] = kept if name == "b" else {}
                stage.enter(name)
                if name == oldest:
                    stage.until(lambda: stage.report().get("state") == "paused", "one waits")
            stage.finished("a", "b")
            for name in ("a", "b"):
                first = next(line for line in stage.lines(name) if "size" in line)
                assert first["step"] == found + 1, stage.log(name)
