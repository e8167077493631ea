"""A copy made behind the training is the state of one moment, or none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from shoal.elastic.blocks import Blocks
from shoal.elastic.giving import Copying
from shoal.elastic.state import digest, pack, unpack
from tests.elastic.gpu.devices import DEVICES

pytestmark = pytest.mark.slow


class Trained:
    """A model of 13 MB with its Adam, that has taken a step."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(1500, 2000), torch.nn.BatchNorm1d(2000), torch.nn.Linear(2000, 100)
        ).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.device = device
        self.step()

    def backward(self) -> None:
        self.model(torch.randn(4, 1500, device=self.device)).square().mean().backward()

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def tree(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": 7}

    def steady(self) -> list[torch.Tensor]:
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.parameters(), *kept]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one.cpu(), other.cpu())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def begun(trained: Trained, beside: Callable[[], int] = lambda: 5) -> Copying:
    return Copying(trained.tree(), trained.steady(), Blocks(torch.device(trained.device)), beside)


@pytest.mark.parametrize("device", DEVICES)
def test_the_copy_is_of_the_moment_it_was_asked_for(device: str):
    """Buffers change in the forward pass that runs beside it."""
    trained = Trained(device)
    before = copy.deepcopy(trained.tree())
    copying = begun(trained)
    trained.backward()
    found = copying.finish()
    assert found is not None
    trained.optimizer.step()
    packed, digest_of_it = found
    assert digest_of_it == 5
    assert same(before, unpack(packed))
    assert not same(before["model"], trained.tree()["model"])


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_that_changed_all_the_same_makes_it_void(device: str):
    """Also while it is being read: a change is counted only when it is over."""
    trained = Trained(device)
    for _ in range(5):
        copying = begun(trained)
        with torch.no_grad():
            trained.steady()[0].add_(1.0)
        assert copying.finish() is None


def test_what_is_cancelled_is_read_no_more():
    trained = Trained("cpu")
    copying = begun(trained)
    copying.cancel()
    assert not copying._thread.is_alive()
    trained.step()


def test_an_error_is_told_where_the_training_waits():
    def fails() -> int:
        raise OSError("no way out")

    with pytest.raises(RuntimeError, match="no way out"):
        begun(Trained("cpu"), fails).finish()


@pytest.mark.parametrize("device", DEVICES)
def test_packing_and_the_digest_see_the_same_bits_on_every_device(device: str):
    trained = Trained(device)
    blocks = Blocks(torch.device(device))
    tree = unpack(pack(trained.tree(), blocks))
    assert same(tree, trained.tree())
    live = [p.detach() for p in trained.model.parameters()]
    assert digest(live) == digest([tensor.cpu() for tensor in live])
    names = [name for name, _ in trained.model.named_parameters()]
    assert digest([tree["model"][name] for name in names]) == digest(live)


def test_odd_tensors_are_copied():
    odd = {
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.5),
        "turned": torch.arange(300_000.0).view(300, 1000).t(),
        "bytes": torch.arange(200, dtype=torch.uint8),
        "half": torch.randn(70_000).bfloat16(),
        "shared": [torch.ones(2)] * 2,
    }
    found = Copying(odd, [odd["turned"], odd["half"]], Blocks(), lambda: 0).finish()
    assert found is not None
    assert same(odd, unpack(found[0]))
