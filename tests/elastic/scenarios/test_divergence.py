"""Ranks that should be equal and are not; what a voided step leaves behind: training-P1, B11."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.scenarios.stage import Stage, cue
from tests.elastic.variants import soak

pytestmark = [pytest.mark.process, pytest.mark.slow]


def play(stage: Stage) -> list[dict]:
    """All three go through, and are equal in the end; what each told last."""
    stage.enter("a", "b", "c")
    stage.hurry.touch()
    codes = {name: stage.wait(name) for name in ("a", "b", "c")}
    assert set(codes.values()) == {0}, codes
    last = [stage.lines(name)[-1] for name in ("a", "b", "c")]
    assert len({line["digest"] for line in last}) == 1
    assert all(line["exact"] for line in last), last
    return last


def test_equal_ranks_move_nothing(tmp_path: Path):
    """training-P1: identical state: 0 bytes are given to anybody."""
    with Stage(tmp_path, minimum=3, samples=144, check_every=4) as stage:
        assert [line["moved"] for line in play(stage)] == [0, 0, 0]


@pytest.mark.parametrize("dirty", [0, soak(1), soak(2)])
def test_a_dirty_rank_takes_the_state_of_the_majority(tmp_path: Path, dirty: int):
    """training-P1: one of three differs, also when it is the first: the majority wins. A peer moves the
    dirty key alone; ours the whole state: of a rank whose memory was wrong nothing is trusted."""
    parts = {name: [cue(2, "applied", "dirty", rank=dirty)] for name in "abc"}
    with Stage(tmp_path, minimum=3, samples=144, check_every=4, parts=parts) as stage:
        last = play(stage)
        assert all(line["moved"] > 0 for line in last)
        victim, *others = sorted(
            ("a", "b", "c"), key=lambda name: not any("cue" in line for line in stage.lines(name))
        )
        seen = {
            name: {line["step"]: line["digest"] for line in stage.lines(name) if "digest" in line}
            for name in ("a", "b", "c")
        }
        assert seen[others[0]] == seen[others[1]]
        assert seen[victim][3] != seen[others[0]][3], "it was not dirty at all"
        assert seen[victim][5] == seen[others[0]][5], "found at step 4, equal before step 5"


def test_the_state_at_the_start_is_the_oldest_ones(tmp_path: Path):
    """training-B11: ranks that differ are made equal at the start: root's values, the oldest's."""
    seeds = {"a": 1, "b": 2, "c": 3}
    with Stage(tmp_path, minimum=3, seeds=seeds) as stage:
        stage.enter("a", "b", "c")
        stage.finished("a", "b", "c")
        oldest = stage.views("a")[0][0]
        initial = {
            name: next(line["initial"] for line in stage.lines(name) if "initial" in line)
            for name in seeds
        }
        assert len(set(initial.values())) == 3
        begun = {
            name: next(line["state"] for line in stage.lines(name) if "state" in line) for name in seeds
        }
        assert set(begun.values()) == {initial[oldest]}


def test_a_voided_step_leaves_nothing_behind(tmp_path: Path):
    """training-B11: a peer's state goes back to the last commit. In ours each applied step is one: a
    pass that is run again finds buffers and random numbers as its first run found them, and parameters
    that nobody has touched; what was applied stays."""
    parts = {"b": [cue(3, "sending", "break")]}
    with Stage(tmp_path, minimum=2, parts=parts, draws=True) as stage:
        stage.enter("a", "b")
        last = stage.finished("a", "b")
        assert [line["passes"] for line in last] == [4.0, 4.0]
        for name in ("a", "b"):
            draws = [(line["at_step"], line["draw"]) for line in stage.lines(name) if "draw" in line]
            assert [step for step, _ in draws] == [1, 2, 3, 3, 4]
            assert draws[2] == draws[3]
            assert len({draw for _, draw in draws}) == 4
