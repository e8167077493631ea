"""The batch and the learning rate follow the number of workers, in a real job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from shoal import elastic
from shoal.elastic import ElasticError, Scale
from tests.elastic.forked import ForkedJob

GROWS = Path(__file__).parent / "programs" / "grows.py"


def told(rule: str, warmup: int = 0) -> str:
    return json.dumps({"rule": rule, "reference": 1, "warmup": warmup})


def alone(scale: Scale | None) -> tuple[list[float], list[float]]:
    """Learning rates that the schedule left, and parameters, of a short training of one worker."""
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(4, generator=generator), torch.randn(1, generator=generator)) for _ in range(48)
    ]
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    job = elastic.init()
    job.wrap(model, optimizer, schedule)
    rates: list[float] = []
    for inputs, targets in job.shards(data, batch_size=8, epochs=1, scale=scale):
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    job.close()
    return rates, model.weight.flatten().tolist()


@pytest.mark.slow
def test_one_worker_that_is_the_reference_trains_as_without():
    assert alone(Scale("linear")) == alone(None)


@pytest.mark.slow
def test_half_of_the_reference_has_half_of_the_batch_and_of_the_rate():
    rates, weights = alone(Scale("linear", reference=2))
    assert len(rates) == 12, "batches of 4"
    assert rates == pytest.approx([0.1 * 0.9 ** (n + 1) for n in range(12)])
    assert weights != alone(None)[1]


@pytest.mark.slow
def test_loops_of_one_script_have_one_policy():
    model = torch.nn.Linear(2, 1)
    job = elastic.init()
    job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    job.shards([(torch.zeros(2), torch.zeros(1))] * 4, 2, scale=Scale("sqrt"))
    with pytest.raises(ElasticError, match="same in all loops"):
        job.shards([(torch.zeros(2), torch.zeros(1))] * 4, 2)
    job.close()


def test_adascale_was_removed():
    with pytest.raises(ValueError, match="adascale was removed"):
        Scale("adascale")  # pyright: ignore[reportArgumentType]


@pytest.mark.process
@pytest.mark.slow
def test_two_workers_have_twice_the_batch(tmp_path: Path):
    """Then one is killed: the batch is the reference's again, and each sample was learned once."""
    with ForkedJob(tmp_path) as job:
        words = [str(GROWS), told("sqrt"), str(tmp_path / "hurry")]
        job.start("a", words)
        job.start("b", words)
        job.until(lambda: sum(line.get("size") == 2 for line in job.lines("a")) > 4, "steps of two")
        job.kill("b")
        job.until(lambda: job.lines("a")[-1].get("size") == 1, "steps of one")
        job.start("b", words)
        before = len(job.lines("a"))
        job.until(lambda: any(x.get("size") == 2 for x in job.lines("a")[before:]), "two again")
        (tmp_path / "hurry").touch()
        assert (job.wait("a"), job.wait("b")) == (0, 0)
        lines = job.lines("a")
        last = [lines[-1], job.lines("b")[-1]]
    assert last[0]["digest"] == last[1]["digest"]
    assert last[0]["counts"] == [8] * 320
    for line in lines[:-1]:
        assert line["samples"] == min(8 * line["size"], line["left"])
        assert line["factor"] == pytest.approx(line["size"] ** 0.5)
