"""What a script calls wrongly is said where it calls it: alone, so with nobody to wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from shoal import elastic
from shoal.elastic.api import Job
from shoal.elastic.errors import ElasticError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_ELASTIC", "SHOAL_API", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def data(length: int = 16) -> TensorDataset:
    x = torch.arange(length * 2.0).view(length, 2) / length
    return TensorDataset(x, x.sum(1, keepdim=True))


def wrapped() -> tuple[Job, nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    job = elastic.init()
    model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return job, model, optimizer


class Stream(IterableDataset):
    def __iter__(self):
        yield from data()


class Odd(torch.utils.data.Dataset):
    """A map-style dataset whose author forgot `__len__`."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(2)


CALLS: dict[str, tuple[Callable[[Job], Any], str]] = {
    "no batch": (lambda job: job.shards(data(), 0), "batch_size must be at least 1, not 0"),
    "half a batch": (lambda job: job.shards(data(), 2.5), "batch_size must be a whole number, not 2.5"),
    "no epoch": (lambda job: job.shards(data(), 4, 0), "epochs must be at least 1"),
    "no part": (lambda job: job.shards(data(), 4, micro_batch=0), "micro_batch must be at least 1"),
    "no accumulation": (lambda job: job.shards(data(), 4, accumulate=-1), "accumulate must be at least"),
    "a loader": (lambda job: job.shards(DataLoader(data()), 4), "not a DataLoader"),
    "a stream": (lambda job: job.shards(Stream(), 4), "dealt anew whenever workers come or go"),
    "no length": (lambda job: job.shards(Odd(), 4), "the dataset has no length"),
    "nothing": (lambda job: job.shards([], 4), "the dataset is empty"),
    "no worker": (lambda job: job.resize(0), "at least one worker, not 0"),
    "wrapped late": (lambda job: (job.shards(data(), 4), job.wrap(nn.Linear(2, 2))), "before the first"),
    "wrapped twice": (lambda job: job.wrap(*[nn.Linear(2, 2)] * 2), "the same Linear twice"),
    "a number": (lambda job: job.wrap(3), "cannot follow a int: it has no state_dict"),
    "no folder": (lambda job: job.save(), "no folder for checkpoints"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_one_sentence(name: str):
    job, *_ = wrapped()
    call, sentence = CALLS[name]
    with pytest.raises(ElasticError, match=sentence) as caught:
        call(job)
    assert "\n" not in str(caught.value)


def test_shards_before_wrap():
    with pytest.raises(ElasticError, match=r"call job\.wrap"):
        elastic.init().shards(data(), 4)


def test_an_optimizer_of_parameters_that_nobody_wrapped():
    job = elastic.init()
    model, head = nn.Linear(2, 1), nn.Linear(1, 1)
    job.wrap(model, torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1))
    with pytest.raises(ElasticError, match=r"pass their module to job\.wrap"):
        job.shards(data(), 4)


class Kinds(torch.utils.data.Dataset):
    """Samples in the shapes that users have: dicts with words in them, tuples, numbers."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        x = torch.full((2,), float(index))
        return {
            "dict": {"x": x, "word": f"word {index}", "number": index},
            "tuple": (x, f"word {index}", index),
            "tensor": x,
            "number": float(index),
        }[self.kind]


@pytest.mark.parametrize("kind", ["dict", "tuple", "tensor", "number"])
def test_a_batch_is_what_a_loader_makes_of_the_samples(kind: str):
    job, model, optimizer = wrapped()
    dataset, seen = Kinds(kind), []
    for batch in job.shards(dataset, 4, shuffle=False):
        seen.append(batch)
        model(torch.zeros(1, 2)).sum().backward()
        optimizer.step()
    expected = [default_collate([dataset[i] for i in range(a, min(a + 4, 10))]) for a in (0, 4, 8)]
    assert str(seen) == str(expected)


def test_a_sample_that_is_not_there_is_named_by_the_dataset_itself():
    class Short(Kinds):
        def __getitem__(self, index: int) -> Any:
            if index > 6:
                raise IndexError(f"no sample {index}")
            return super().__getitem__(index)

    job, model, optimizer = wrapped()
    with pytest.raises(
        ElasticError, match=r"shorter than its len\(\) said at the start: no sample [789]"
    ):
        for batch in job.shards(Short("tensor"), 4):
            model(batch).sum().backward()
            optimizer.step()


def learn(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, batches: Any, most: int = 99):
    """The usual loop; how many batches there were."""
    count = 0
    for x, y in batches:
        if count == most:
            break
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
        count += 1
    return count


def test_a_loop_an_epoch_is_as_good_as_one_over_all_epochs():
    first, second = wrapped(), wrapped()
    second[1].load_state_dict(first[1].state_dict())
    learn(*first, first[0].shards(data(), 4, epochs=3))
    counts = [learn(*second, second[0].shards(data(), 4)) for _ in range(3)]
    assert counts == [4, 4, 4]
    assert torch.equal(first[1].weight, second[1].weight)


def test_what_shards_returns_may_be_looped_over_again_as_a_loader():
    job, model, optimizer = wrapped()
    batches = job.shards(data(), 4)
    assert [learn(job, model, optimizer, batches) for _ in range(3)] == [4, 4, 4]
    assert job.step == 12


@pytest.mark.parametrize("most", [0, 2])
def test_a_loop_that_is_left_early_is_over(most: int):
    """The batch in hand when it is left counts for nothing; the next loop begins with a new epoch."""
    job, model, optimizer = wrapped()
    assert learn(job, model, optimizer, job.shards(data(), 4, epochs=2), most) == most
    assert learn(job, model, optimizer, job.shards(data(), 4)) == 4
    assert (job.step, job.cursor.epoch) == (most + 4, 3)


def test_a_loop_left_amid_the_parts_of_a_step_does_not_apply_it():
    job, model, optimizer = wrapped()
    before = model.weight.detach().clone()
    assert learn(job, model, optimizer, job.shards(data(), 16, micro_batch=4), 2) == 2
    assert job.step == 0
    assert torch.equal(model.weight, before)
    assert learn(job, model, optimizer, job.shards(data(), 16, micro_batch=4)) == 4
    assert job.step == 1


def test_two_loops_at_a_time_are_refused():
    job, model, optimizer = wrapped()
    for x, y in job.shards(data(), 4):
        functional.mse_loss(model(x), y).backward()
        with pytest.raises(ElasticError, match="has not ended"):
            learn(job, model, optimizer, job.shards(data(), 4))
        optimizer.step()
    assert job.step == 4


def test_the_scripts_own_loader_with_processes_is_its_own_affair():
    """Evaluation with a forking DataLoader between two epochs, and within one."""
    job, model, optimizer = wrapped()
    for _ in range(2):
        for x, y in job.shards(data(), 8):
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            loader = DataLoader(data(), 8, num_workers=1, multiprocessing_context="fork")
            assert len([model(x) for x, _ in loader]) == 2
    assert job.step == 4
