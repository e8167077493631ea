"""A step that is run again draws what it drew."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch

from shoal.elastic import randomness
from tests.elastic.gpu.devices import DEVICES


def drawn(device: str) -> list[Any]:
    mask = torch.nn.functional.dropout(torch.ones(50, device=device), 0.5)
    return [mask.tolist(), torch.rand(3).tolist(), random.random(), numpy.random.random()]


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_drawn_is_drawn_again(device: str):
    randomness.seed(11)
    drawn(device)
    state = randomness.capture()
    first = drawn(device)
    assert drawn(device) != first
    randomness.restore(state)
    assert drawn(device) == first


@pytest.mark.parametrize("device", DEVICES)
def test_a_state_of_fewer_or_more_gpus_is_taken(device: str):
    randomness.seed(12)
    drawn(device)
    state = randomness.capture()
    cuda = state.get("cuda", [])
    for other in ([*cuda, *cuda], []):
        randomness.restore(state | {"cuda": other})
        torch.rand(3)


def test_a_state_from_a_checkpoint_lies_in_a_larger_block():
    """torch ends the process where it is given such a view."""
    randomness.seed(5)
    state = randomness.capture()
    first = drawn("cpu")
    block = torch.cat([torch.zeros(64, dtype=torch.uint8), state["torch"]])
    randomness.restore(state | {"torch": block[64:]})
    assert drawn("cpu") == first


@pytest.mark.parametrize("device", DEVICES)
def test_ranks_begin_differently(device: str):
    randomness.seed(1)
    first = drawn(device)
    randomness.seed(2)
    assert drawn(device) != first
    randomness.seed(1)
    assert drawn(device) == first
