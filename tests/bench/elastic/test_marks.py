from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.elastic.marks import Follower, Recorder


def test_what_a_worker_writes_is_read_once_and_in_order(tmp_path: Path) -> None:
    recorder, follower = Recorder(tmp_path, "worker-0"), Follower(tmp_path)
    recorder.event("imported")
    recorder.step(1, 2, 0)
    (trace,) = follower.update()
    assert (trace.pid, trace.name) == (os.getpid(), "worker-0")
    recorder.step(2, 2, 1, applied=False)
    recorder.step(2, 1, 1)
    assert follower.update() == [trace]
    assert [(m.step, m.world, m.committed, m.applied) for m in trace.marks] == [
        (1, 2, 0, True),
        (2, 2, 1, False),
        (2, 1, 1, True),
    ]
    assert [mark.step for mark in trace.applied] == [1, 2]
    assert trace.events["imported"] <= trace.marks[0].at_ns <= trace.marks[1].at_ns


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path, follower = tmp_path / "a.b.17.steps", Follower(tmp_path)
    path.write_text("step 1 1000 2 0 1\nstep 2 20")
    (trace,) = follower.update()
    assert (trace.name, trace.pid, len(trace.marks)) == ("a.b", 17, 1)
    with path.open("a") as file:
        file.write("00 2 1 1\n")
    follower.update()
    assert trace.marks[1].at_ns == 2000


def test_a_strange_line_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.17.steps").write_text("step one\n")
    with pytest.raises(ValueError, match="step one"):
        Follower(tmp_path).update()
