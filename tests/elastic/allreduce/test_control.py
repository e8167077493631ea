from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.elastic.allreduce.control import FIXED, Said, read, write

digests = st.integers(0, (1 << 48) - 1)


def summed(said: list[Said], used: list[list[bool]]) -> torch.Tensor:
    total = torch.zeros(FIXED + len(used[0]))
    for each, mine in zip(said, used, strict=True):
        vector = torch.zeros_like(total)
        write(vector, each, mine)
        total += vector
    return total


@pytest.mark.parametrize("ranks", [258, 512, 1024, 4096])
def test_sums_over_thousands_of_ranks_are_exact(ranks: int):
    """In fp32, as the last bucket is: with every digit at its largest, one rank that differs is seen."""
    largest = Said(70_001, ready=65_534, digest=(1 << 48) - 1, place=0xFFFF)
    vector, other = torch.zeros(FIXED + 1), torch.zeros(FIXED + 1)
    write(vector, largest, [True])
    write(other, replace(largest, ready=65_533, digest=(1 << 48) - 2, place=0xFFFE), [True])
    total = torch.zeros(FIXED + 1)
    for _ in range(ranks - 1):
        total += vector
    alike = read(total + vector, ranks, 65_534)
    assert (alike.samples, alike.ready, alike.same, alike.level) == (70_001 * ranks, True, True, True)
    apart = read(total + other, ranks, 65_534)
    assert (apart.samples, apart.ready, apart.same, apart.level) == (70_001 * ranks, False, False, False)


@pytest.mark.slow
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=64))
def test_counts_are_exact(samples):
    total = read(summed([Said(n) for n in samples], [[True]] * len(samples)), len(samples), 0)
    assert total.samples == sum(samples)
    assert not total.ready
    assert total.same is None


@given(st.integers(2, 64), st.integers(1, 100_000), st.data())
@pytest.mark.slow
def test_everybody_is_ready_for_the_same_epoch_or_nobody_switches(ranks, epoch, data):
    epochs = [epoch] * ranks
    vectors = [[True]] * ranks
    assert read(summed([Said(1, ready=e) for e in epochs], vectors), ranks, epoch).ready
    other = data.draw(st.sampled_from([0, epoch + 1, epoch + 2, max(1, epoch - 1)]))
    epochs[data.draw(st.integers(0, ranks - 1))] = other
    ready = read(summed([Said(1, ready=e) for e in epochs], vectors), ranks, epoch).ready
    assert ready == (set(epochs) == {epoch})


@pytest.mark.slow
@given(st.integers(2, 64), digests, digests)
def test_one_that_differs_is_seen(ranks, digest, other):
    vectors = [[True]] * ranks
    same = [Said(1, digest=digest)] * ranks
    assert read(summed(same, vectors), ranks, 0).same is True
    seen = read(summed([*same[1:], Said(1, digest=other)], vectors), ranks, 0).same
    assert seen is (digest == other)


def test_a_parameter_that_one_rank_used_is_used():
    total = read(summed([Said(1), Said(1)], [[True, False, False], [False, False, True]]), 2, 0)
    assert total.used == (True, False, True)
