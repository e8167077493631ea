"""Blocks are used again once nobody holds them, and never before."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from shoal.elastic.blocks import Blocks

SIZE = 3 << 20


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_a_block_is_used_again():
    blocks = Blocks()
    first = blocks.take(SIZE)
    at = address(first)
    del first
    assert address(blocks.take(SIZE - 100)) == at


@pytest.mark.slow
@pytest.mark.parametrize("hold", [lambda t: t, lambda t: t[5:].view(-1, 1), lambda t: t.numpy().data])
def test_a_block_that_is_held_is_not_given_to_another(hold: Callable[[torch.Tensor], Any]):
    blocks = Blocks()
    first = blocks.take(SIZE)
    at = address(first)
    held = hold(first)
    del first
    gc.collect()
    second = blocks.take(SIZE)
    assert address(second) != at
    del held
    gc.collect()
    assert address(blocks.take(SIZE)) == at


def test_a_block_is_made_behind_the_back():
    blocks = Blocks()
    assert not blocks.ready(SIZE)
    deadline = time.monotonic() + 10.0
    while not blocks.ready(SIZE):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert blocks.take(SIZE).shape == (SIZE,)


def test_what_is_small_is_always_ready():
    assert Blocks().ready(1000)
    assert Blocks().take(1000).shape == (1000,)
    assert Blocks().take(0).shape == (0,)


def test_a_spare_block_that_is_too_small_is_no_help():
    blocks = Blocks()
    del (small := [blocks.take(SIZE)])[:]
    assert not small
    assert blocks.take(4 * SIZE).shape == (4 * SIZE,)


def test_few_blocks_are_kept():
    blocks = Blocks()
    many = [blocks.take(SIZE) for _ in range(5)]
    places = {address(block) for block in many}
    del many
    again = [blocks.take(SIZE) for _ in range(2)]
    assert {address(block) for block in again} <= places
    blocks.clear()
    assert not blocks._spare
