"""All connections of all workers are cut at once, and every process lives: a blip of the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.forked import ForkedJob

CUT = Path(__file__).parents[1] / "programs" / "cut.py"
GOES_ON_SECONDS = 10.0
"""For a machine under other load: it takes 0.1 to 0.3 s."""


@pytest.mark.process
@pytest.mark.slow
def test_training_goes_on_after_every_connection_was_cut(tmp_path: Path):
    command = [str(CUT), "4800", "8", "1", "0.02", str(tmp_path / "hurry"), str(tmp_path / "cut")]
    with ForkedJob(tmp_path, minimum=2) as job:
        job.start("a", command)
        job.start("b", command)
        job.until(lambda: sum(x.get("size") == 2 for x in job.lines("a")) > 20, "steps of two", 120.0)
        (tmp_path / "cut").touch()

        def cuts() -> list[float]:
            return [x["at"] for name in "ab" for x in job.lines(name) if "cut" in x]

        job.until(lambda: len(cuts()) == 2, "both are cut")
        at = max(cuts())

        def steps(name: str) -> list[float]:
            return [x["at"] - at for x in job.lines(name) if "step" in x and x["at"] > at + 0.05]

        job.until(lambda: all(len(steps(name)) > 5 for name in "ab"), "training goes on")
        found = {name: steps(name)[0] for name in "ab"}
        (tmp_path / "hurry").touch()
        assert (job.wait("a"), job.wait("b")) == (0, 0)
        last = [job.lines(name)[-1] for name in "ab"]
    print(found)
    assert max(found.values()) < GOES_ON_SECONDS, found
    assert all(each["exact"] for each in last), last
