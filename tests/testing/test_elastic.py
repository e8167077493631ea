from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.testing.elastic import ElasticJob

WAITS = """
import time
from shoal import elastic

job = elastic.init()
print("{}", flush=True)
time.sleep(60)
"""


def test_news_are_whole_lines_each_once(tmp_path: Path) -> None:
    job = ElasticJob(tmp_path)
    log = tmp_path / "a.log"
    assert job.news("a") == []
    log.write_text('{"n": 1}\nsomething else\n{"n": 2')
    assert job.news("a") == [{"n": 1}]
    with log.open("a") as more:
        more.write('}\n{"broken\n' + json.dumps({"n": "ä"}) + "\n")
    assert job.news("a") == [{"n": 2}, {"n": "ä"}]
    assert job.news("a") == []
    assert job.lines("a") == [{"n": 1}, {"n": 2}, {"n": "ä"}]


@pytest.mark.process
@pytest.mark.slow
def test_a_sidecar_is_found_killed_and_there_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with ElasticJob(tmp_path) as job:
        worker = job.start("a", ["-c", WAITS])
        job.until(lambda: job.lines("a"), "it is there")
        first = job.sidecar("a")
        assert first not in (0, worker.pid)
        assert job.kill_sidecar("a")
        job.until(lambda: job.sidecar("a") not in (0, first), "another sidecar", 20.0)
        job.kill("a")
        assert job.sidecar("a") == 0
        assert not job.kill_sidecar("a")
