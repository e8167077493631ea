"""Plain torch habits that would train wrongly: each is supported, or one error says what to do.

The table in docs/elastic.md has a row for each.
"""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import SGD, lr_scheduler
from torch.utils.data import TensorDataset

from shoal import elastic
from shoal.elastic.api import Job
from shoal.elastic.errors import ElasticError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_ELASTIC", "SHOAL_API", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def data(length: int = 16) -> TensorDataset:
    x = torch.arange(length * 2.0).view(length, 2) / length
    return TensorDataset(x, x.sum(1, keepdim=True))


def wrapped(model: nn.Module | None = None, **options: Any) -> tuple[Job, nn.Module, SGD]:
    job, model = elastic.init(), model or nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1, **options)
    job.wrap(model, optimizer)
    return job, model, optimizer


def backward(model: nn.Module, batch: Any) -> None:
    functional.mse_loss(model(batch[0]), batch[1]).backward()


def test_accumulation_that_was_not_declared():
    """It counted four steps and applied two of them."""
    job, model, optimizer = wrapped()
    with pytest.raises(ElasticError, match=r"job\.shards\(\.\.\., accumulate=k\)"):
        for number, batch in enumerate(job.shards(data(), 4)):
            backward(model, batch)
            if number % 2:
                optimizer.step()


def test_a_step_is_skipped_on_purpose():
    job, model, optimizer = wrapped()
    before = model.weight.detach().clone()
    for batch in job.shards(data(), 4):
        backward(model, batch)
        optimizer.zero_grad()
    assert torch.equal(model.weight, before)
    assert job.step == 4


def test_a_loop_is_left_between_backward_and_step():
    job, model, optimizer = wrapped()
    for batch in job.shards(data(), 4):
        backward(model, batch)
        break
    for batch in job.shards(data(), 4):
        backward(model, batch)
        optimizer.step()


def test_a_second_step_after_one_backward():
    """It was applied, and counted once."""
    job, model, optimizer = wrapped()
    with pytest.raises(ElasticError, match="called twice after one backward"):
        for batch in job.shards(data(), 4):
            backward(model, batch)
            optimizer.step()
            optimizer.step()


def test_several_optimizers_may_take_turns():
    job, model = elastic.init(), nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 1)})
    optimizers = [SGD(each.parameters(), lr=0.1) for each in model.values()]
    job.wrap(model, *optimizers)
    before = copy.deepcopy(model.state_dict())
    for number, (x, y) in enumerate(job.shards(data(), 4)):
        functional.mse_loss(model["a"](x) + model["b"](x), y).backward()
        optimizers[number % 2].step()
    assert job.step == 4
    assert all(not torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("late", [False, True], ids=["before wrap", "after wrap"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_scheduler_that_was_not_wrapped(late: bool, nested: bool):
    """Workers' learning rates differed: it is not part of what a joiner is given."""
    model = nn.Linear(2, 1)
    optimizer, job = SGD(model.parameters(), lr=0.1), elastic.init()

    def schedule() -> lr_scheduler.LRScheduler:
        steps = lr_scheduler.StepLR(optimizer, 2)
        return lr_scheduler.SequentialLR(optimizer, [steps], []) if nested else steps

    scheduler = None if late else schedule()
    job.wrap(model, optimizer)
    scheduler = scheduler or schedule()
    with pytest.raises(ElasticError, match=r"(StepLR|SequentialLR) acts on a wrapped optimizer"):
        iter(job.shards(data(), 4))
    del scheduler


def test_a_scheduler_of_schedulers_is_wrapped_once():
    model = nn.Linear(2, 1)
    optimizer, job = SGD(model.parameters(), lr=0.1), elastic.init()
    parts = [lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.StepLR(optimizer, 2)]
    schedule = lr_scheduler.SequentialLR(optimizer, parts, [2])
    job.wrap(model, optimizer, schedule)
    for batch in job.shards(data(), 4):
        backward(model, batch)
        optimizer.step()
        schedule.step()
    assert schedule.last_epoch == 4


def test_a_scheduler_of_another_optimizer_is_the_scripts_own():
    other = SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    schedule = lr_scheduler.StepLR(other, 1)
    job, model, optimizer = wrapped()
    for batch in job.shards(data(), 4):
        backward(model, batch)
        optimizer.step()
    assert schedule.last_epoch == 0


@pytest.mark.parametrize("micro", [None, 2])
def test_a_scaler_that_was_not_wrapped(micro: int | None):
    """With micro-batches torch said "No inf checks were recorded for this optimizer"."""
    scaler = torch.amp.GradScaler("cpu")
    job, model, optimizer = wrapped()
    with pytest.raises(ElasticError, match="a GradScaler acts on a wrapped optimizer"):
        for x, y in job.shards(data(), 4, micro_batch=micro):
            scaler.scale(functional.mse_loss(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()


def test_a_scaler_of_another_optimizer_is_the_scripts_own():
    wrapped()
    scaler, model = torch.amp.GradScaler("cpu"), nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    scaler.scale(model(torch.ones(2))).sum().backward()
    scaler.step(optimizer)


def test_a_scaler_with_micro_batches():
    job, model = elastic.init(), nn.Linear(2, 1)
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=4.0), SGD(model.parameters(), lr=0.1)
    job.wrap(model, optimizer, scaler)
    twin_job, twin, twin_optimizer = wrapped(copy.deepcopy(model))
    for x, y in job.shards(data(), 8, micro_batch=3):
        scaler.scale(functional.mse_loss(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    for batch in twin_job.shards(data(), 8):
        backward(twin, batch)
        twin_optimizer.step()
    torch.testing.assert_close(model.weight, twin.weight)


def test_parameters_that_are_unfrozen_late():
    """Their gradients were summed over no workers, and digests did not see it."""
    job, model, optimizer = wrapped(
        nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1))
    )
    steps = 0
    with pytest.raises(ElasticError, match=r"the parameter 0\.weight was unfrozen"):
        for batch in job.shards(data(), 4):
            backward(model, batch)
            optimizer.step()
            steps += 1
            model[0].requires_grad_(True)
    assert steps == 1


def test_parameters_that_are_frozen_late_stay():
    job, model, optimizer = wrapped(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    for batch in job.shards(data(), 4):
        if job.step == 2:
            model[0].requires_grad_(False)
            before = model[0].weight.detach().clone()
        backward(model, batch)
        optimizer.step()
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("weighed", [False, True])
def test_batch_normalisation_with_a_share_of_one_sample(weighed: bool):
    """torch raised "Expected more than 1 value per channel when training"."""
    job, model, optimizer = wrapped(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)))
    weight = (lambda batch: len(batch[0])) if weighed else None
    sizes = []
    for batch in job.shards(data(9), 4, weight=weight):
        sizes.append(len(batch[0]))
        backward(model, batch)
        optimizer.step()
    assert sizes == [4, 4, 2]
    assert job.step == 3
    model.eval()
    for batch in job.shards(data(9), 4):
        sizes.append(len(batch[0]))
        backward(model, batch)
        optimizer.step()
    assert sizes[3:] == [4, 4, 1], "statistics are not trained any more"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("sampler", "choose, repeat or weight samples in the dataset"),
        ("batch_sampler", "sort or group samples in the dataset"),
        ("drop_last", "counts by its samples"),
        ("collate_fn", "it is called collate="),
        ("num_workers", "in the worker's own process"),
    ],
)
def test_options_of_a_loader(option: str, sentence: str):
    job, *_ = wrapped()
    with pytest.raises(ElasticError, match=sentence):
        job.shards(data(), 4, **{option: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        job.shards(data(), 4, batchsize=1)


def test_lbfgs():
    model = nn.Linear(2, 1)
    with pytest.raises(ElasticError, match="LBFGS computes the loss several times"):
        elastic.init().wrap(model, torch.optim.LBFGS(model.parameters()))


def test_sparse_gradients():
    model = nn.Embedding(16, 1, sparse=True)
    job, model, optimizer = wrapped(model)
    with pytest.raises(ElasticError, match="use sparse=False"):
        for batch in job.shards(range(16), 4):
            model(batch).sum().backward()
            optimizer.step()


def test_a_wrapped_scheduler_is_saved_and_copied_as_what_it_is():
    model = nn.Linear(2, 1)
    optimizer, job = SGD(model.parameters(), lr=0.1), elastic.init()
    schedule = lr_scheduler.StepLR(optimizer, 1, 0.5)
    job.wrap(model, optimizer, schedule)
    for batch in job.shards(data(), 4):
        backward(model, batch)
        optimizer.step()
        schedule.step()
    file = io.BytesIO()
    torch.save(schedule, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for each in (loaded, copy.deepcopy(schedule)):
        assert type(each) is lr_scheduler.StepLR
        assert each.last_epoch == 4
        assert each.get_last_lr() == schedule.get_last_lr()
