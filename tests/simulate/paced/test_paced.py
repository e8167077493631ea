"""Paced jobs: their file, what it comes to, and the order of policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.simulate.errors import BadInput
from shoal.simulate.paced.compare import contradictions, mean_jct, ranking, run
from shoal.simulate.paced.jobs import PacedFile, read_paced

LIVE = Path(__file__).parents[2] / "scenarios" / "paced-jobs.yaml"
"""What is run on real tasks too."""


def written(tmp_path: Path, text: str) -> PacedFile:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    return read_paced(path)


SMALL = """
nodes: 1
slots: 4
step: 0.5s
restart: 1s
jitter: {at: 2s, seconds: 0.5}
jobs:
  - {name: b, at: 3s, minimum: 2, maximum: 4, seconds: 12s, loss: 0.5}
  - {name: a, minimum: 1, maximum: 4, seconds: 8s}
"""


def test_a_job_is_as_fast_as_its_file_says(tmp_path: Path) -> None:
    """Steps, and how long each takes with so many tasks."""
    b, a = written(tmp_path, SMALL).listed
    assert (a.steps, b.steps) == (16, 24)
    assert a.speeds == pytest.approx((2, 4, 6, 8))
    assert [b.step_seconds(count) for count in (1, 2, 4)] == pytest.approx([0.5, 0.375, 0.3125])


def test_seeds_move_and_stretch_jobs_and_one_is_the_same_each_time(tmp_path: Path) -> None:
    file = written(tmp_path, SMALL)
    assert file.jobs(1) == file.jobs(1) != file.jobs(2)
    for seed in range(20):
        a, b = file.jobs(seed)
        assert (a.name, b.name) == ("a", "b")
        assert 0 <= a.at <= 2 and 3 <= b.at <= 5
        assert 4 <= a.seconds <= 12 and 6 <= b.seconds <= 18


def test_completion_times_are_those_of_the_curve(tmp_path: Path) -> None:
    """Alone at its largest: a second to start, then sixteen steps of an eighth of a second."""
    text = SMALL.replace("jitter: {at: 2s, seconds: 0.5}\n", "").replace("at: 3s", "at: 10s")
    outcome = run(written(tmp_path, text), "fifo", 1)
    assert outcome.completion == pytest.approx({"a": 3.0, "b": 1 + 24 * 0.3125})
    assert outcome.makespan == pytest.approx(18.5)
    assert outcome.mean == pytest.approx(5.75)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_policies_are_clearly_apart_on_the_list_that_is_run_live(seed: int) -> None:
    """On every seed, at least ten percent between neighbours; all three together take twelve minutes
    live, with what tasks take to start."""
    file = read_paced(LIVE)
    outcomes = [run(file, policy, seed) for policy in ("fifo-skip", "dragon", "shoal")]
    figures = mean_jct(outcomes)
    print(seed, figures)
    assert ranking(figures, 0.1) == [["shoal"], ["dragon"], ["fifo-skip"]]
    assert sum(outcome.makespan for outcome in outcomes) < 650
    assert len(file.listed) >= 8 and file.nodes == 4


def test_neighbours_share_a_place_where_little_is_between_them() -> None:
    figures = {"a": 100.0, "b": 104.9, "c": 105.1, "d": 111.0, "e": 90.0}
    assert ranking(figures) == [["e"], ["a", "b"], ["c"], ["d"]]


def test_what_comes_in_the_other_order_is_named_and_ties_are_not() -> None:
    expected = {"a": 1.0, "b": 1.03, "c": 2.0}
    assert contradictions(expected, {"a": 5.0, "b": 3.0, "c": 6.0}) == []
    assert contradictions(expected, {"a": 5.0, "b": 3.0, "c": 4.9}) == []
    (said,) = contradictions(expected, {"a": 5.0, "b": 3.0, "c": 4.0})
    assert said == "a was to come before c (1.00 and 2.00 s), and came after it (5.00 and 4.00 s)"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("step: 0s", "a step takes some time"),
        ("jitter: {seconds: 1}", "shorter by all of itself"),
        ("jobs: []", "one or more"),
        ("jobs: [{name: a, seconds: 1s}, {name: a, seconds: 1s}]", "each of its own name"),
        ("jobs: [{name: a, seconds: 0s}]", "takes some time"),
        ("jobs: [{name: a, seconds: 1s, minimum: 5}]", "at least 5 tasks, and there are 4 slots"),
        ("jobs: [{name: a, seconds: 1s, loss: -1}]", "from 0 up"),
        ("jobs: [{name: a, seconds: 1s, lost: 1}]", "lost means nothing here"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(tmp_path: Path, wrong: str, words: str) -> None:
    key = wrong.split(":")[0]
    first = "\n".join(line for line in SMALL.split("jobs:")[0].splitlines() if not line.startswith(key))
    jobs = "" if key == "jobs" else "jobs:" + SMALL.split("jobs:")[1]
    with pytest.raises(BadInput, match=words):
        written(tmp_path, f"{first}\n{wrong}\n{jobs}")
