"""Gradients through real groups, as they are and through codecs: ranks are threads."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch

from shoal.elastic.allreduce.bucket_manager import Coded
from shoal.elastic.allreduce.groups import Group, Pending
from shoal.elastic.codecs.base import views
from shoal.elastic.codecs.catalogue import plan
from shoal.elastic.errors import GroupFailed
from tests.elastic.allreduce.team import Rank, groups, together

pytestmark = pytest.mark.slow

SHAPES = [(64, 48), (48,), (40, 64), (3,)]
CODECS = ["none", "bf16", "bf16+ef", "fp16", "fp16+ef", "powersgd:2"]
SMALL = 8 << 10
"""Bytes of a bucket: two of SHAPES' gradients are buckets of their own."""

Gradients = list[torch.Tensor]


class Given(torch.nn.Module):
    """Its loss has the gradients that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.all = torch.nn.ParameterList(torch.zeros(shape) for shape in SHAPES)

    def forward(self, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        used = zip(self.all, gradients, strict=True)
        return torch.stack([(p * g).sum() for p, g in used if g is not None]).sum()


def team(size: int, codec: str, **options: object) -> list[Rank]:
    return [Rank(Given(), plan(codec, SMALL), **options) for _ in range(size)]  # type: ignore[arg-type]


def drawn(seed: int, size: int, scale: float = 1.0) -> list[Gradients]:
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randn(shape, generator=generator) * scale for shape in SHAPES] for _ in range(size)]


def step(
    ranks: Sequence[Rank],
    in_: Sequence[Group],
    gradients: Sequence[Sequence[torch.Tensor | None]],
    samples: Sequence[int],
    said: Sequence[int] | None = None,
) -> None:
    planned = sum(samples)
    together(
        [
            functools.partial(
                rank.step,
                group,
                rank.model(each),
                count,
                planned,
                None if said is None else said[number],
            )
            for number, (rank, group, each, count) in enumerate(
                zip(ranks, in_, gradients, samples, strict=True)
            )
        ]
    )


def mean(gradients: Sequence[Gradients], samples: Sequence[int]) -> torch.Tensor:
    """Over all samples, flat, fp64."""
    flat = [torch.cat([g.flatten().double() for g in each]) for each in gradients]
    return sum(
        (count / sum(samples) * each for count, each in zip(samples, flat, strict=True)),
        torch.zeros_like(flat[0]),
    )


def owed(ranks: Sequence[Rank]) -> torch.Tensor:
    """By all ranks together, flat, fp64."""
    total = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    for rank in ranks:
        for index, each in rank.reducer._buckets.sending.release().items():
            total[index] += each
    return torch.cat([each.flatten() for each in total])


def kept(rank: Rank) -> dict[int, torch.Tensor]:
    """What its codec owes, by parameter: copies."""
    sending = rank.reducer._buckets.sending
    if not isinstance(sending, Coded):
        return {}
    found: dict[int, torch.Tensor] = {}
    for number, flat in sending._codec.owed().items():
        each = views(flat.clone(), sending._buckets[number].shapes)
        found.update(zip(rank.reducer.layout.buckets[number].indices, each, strict=True))
    return found


def alike(ranks: Sequence[Rank]) -> bool:
    return all(torch.equal(ranks[0].gradient(), rank.gradient()) for rank in ranks)


@pytest.mark.parametrize("codec", CODECS)
def test_the_weighted_mean_comes_out_alike_on_all_ranks(codec: str):
    """training-N9: uneven parts, a rank without samples, a smaller last batch."""
    ranks, in_ = team(3, codec), groups(3)
    for turn, samples in enumerate([(5, 4, 4), (1, 0, 0), (3, 3, 2)]):
        gradients = drawn(turn, 3)
        for bad, count in zip(gradients, samples, strict=True):
            if not count:  # replaced, whatever it is
                bad[0].fill_(torch.nan)
        before = mean([[g.nan_to_num() for g in each] for each in gradients], samples)
        step(ranks, in_, gradients, samples)
        assert alike(ranks)
        assert [rank.total.samples for rank in ranks] == [sum(samples)] * 3  # type: ignore[union-attr]
        if codec == "none":
            torch.testing.assert_close(ranks[0].gradient(), before, rtol=1e-5, atol=1e-6)
        elif "16" in codec:
            torch.testing.assert_close(ranks[0].gradient(), before, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("codec", ["bf16+ef", "fp16+ef", "powersgd:2"])
def test_what_comes_out_and_what_is_owed_is_everything(codec: str):
    """Also what a rank owes that has no samples in some step."""
    ranks, in_ = team(2, codec), groups(2)
    given, got = torch.zeros(()), torch.zeros(())
    for turn in range(12):
        samples = (3, 0) if turn % 3 == 1 else (3, 2)
        gradients = drawn(turn, 2)
        given = given + mean(gradients, samples)
        step(ranks, in_, gradients, samples)
        got = got + ranks[0].gradient()
    rounding = 0.2 if codec == "bf16+ef" else 1e-2  # of the sums, which nobody owes
    torch.testing.assert_close(
        got + owed(ranks), given, rtol=0, atol=1e-4 if codec == "powersgd:2" else rounding
    )


@pytest.mark.parametrize("codec", ["bf16+ef", "powersgd:2"])
def test_what_is_owed_for_a_parameter_waits_until_somebody_uses_it(codec: str):
    ranks, in_ = team(2, codec), groups(2)
    given, got = torch.zeros(()), torch.zeros(())
    for turn in range(6):
        gradients: list[list[torch.Tensor | None]] = [list(each) for each in drawn(turn, 2)]
        if turn in (2, 3):
            gradients[0][0] = gradients[1][0] = None
        whole = [
            [torch.zeros(shape) if g is None else g for g, shape in zip(each, SHAPES, strict=True)]
            for each in gradients
        ]
        given = given + mean(whole, (3, 2))
        step(ranks, in_, gradients, (3, 2))
        assert (ranks[0].parameters[0].grad is None) is (turn in (2, 3))
        for parameter in ranks[0].parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        got = got + ranks[0].gradient()
    torch.testing.assert_close(got + owed(ranks), given, rtol=0, atol=0.1 if "16" in codec else 1e-4)


@pytest.mark.parametrize("codec", ["none", "bf16+ef", "powersgd:2"])
def test_parts_of_a_step_are_added_up_before_they_are_coded(codec: str):
    """Accumulation: one rank has two parts, the other one."""
    ranks, in_, gradients = team(2, codec), groups(2), drawn(5, 3)

    def two() -> None:
        rank, group = ranks[0], in_[0]
        rank.reducer.begin_step()
        rank.earlier_part(group, rank.model(gradients[0]), 2 / 9, 6 / 9)
        rank.part(group, rank.model(gradients[1]), 4 / 9, 6, 6 / 9)
        assert rank.total is not None
        rank.reducer.install(rank.total, 9)

    second = functools.partial(ranks[1].step, in_[1], ranks[1].model(gradients[2]), 3, 9)
    together([two, second])
    assert alike(ranks)
    expected = mean(gradients, (2, 4, 3))
    found = ranks[0].gradient() + owed(ranks)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 if codec == "none" else 1e-2)


@pytest.mark.parametrize("codec", CODECS)
def test_the_control_vector_is_exact_under_every_codec(codec: str):
    """Counts, used parameters and the statistics of batch normalisation."""
    statistics = [torch.full((5,), 0.1 + number) for number in range(2)]
    ranks = [Rank(Given(), plan(codec, SMALL), [statistics[number]]) for number in range(2)]
    gradients: list[list[torch.Tensor | None]] = [list(each) for each in drawn(1, 2)]
    gradients[0][1] = gradients[1][1] = gradients[1][2] = None
    step(ranks, groups(2), gradients, (4099, 1))
    for rank in ranks:
        assert rank.total is not None
        assert rank.total.samples == 4100
        assert rank.total.used == (True, False, True, True)
        assert rank.parameters[1].grad is None
    # weighted by 4099/4100 and 1/4100, in fp32: bf16 would show 0.1001 and 1.1 alike
    torch.testing.assert_close(statistics[0], torch.full((5,), 0.1 + 1 / 4100), rtol=1e-6, atol=0)
    assert torch.equal(statistics[0], statistics[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("codec", ["none", "fp16", "powersgd:2"])
def test_models_of_other_types(codec: str, dtype: torch.dtype):
    """The control vector has a buffer of its own then; weights are not rounded to the model's type."""
    ranks, in_ = [Rank(Given().to(dtype), plan(codec, SMALL)) for _ in range(2)], groups(2)
    gradients = [[each.to(dtype) for each in mine] for mine in drawn(1, 2)]
    step(ranks, in_, gradients, (1001, 2))
    assert alike(ranks)
    assert [rank.total.samples for rank in ranks] == [1003] * 2  # type: ignore[union-attr]
    assert len(ranks[0].reducer.buffers()) == len(ranks[0].reducer.layout.buckets) + 1
    assert ranks[0].parameters[0].grad is not None
    assert ranks[0].parameters[0].grad.dtype == dtype
    if codec != "powersgd:2":
        exact = codec == "none" and dtype == torch.float64
        torch.testing.assert_close(
            ranks[0].gradient(), mean(gradients, (1001, 2)), rtol=1e-12 if exact else 2e-2, atol=1e-3
        )


@pytest.mark.parametrize("codec", ["none", "bf16", "powersgd:2"])
def test_the_true_count_corrects_the_planned_one(codec: str):
    """A rank that says that it has no samples after all counts nothing."""
    ranks, in_, gradients = team(2, codec), groups(2), drawn(3, 2)
    step(ranks, in_, gradients, (6, 2), said=(6, 0))
    assert alike(ranks)
    expected = mean(gradients[:1], (6,))
    if codec == "powersgd:2":
        owes = owed(ranks) * 8 / 6
        torch.testing.assert_close(ranks[0].gradient() + owes, expected, rtol=1e-3, atol=1e-3)
    else:
        torch.testing.assert_close(ranks[0].gradient(), expected, rtol=2e-2, atol=2e-2)


def test_alone_nothing_is_coded_and_what_was_owed_is_paid():
    """training-N11: a job that shrinks to one loses nothing of its own."""
    ranks, in_ = team(2, "powersgd:2"), groups(2)
    gradients = drawn(1, 2)
    step(ranks, in_, gradients, (2, 2))
    decoded = ranks[0].gradient()
    alone = groups(1, epoch=2)
    later = drawn(2, 1)
    step(ranks[:1], alone, later, (4,))
    own = ranks[0].gradient() - mean(later, (4,))
    step(ranks[:1], alone, later, (4,))
    torch.testing.assert_close(ranks[0].gradient(), mean(later, (4,)), rtol=1e-5, atol=1e-6)
    theirs = owed(ranks[1:])
    torch.testing.assert_close(decoded + own + theirs, mean(gradients, (2, 2)), rtol=0, atol=1e-4)


class Deaf(Group):
    """Hears nothing of its operations from the n-th on: what a rank sees of a loss in mid-exchange."""

    def __init__(self, group: Group, hears: int) -> None:
        super().__init__(group.view, group.rank, group._backend, group._store)
        self._left = hears

    def wait(self, pending: Pending) -> None:
        super().wait(pending)
        self._left -= 1
        if self._left < 0:
            raise GroupFailed("a peer is gone")


@pytest.mark.parametrize("codec", CODECS)
def test_a_step_that_broke_is_run_again_as_if_for_the_first_time(codec: str):
    """training-G3: one of three dies in mid-exchange; what the others owed before is owed still."""
    ranks, in_ = team(3, codec), groups(3)
    step(ranks, in_, drawn(1, 3), (2, 2, 2))
    before = [kept(rank) for rank in ranks]
    gradients = drawn(2, 3)
    in_[2].interrupt()
    together(
        [
            functools.partial(rank.step, group, rank.model(each), 2, 6)
            for rank, group, each in zip(ranks[:2], in_, gradients, strict=False)
        ]
    )
    for rank, group in zip(ranks[:2], in_, strict=False):
        assert rank.failed is not None
        group.interrupt()
        rank.reducer.abandon()
        assert not all(rank.reducer.finished)
        rank.reducer.begin_step()
        assert all(torch.equal(kept(rank)[n], each) for n, each in before[group.rank].items())
    others = team(2, codec)  # they owe the same, and never saw the broken step
    for other, owes in zip(others, before, strict=False):
        other.reducer._buckets.carried = owes
    again = groups(2, epoch=2)
    step(ranks[:2], again, gradients[:2], (3, 3))
    step(others, again, gradients[:2], (3, 3))
    assert torch.equal(ranks[0].gradient(), others[0].gradient())
    assert alike([*ranks[:2], *others])


@pytest.mark.parametrize("heard", [0, 1, -1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bucket_from_a_peer_is_the_decoded_one(codec: str, heard: int):
    """Roll forward, case 2: what a rank lacks is a copy of the sum, and it owes nothing of it. With -1
    it lacks what it waits for last: where there is a codec, the control vector."""
    ranks, in_ = team(2, codec), groups(2)
    step(ranks, in_, drawn(1, 2), (2, 2))
    holder, lacking = (rank.reducer for rank in ranks)
    buckets = lacking.layout.buckets
    # what it does not take part in nobody finishes: it has sent everything before it hears no more
    sent = len(buckets) if codec == "powersgd:2" else 0
    if heard < 0:
        later = {"none": 0, "powersgd:2": 3}.get(codec, 1)
        sent = len(buckets) + later
    step(ranks, [in_[0], Deaf(in_[1], sent + heard)], drawn(2, 2), (2, 2))
    assert ranks[0].failed is None
    assert ranks[1].failed is not None
    lacking.abandon()
    finished = lacking.finished
    assert not all(finished)
    for mine, theirs, here in zip(lacking.buffers(), holder.buffers(), finished, strict=True):
        if not here:
            mine.fill_(torch.nan)
            mine.copy_(theirs)
    lacking.complete()
    lacking.install(lacking.understood(), 4)
    assert alike(ranks)
    owes = kept(ranks[1])
    lacked = [bucket for bucket, here in zip(buckets, finished, strict=False) if not here]
    # the last bucket may lack no more than the control vector, which nobody codes
    assert all(index not in owes for bucket in lacked[:-1] for index in bucket.indices)
    if heard < 0:
        assert finished == (True,) * (len(buckets) - 1) + (False,)
    if codec.endswith("ef") or codec == "powersgd:2":
        assert (owes.keys() == kept(ranks[0]).keys()) is (heard < 0)
