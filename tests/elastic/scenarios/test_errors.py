"""A step that fails somewhere is finished, or run again, and never dropped: training-A8, N3, P2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.scenarios.stage import Stage, cue
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize("when", ["before", "sending", "reducing", "reduced"])
def test_a_group_that_breaks_is_built_again(tmp_path: Path, when: str):
    """training-A8: the allreduce fails at launch (`before`), the group reports an error with some sums
    under way (`sending`), it fails while one waits (`reducing`), or when it is over (`reduced`). A peer
    drops the step; ours ends it or runs it again, in a new view of the same members."""
    parts = {"b": [cue(2, when, "break")]}
    with Stage(tmp_path, minimum=2, parts=parts) as stage:
        stage.enter("a", "b")
        stage.finished("a", "b")
        stage.no_step_missing("a", "b")
        report = stage.over()
        assert report["lostSteps"] == 0
        assert all(each["how"] != "state" for each in report["recoveries"])
        assert {tuple(sorted(view)) for view in stage.views("a")} == {("a", "b")}


def test_as_many_failures_in_a_row_as_like(tmp_path: Path):
    """training-A8: a peer gives up when a commit is refused for the third time; nothing refuses a commit
    in ours, so each failure is one recovery, and the last is as good as the first."""
    parts = {"b": [cue(step, "sending", "break") for step in (2, 3, 4)]}
    with Stage(tmp_path, minimum=2, parts=parts) as stage:
        stage.enter("a", "b")
        stage.finished("a", "b")
        stage.no_step_missing("a", "b")
        assert len(stage.over()["recoveries"]) == 3


def test_slow_is_no_failure(tmp_path: Path):
    """training-A8: a peer's future has a deadline (10 ms); ours has none but `max_stall`, and who waits
    for a slow rank waits."""
    parts = {"b": [cue(2, "sending", "slow", seconds=0.3), cue(3, "reduced", "slow", seconds=0.3)]}
    with Stage(tmp_path, minimum=2, parts=parts) as stage:
        stage.enter("a", "b")
        stage.finished("a", "b")
        assert stage.over()["recoveries"] == []


def test_a_joiners_transfer_breaks(tmp_path: Path):
    """training-A8: the state that a joiner receives breaks off half way. It takes another; nobody else
    notices."""
    play = {"samples": 960, "pace": 0.01, "torn": "c"}
    with Stage(tmp_path, minimum=1, **play) as stage:
        stage.enter("a", "b")
        stage.together("a", "b")
        stage.enter("c")
        stage.together("a", "b", "c")
        assert (tmp_path / "c-torn").exists()
        stage.finished("a", "b", "c")
        stage.no_step_missing("a", "b", "c")
        assert stage.losses() == []


def test_a_group_that_cannot_be_built_after_a_loss(tmp_path: Path):
    """training-A8: building the group fails on one rank, which then reaches nobody: the oldest goes on,
    the other comes back as a joiner."""
    parts = {"b": [cue(2, "before", "unbuilt")], "c": [cue(2, "reducing", "kill")]}
    play = {"samples": 1200, "pace": 0.01, "parts": parts}
    with Stage(tmp_path, options=["--expect", "3"], **play) as stage:
        stage.enter("a", "b", "c")
        assert stage.wait("c") == -9
        stage.together("a", "b")
        stage.until(lambda: stage.views("b")[-1:] == stage.views("a")[-1:], "both are in it")
        stage.finished("a", "b")


def test_a_planned_group_that_cannot_be_built(tmp_path: Path):
    """training-A8: the same when somebody joins: steps go on, and it comes with the view after."""
    parts = {"b": [cue(2, "before", "unbuilt")]}
    play = {"samples": 1200, "pace": 0.01, "parts": parts}
    with Stage(tmp_path, options=["--expect", "2"], **play) as stage:
        stage.enter("a", "b")
        stage.together("a", "b")
        stage.reach("b", 2)
        stage.enter("c")
        stage.together("a", "b", "c")
        stage.finished("a", "b", "c")
        stage.no_step_missing("a", "b", "c")
        assert stage.losses() == []


LOST = {
    "state": ([cue(3, "applied", "mark", file="a-dropped")], [cue(3, "reducing", "drop", buckets=[3])]),
    "buckets": (
        [cue(3, "reducing", "drop", buckets=[1])],
        [cue(3, "reducing", "drop", buckets=[0, 3])],
    ),
    "rerun": ([cue(3, "reducing", "drop", buckets=[3])], [cue(3, "reducing", "drop", buckets=[3])]),
}


@pytest.mark.parametrize("how", LOST)
def test_a_kill_between_the_sum_and_the_step(tmp_path: Path, how: str):
    """training-N3: one dies with the sums in hand and before its optimizers. Of the survivors one has
    applied the step and the other lacks a bucket (it takes the state); each lacks another bucket (they
    are copied); both lack the same one (the step is run again). Hashes are equal after each step."""
    mine, other = LOST[how]
    dies = [
        cue(3, "reduced", "wait", files=["a-dropped", "b-dropped"]),
        cue(3, "reduced", "kill"),
    ]
    parts = {"a": mine, "b": other, "c": dies}
    with Stage(tmp_path, options=["--expect", "3"], samples=72, parts=parts) as stage:
        stage.enter("a", "b", "c")
        stage.finished("a", "b")
        stage.no_step_missing("a")
        assert stage.how() == [how]


@pytest.mark.parametrize(
    ("when", "victim"),
    [
        ("reduced", "a"),
        ("applied", "c"),
        *(soak(when, victim) for when, victim in (("reduced", "b"), ("reduced", "c"))),
        *(soak("applied", victim) for victim in "ab"),
    ],
)
def test_a_kill_around_the_step_whoever_it_is(tmp_path: Path, when: str, victim: str):
    """training-N3: on any rank, right before its optimizers or right after; another is held between sum
    and step until the members have changed."""
    others = [name for name in ("a", "b", "c") if name != victim]
    parts = {victim: [cue(3, when, "kill")], others[0]: [cue(3, "reduced", "hold")]}
    with Stage(tmp_path, options=["--expect", "3"], samples=72, parts=parts) as stage:
        stage.enter("a", "b", "c")
        assert stage.wait(victim) == -9
        stage.finished(*others)
        stage.no_step_missing(*others)
        assert stage.losses() == [victim]


@pytest.mark.parametrize("visit", [3, soak(4)])
def test_a_kill_while_the_step_is_being_counted(tmp_path: Path, visit: int):
    """training-N3: the process is gone between its optimizer's last step and saying so."""
    with Stage(tmp_path, options=["--expect", "3"], samples=72) as stage:
        stage.enter("a", "b")
        stage.enter("c", environment={"SHOAL_FAULTS": f"elastic.applied:kill:{visit}"})
        assert stage.wait("c") == -9
        stage.finished("a", "b")
        stage.no_step_missing("a", "b")


def test_peers_go_one_by_one_in_the_middle_of_an_allreduce(tmp_path: Path):
    """training-P2: five peers; in each of four steps one goes while the sum is made: each retry succeeds
    among those who are left, down to one."""
    parts = {
        "e": [cue(2, "sending", "kill")],
        "d": [cue(3, "reducing", "kill")],
        "c": [cue(4, "sending", "leave"), cue(4, "sending", "break")],
        "b": [cue(5, "reducing", "kill")],
    }
    with Stage(tmp_path, options=["--expect", "5"], samples=72, parts=parts) as stage:
        stage.enter("a", "b", "c", "d", "e")
        stage.finished("a")
        stage.no_step_missing("a")
        sizes = [len(view) for view in stage.views("a")]
        assert sizes[0] == 5
        assert sizes[-1] == 1
        assert sizes == sorted(sizes, reverse=True)
