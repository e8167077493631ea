from __future__ import annotations

from pathlib import Path

import pytest
from bench.elastic.evictions import shrunk
from bench.elastic.marks import Mark, Recorder, Trace
from bench.elastic.mischief import ask, obey


def _trace(worlds: list[int]) -> Trace:
    return Trace(1, "a", [Mark(step, 10 * step, world, step) for step, world in enumerate(worlds, 1)])


def test_each_time_that_the_world_was_smaller_counts_once() -> None:
    assert shrunk([_trace([4, 4, 4]), _trace([4, 4])], 4, 0) == 0
    assert shrunk([_trace([4, 3, 3, 4, 2, 4])], 4, 0) == 2
    # the same step seen by two workers; one of them has seen nothing of the second time
    assert shrunk([_trace([4, 3, 3, 4, 2]), _trace([4, 3, 3])], 4, 0) == 2


def test_what_was_before_does_not_count() -> None:
    assert shrunk([_trace([1, 2, 4, 4])], 4, since_ns=30) == 0


def test_a_worker_does_what_it_was_asked_to_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "a")
    obey(tmp_path, "a", recorder)
    assert "did" not in _written(tmp_path)
    ask(tmp_path, "a", "stall 0.01")
    obey(tmp_path, "b", recorder)
    assert "did" not in _written(tmp_path)
    obey(tmp_path, "a", recorder)
    obey(tmp_path, "a", recorder)
    assert _written(tmp_path).count("event did:stall:") == 1


def test_it_is_not_asked_for_what_there_is_not(tmp_path: Path) -> None:
    ask(tmp_path, "a", "dance")
    with pytest.raises(ValueError, match="'dance'"):
        obey(tmp_path, "a", Recorder(tmp_path, "a"))


def _written(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.steps"))
