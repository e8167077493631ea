"""The same script with one process and no server: it must be the plain torch loop."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from shoal import elastic
from shoal.elastic import environment
from shoal.elastic.api import Job
from shoal.elastic.errors import ElasticError
from shoal.elastic.ledger.fetch import Order
from shoal.elastic.training import Training

LENGTH, BATCH, EPOCHS = 50, 16, 2


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SHOAL_ELASTIC", "SHOAL_API", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(LENGTH, 6, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler, clip: bool) -> None:
    order, dataset = Order(LENGTH, 0), data()
    for epoch in range(EPOCHS):
        for first in range(0, LENGTH, BATCH):
            x, y = dataset[order.indices(epoch, first, min(first + BATCH, LENGTH))]
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("micro", [None, 5])
@pytest.mark.slow
def test_it_is_the_plain_loop(clip: bool, micro: int | None):
    model = network()
    if micro is not None:
        model[1] = nn.Identity()  # batch statistics are of a part
    reference = copy.deepcopy(model)
    other = torch.optim.AdamW(reference.parameters(), lr=0.01)
    plain(reference, other, torch.optim.lr_scheduler.StepLR(other, 3, 0.5), clip)
    job = elastic.init()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    model, optimizer, scheduler = job.wrap(model, optimizer, scheduler)
    steps = 0
    for x, y in job.shards(data(), BATCH, EPOCHS, micro_batch=micro):
        functional.mse_loss(model(x), y).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        scheduler.step()
        steps += job.stepped
    assert steps == job.step == job.committed == EPOCHS * 4
    assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]
    for mine, theirs in zip(model.state_dict().values(), reference.state_dict().values(), strict=True):
        if micro is None:
            assert torch.equal(mine, theirs)
        else:
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_zero_grad_where_users_put_it_changes_nothing():
    model = nn.Linear(6, 1)
    twin = copy.deepcopy(model)
    for each, zeroing in ((model, False), (twin, True)):
        job = elastic.init()
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        each, optimizer = job.wrap(each, optimizer)
        for x, y in job.shards(data(), BATCH):
            if zeroing:
                optimizer.zero_grad()
            functional.mse_loss(each(x), y).backward()
            optimizer.step()
    assert torch.equal(model.weight, twin.weight)


@pytest.mark.slow
def test_what_no_rank_used_keeps_no_gradient_and_does_not_decay():
    model = nn.ModuleDict({"used": nn.Linear(6, 1), "unused": nn.Linear(6, 1)})
    before = model["unused"].weight.detach().clone()
    job = elastic.init()
    model, optimizer = job.wrap(model, torch.optim.AdamW(model.parameters(), weight_decay=0.5))
    for x, y in job.shards(data(), BATCH):
        functional.mse_loss(model["used"](x), y).backward()
        assert model["unused"].weight.grad is None
        optimizer.step()
    assert torch.equal(model["unused"].weight, before)


@pytest.mark.slow
def test_frozen_parameters_stay():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    before = model[0].weight.detach().clone()
    job = elastic.init()
    model, optimizer = job.wrap(model, torch.optim.AdamW(model[1].parameters()))
    for x, y in job.shards(data(), BATCH):
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
    assert torch.equal(model[0].weight, before)


@pytest.mark.slow
def test_the_users_own_accumulation_is_declared():
    model = nn.Linear(6, 1)
    twin = copy.deepcopy(model)
    job = elastic.init()
    model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for number, (x, y) in enumerate(job.shards(data(), BATCH, accumulate=4)):
        (functional.mse_loss(model(x), y) / 4).backward()
        if number % 4 == 3:
            optimizer.step()
    other = elastic.init()
    twin, optimizer = other.wrap(twin, torch.optim.SGD(twin.parameters(), lr=0.1))
    for x, y in other.shards(data(), BATCH):
        functional.mse_loss(twin(x), y).backward()
        optimizer.step()
    torch.testing.assert_close(model.weight, twin.weight)


def loop(dataset, batch_size=BATCH, wrap=True, backward=1):
    model = nn.Linear(6, 1)
    job = elastic.init()
    if wrap:
        model, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in job.shards(dataset, batch_size):
        for _ in range(backward):
            functional.mse_loss(model(x), y).backward()
        optimizer.step()


class Changing:
    def __init__(self) -> None:
        self.asked = 0

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(1)

    def __len__(self) -> int:
        self.asked += 1
        return 10 + self.asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ({"dataset": DataLoader(data())}, "not a DataLoader"),
        ({"dataset": iter([1])}, "dataset with len"),
        ({"dataset": []}, "is empty"),
        ({"dataset": Changing()}, "length changes"),
        ({"dataset": data(), "batch_size": 0}, "batch_size must be at least 1"),
        ({"dataset": data(), "wrap": False}, "call job.wrap"),
        ({"dataset": data(), "backward": 0}, "without backward"),
        ({"dataset": data(), "backward": 2}, "ran twice"),
    ],
)
def test_bad_input_is_one_sentence(what: dict, sentence: str):
    with pytest.raises(ElasticError, match=sentence) as caught:
        loop(**what)
    assert "\n" not in str(caught.value)


def test_an_optimizer_of_an_unknown_model_is_named():
    job = elastic.init()
    stranger = nn.Linear(2, 2)
    job.wrap(nn.Linear(6, 1), torch.optim.SGD(stranger.parameters(), lr=0.1))
    with pytest.raises(ElasticError, match="no wrapped model"):
        job.shards(data(), 4)


@pytest.mark.slow
def test_a_scaler_and_an_average_follow_the_steps():
    model = nn.Linear(6, 1)
    job = elastic.init()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    average = torch.optim.swa_utils.AveragedModel(model)
    model, optimizer, scaler, average = job.wrap(
        model, torch.optim.SGD(model.parameters(), lr=0.01), scaler, average
    )
    for x, y in job.shards(data(), BATCH, micro_batch=3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
    assert job.step == 4
    assert int(average.n_averaged) == 4


@pytest.mark.slow
def test_gradients_that_the_script_has_had_are_given_to_nobody():
    """It may have clipped them: after a loss between backward and step, the step is made anew."""
    model = torch.nn.Linear(3, 1)
    training = Training(None, None)
    job = Job(training)
    _, optimizer = job.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for rows in job.shards([torch.ones(3)] * 8, 4):
        assert training.finished == (False,)
        model(rows).sum().backward()
        assert training.reducer.finished == (True,)
        assert training.finished == ()
        optimizer.step()
    job.close()


def test_a_relative_folder_for_checkpoints_is_in_the_output_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert environment.checkpoints_in(None) is None
    assert environment.checkpoints_in("kept") == Path("kept")
    monkeypatch.setenv("SHOAL_OUTPUT", str(tmp_path))
    monkeypatch.setenv("SHOAL_RUNTIME", "elastic")
    assert environment.checkpoints_in(None) == tmp_path / "checkpoints"
    assert environment.checkpoints_in("kept") == tmp_path / "kept"
    assert environment.checkpoints_in("/elsewhere/kept") == Path("/elsewhere/kept")


@pytest.mark.slow
def test_a_run_of_any_length_leaves_its_last_step_and_goes_on_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """And a second loop over several epochs is pointed out."""
    data = [(torch.zeros(2), torch.zeros(1))] * 4
    for first in (True, False):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        job = elastic.init(checkpoint=tmp_path / "kept")
        job.wrap(model, optimizer)
        for _ in range(2):
            for inputs, targets in job.shards(data, batch_size=2, epochs=2):
                assert first, "nothing is left to do"
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
        assert job.step == 8
        job.close()
    said = capsys.readouterr().err
    assert "a second loop over job.shards(epochs=2)" in said
    assert "resumed from the checkpoint of step 8" in said
