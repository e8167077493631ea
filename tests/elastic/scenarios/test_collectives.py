"""What is reduced when a call returns, and what a collective does when a rank goes: training-A6, A11."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from shoal.elastic.allreduce.groups import Groups
from shoal.elastic.view import Member, View
from tests.elastic.machine import Baseline
from tests.elastic.scenarios.stage import Stage, cue
from tests.elastic.variants import soak

OTHERS = [
    ("sum", "close"),
    ("sum", "stop"),
    ("broadcast", "close"),
    ("broadcast", "kill"),
    ("gather", "kill"),
    ("gather", "stop"),
]
REDUCED = Path(__file__).parents[1] / "programs" / "reduced.py"


@pytest.mark.process
@pytest.mark.slow
def test_what_backward_returns_is_reduced(tmp_path: Path):
    """training-A6: a peer chains a callback on the future of its allreduce. Ours has none: `backward()`
    and `job.allreduce` return when the data are reduced, and never before; replicas are equal."""
    with Stage(tmp_path, minimum=3) as stage:
        for name in ("a", "b", "c"):
            stage.start(name, [str(REDUCED)])
        assert {stage.wait(name) for name in ("a", "b", "c")} == {0}
        told = [stage.lines(name)[-1] for name in ("a", "b", "c")]
    assert all(line["gradients"] < 1e-12 for line in told), told
    assert all(line["sums"] == [6.0] * line["passes"] for line in told), told
    assert len({line["digest"] for line in told}) == 1


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "end"),
    [
        ("sum", "kill"),
        ("broadcast", "stop"),
        ("gather", "close"),
        *(soak(what, end) for what, end in OTHERS),
    ],
)
def test_a_collective_ends_when_a_rank_goes(tmp_path: Path, what: str, end: str, baseline: Baseline):
    """training-A11: 3 ranks, each collective once; then the last shuts its group and is gone, is killed,
    or is stopped. The survivors get an error and never hang, go on without it, and the same collective
    succeeds."""
    every = [cue(1, "before", "ask", what=each) for each in ("sum", "broadcast", "gather")]
    again = [cue(step, "reduced", "ask", what=what) for step in (2, 3)]
    parts = {name: [*every, *again] for name in "abc"}
    for cues in parts.values():
        cues.insert(3, cue(2, "reduced", end, rank=2))
    with Stage(tmp_path, options=["--expect", "3"], parts=parts) as stage:
        stage.enter("a", "b", "c")
        stage.until(lambda: (tmp_path / f"anybody-2-reduced-{end}.cue").exists(), "one goes")
        oldest, second, _ = stage.views("a")[0]
        stage.finished(oldest, second)
        stage.no_step_missing(oldest, second)
        for name in (oldest, second):
            asked = [line for line in stage.lines(name) if "asked" in line]
            assert all(line["right"] for line in asked if line.get("size") == 3), asked
            assert [line["asked"] for line in asked[:3]] == ["sum", "broadcast", "gather"]
            failed, last = asked[-2:]
            assert failed["asked"] == last["asked"] == what
            assert "error" in failed, asked
            assert failed["seconds"] < baseline.allow(5.0), "it hung"
            assert last["right"], asked
            assert last["size"] == 2, asked


def test_a_build_with_a_missing_peer_holds_nobody_up(baseline: Baseline):
    """training-A11: configure with 10 ms and a peer that never comes. A peer raises; ours builds in the
    background, so who asks for the group has no group after 10 ms, and goes on; the next view ends the
    build. (No deadline of its own: a peer that is only slow is not to be put out for it.)"""
    made = Groups("127.0.0.1", lambda: ("a", 1), lambda message: None)
    here, missing = Member("a", 1, "127.0.0.1:1"), Member("b", 2, "127.0.0.1:1")
    made.want(View(3, "loss", (here, missing)))
    began = time.monotonic()
    assert made.take(3, 0.01) is None
    assert time.monotonic() - began < baseline.allow(1.0)
    made.want(View(4, "loss", (here,)))
    alone = made.take(4, 1.0)
    assert alone is not None
    assert alone.size == 1
    deadline = time.monotonic() + 10.0
    while any(thread.name == "shoal-group-3" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the build goes on for nobody"
        time.sleep(0.001)
    alone.close()
    made.close()
