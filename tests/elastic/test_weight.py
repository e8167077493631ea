"""A loss that is a mean over something else than samples: any cut into parts gives the whole batch's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shoal import elastic
from shoal.elastic import ElasticError
from tests.elastic import forked
from tests.elastic.forked import ForkedJob

TOKENS = Path(__file__).parent / "programs" / "tokens.py"


def alone(folder: Path, largest: int) -> list[float]:
    return json.loads(forked.output(folder, [str(TOKENS), str(largest)])[-1])["values"]


@pytest.mark.process
@pytest.mark.slow
def test_parts_and_workers_weigh_by_what_they_hold(tmp_path: Path):
    whole = alone(tmp_path, 16)
    assert alone(tmp_path, 3) == pytest.approx(whole, rel=1e-11)
    with ForkedJob(tmp_path, minimum=3) as job:
        for name in ("a", "b", "c"):
            job.start(name, [str(TOKENS), "4"])
        assert [job.wait(name) for name in ("a", "b", "c")] == [0, 0, 0]
        for name in ("a", "b", "c"):
            last = job.lines(name)[-1]
            assert (last["step"], last["size"]) == (18, 3)
            assert last["values"] == pytest.approx(whole, rel=1e-11)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.slow
def test_a_weight_that_is_none(value: float):
    model = torch.nn.Linear(2, 1)
    job = elastic.init()
    job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ElasticError, match="weight="):
        next(iter(job.shards([torch.zeros(2)] * 4, 2, weight=lambda batch: value)))
    job.close()
