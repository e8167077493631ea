"""The outer step, and several workers that train alone and agree (`training-A12`)."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from shoal.elastic.optim.local import AVERAGE, LocalSteps, Outer, outer_step, pseudo_gradient

SHAPES = [(3, 4), (5,), (2, 2), (7,)]


class Wires:
    """Exact sums among workers of one process: a sum is made when the last of them has begun it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._begun: list[list[torch.Tensor]] = [[] for _ in range(workers)]
        self._summed: set[int] = set()
        self.broken: set[int] = set()
        self.sums = 0

    def of(self, worker: int) -> Callable[[torch.Tensor], Callable[[], None]]:
        def add_up(tensor: torch.Tensor) -> Callable[[], None]:
            number = len(self._begun[worker])
            self._begun[worker].append(tensor)
            return lambda: self._wait(worker, number)

        return add_up

    def _wait(self, worker: int, number: int) -> None:
        if worker in self.broken:
            raise ConnectionError("a peer is gone")
        if number not in self._summed:
            tensors = [begun[number] for begun in self._begun]
            total = torch.stack(tensors).sum(0)
            for tensor in tensors:
                tensor.copy_(total)
            self._summed.add(number)
            self.sums += 1


def start(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def move(parameters: list[torch.Tensor], worker: int, step: int) -> None:
    generator = torch.Generator().manual_seed(1000 * worker + step)
    for each in parameters:
        each.sub_(0.1 * torch.randn(each.shape, generator=generator, dtype=each.dtype))


def team(
    workers: int, every: int, outer: Outer | None = None, **options: float
) -> tuple[list[LocalSteps], Wires]:
    return [
        LocalSteps(start(), every, outer, **options)  # type: ignore[arg-type]
        for _ in range(workers)
    ], Wires(workers)


def local_step(each: LocalSteps, worker: int, weight: float, wires: Wires, phase: str) -> None:
    """`stepped`, in two phases, so that all have begun an exchange before one waits for it."""
    if phase == "begin":
        move(each.parameters, worker, each.steps)
        each.steps += 1
        if each.steps % each.every == 0:
            each.begin(weight, wires.of(worker))
    elif each.under_way:
        each.finish()


def train(workers: list[LocalSteps], wires: Wires, steps: int, weights: list[float]) -> None:
    for _ in range(steps):
        for phase in ("begin", "end"):
            for worker, each in enumerate(workers):
                local_step(each, worker, weights[worker], wires, phase)


@pytest.mark.slow
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 0.9]), st.booleans(), st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_the_outer_step_is_torchs_sgd(seed: int, momentum: float, nesterov: bool, steps: int) -> None:
    nesterov = nesterov and momentum > 0
    outer = Outer(0.7, momentum, nesterov)
    agreed = start(seed)
    theirs = [nn.Parameter(each.clone()) for each in agreed]
    sgd = torch.optim.SGD(theirs, lr=0.7, momentum=momentum, nesterov=nesterov)
    velocity = [torch.zeros_like(each) for each in agreed]
    for step in range(steps):
        own = start(seed + step + 1)
        total = pseudo_gradient(agreed, own, 0.3)
        for parameter, base, mine in zip(theirs, agreed, own, strict=True):
            parameter.grad = base - mine
        sgd.step()
        agreed, velocity = outer_step(agreed, total, velocity, outer)
        for parameter, base in zip(theirs, agreed, strict=True):
            torch.testing.assert_close(parameter.detach(), base)


def test_plain_averaging_is_the_weighted_mean() -> None:
    workers, wires = team(3, 2, AVERAGE)
    train(workers, wires, 1, [1.0, 2.0, 5.0])
    alone = [[p.clone() for p in each.parameters] for each in workers]
    for worker, own in enumerate(alone):
        move(own, worker, 1)
    train(workers, wires, 1, [1.0, 2.0, 5.0])
    for at in range(len(SHAPES)):
        mean = (alone[0][at] + 2 * alone[1][at] + 5 * alone[2][at]) / 8
        torch.testing.assert_close(workers[0].parameters[at], mean)
        assert all(torch.equal(w.parameters[at], workers[0].parameters[at]) for w in workers)


def test_what_is_agreed_is_the_rule_step_for_step() -> None:
    """training-A12: what is agreed, outer optimizer included, is equal on all, and equal to the rule."""
    workers, wires = team(3, 4)
    models = [[p.clone() for p in each.parameters] for each in workers]
    base, speed = start(), [torch.zeros_like(each) for each in start()]
    for step in range(1, 17):
        train(workers, wires, 1, [1.0] * 3)
        for worker, own in enumerate(models):
            move(own, worker, step - 1)
        if step % 4 == 0:
            for i in range(len(SHAPES)):
                mean = torch.stack([base[i] - own[i] for own in models]).mean(0)
                speed[i] = 0.9 * speed[i] + mean
                base[i] = base[i] - 0.7 * (mean + 0.9 * speed[i])
                for own in models:
                    own[i].copy_(base[i])
        for worker, each in enumerate(workers):
            for i in range(len(SHAPES)):
                torch.testing.assert_close(each.agreed[i], base[i])
                torch.testing.assert_close(each.velocity[i], speed[i])
                torch.testing.assert_close(each.parameters[i], models[worker][i])
                assert torch.equal(each.agreed[i], workers[0].agreed[i])
    assert workers[0].agreements == 4


def test_in_buckets_it_is_the_same_bit_for_bit() -> None:
    """training-A12: bucketised equals unbucketised."""
    whole, one = team(3, 2)
    pieces, many = team(3, 2, bucket_bytes=40)
    for workers, wires in ((whole, one), (pieces, many)):
        train(workers, wires, 6, [1.0, 0.0, 3.0])
    assert many.sums > 3 * one.sums
    for a, b in zip(whole, pieces, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.parameters, b.parameters, strict=True))


def test_a_failed_agreement_changes_nothing_and_is_made_again_by_those_left() -> None:
    """training-A12: one of three is lost in the second agreement."""
    workers, wires = team(3, 2)
    train(workers, wires, 3, [1.0] * 3)
    before = [[t.clone() for t in (*w.agreed, *w.velocity)] for w in workers]
    for phase in ("begin",):
        for worker, each in enumerate(workers):
            local_step(each, worker, 1.0, wires, phase)
    own = [[t.clone() for t in w.parameters] for w in workers]
    wires.broken = {0, 1, 2}
    for each in workers[:2]:
        with pytest.raises(ConnectionError):
            each.finish()
    left = workers[:2]
    for each, then, mine in zip(left, before, own, strict=False):
        now = [*each.agreed, *each.velocity, *each.parameters]
        assert all(torch.equal(a, b) for a, b in zip(now, [*then, *mine], strict=True))
        assert each.agreements == 1
    fresh = Wires(2)
    for worker, each in enumerate(left):
        each.again(1.0, fresh.of(worker))
    for each in left:
        each.finish()
    assert all(each.agreements == 2 for each in left)
    for i in range(len(SHAPES)):
        mean = torch.stack([before[0][i] - mine[i] for mine in own[:2]]).mean(0)
        speed = 0.9 * before[0][len(SHAPES) + i] + mean
        torch.testing.assert_close(left[0].agreed[i], before[0][i] - 0.7 * (mean + 0.9 * speed))
        assert torch.equal(left[0].agreed[i], left[1].agreed[i])


def test_who_has_not_finished_takes_the_sums_from_who_has() -> None:
    """training-N3, for an agreement: a kill between the sum and its use on some."""
    workers, wires = team(3, 1)
    for worker, each in enumerate(workers):
        local_step(each, worker, 1.0, wires, "begin")
    workers[0].finish()
    wires.broken = {1}
    with pytest.raises(ConnectionError):
        workers[1].finish()
    held, lacking = workers[0].total(), workers[1].total()
    assert held is not None
    assert lacking is not None
    lacking.copy_(held)
    workers[1].apply()
    for a, b in zip(workers[0].agreed, workers[1].agreed, strict=True):
        assert torch.equal(a, b)


def test_a_worker_that_joins_goes_on_from_what_was_agreed() -> None:
    workers, wires = team(2, 4)
    train(workers, wires, 5, [1.0, 1.0])
    joiner = LocalSteps([torch.zeros(shape, dtype=torch.float64) for shape in SHAPES], 4)
    joiner.load_state_dict(workers[0].state_dict())
    joiner.adopt()
    assert joiner.steps == 5
    for own, base in zip(joiner.parameters, workers[0].agreed, strict=True):
        assert torch.equal(own, base)
    for each in workers:
        each.adopt()
    three = Wires(3)
    everybody = [*workers, joiner]
    train(everybody, three, 8, [1.0] * 3)
    for each in everybody[1:]:
        for a, b in zip(each.agreed, everybody[0].agreed, strict=True):
            assert torch.equal(a, b)
    before = workers[0].agreed[0].clone()
    joiner.agreed[0].zero_()
    assert torch.equal(workers[0].agreed[0], before)


def test_low_precision_parameters_are_agreed_in_fp32() -> None:
    workers = [LocalSteps([torch.full((4,), 1.0, dtype=torch.bfloat16)], 1, AVERAGE) for _ in range(2)]
    wires = Wires(2)
    workers[0].parameters[0].fill_(1.0078125)
    for worker, each in enumerate(workers):
        each.begin(1.0, wires.of(worker))
    for each in workers:
        each.finish()
    assert workers[0].agreed[0].tolist() == [1.00390625] * 4
    assert workers[0].parameters[0].dtype == torch.bfloat16


def test_what_nobody_contributed_to_or_is_not_finite_moves_nothing() -> None:
    agreed, velocity = start(), [torch.zeros_like(each) for each in start()]
    nobody = pseudo_gradient(agreed, start(1), 0.0)
    with pytest.raises(ValueError, match="no worker contributed"):
        outer_step(agreed, nobody, velocity, Outer())
    own = start(1)
    own[0][0] = float("nan")
    with pytest.raises(ValueError, match="not finite"):
        outer_step(agreed, pseudo_gradient(agreed, own, 1.0), velocity, Outer())


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="outer lr"):
        Outer(momentum=1.0)
    each = LocalSteps(start(), 1)
    each.begin(1.0, Wires(1).of(0))
    with pytest.raises(RuntimeError, match="under way"):
        each.begin(1.0, Wires(1).of(0))
    with pytest.raises(ValueError, match="other shapes"):
        each.load_state_dict(LocalSteps(start()[:2], 1).state_dict())


def test_alone_every_step_is_an_agreement_with_itself() -> None:
    each = LocalSteps(start(), 1, AVERAGE)
    wires = Wires(1)
    for step in range(3):
        move(each.parameters, 0, step)
        mine = [p.clone() for p in each.parameters]
        each.stepped(1.0, wires.of(0))
        for a, b in zip(mine, each.parameters, strict=True):
            torch.testing.assert_close(a, b)
    assert each.agreements == 3
