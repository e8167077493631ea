"""bf16 and fp16: what is lost, what is owed, and what an overflow costs."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from shoal.elastic.codecs.half import Half, next_scale
from tests.elastic.codecs.together import exchange, gradients, same

SHAPES: list[tuple[int, ...]] = [(64, 8), (64,)]
HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@HALVES
@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_sum_is_right_up_to_rounding_and_alike(
    dtype: torch.dtype, feedback: bool, ranks: int
) -> None:
    codecs = [Half(dtype, feedback=feedback) for _ in range(ranks)]
    for step in range(3):
        flats = gradients(ranks, SHAPES, step)
        truth = torch.stack(flats).sum(0)
        owed = sum(codec.owed().get(0, torch.zeros(())) for codec in codecs)
        assert exchange(codecs, flats, SHAPES) == 1
        assert same(flats)
        size = float(torch.finfo(dtype).eps) * ranks
        torch.testing.assert_close(flats[0], truth + owed, rtol=size, atol=4 * size)
        for codec in codecs:
            codec.commit()


@HALVES
def test_what_is_decoded_and_what_is_owed_is_everything(dtype: torch.dtype) -> None:
    """One rank, whose sum rounds nothing: after any number of steps nothing is missing."""
    codec = Half(dtype, feedback=True)
    given_, got = torch.zeros(576, dtype=torch.float64), torch.zeros(576, dtype=torch.float64)
    for step in range(20):
        flat = gradients(1, SHAPES, step)[0] * 0.003
        given_ += flat.double()
        exchange([codec], [flat], SHAPES)
        codec.commit()
        got += flat.double()
    owed = codec.owed()[0].double()
    torch.testing.assert_close(got + owed, given_, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_feedback_lets_small_gradients_through() -> None:
    """1 + 2^-12 rounds to 1 in bf16: without feedback the rest is lost in every step."""
    plain, fed = Half(torch.bfloat16), Half(torch.bfloat16, feedback=True)
    sums = [0.0, 0.0]
    for _ in range(4096):
        for at, codec in enumerate((plain, fed)):
            flat = torch.full((1,), 1 + 2.0**-12)
            exchange([codec], [flat], [(1,)])
            codec.commit()
            sums[at] += flat.item()
    assert sums[0] == 4096.0
    assert sums[1] == pytest.approx(4097.0, abs=2.0**-7)


@pytest.mark.parametrize("feedback", [False, True])
def test_an_overflow_of_fp16_loses_nothing(feedback: bool) -> None:
    codecs = [Half(torch.float16, feedback=feedback) for _ in range(2)]
    flats = [each * 1e5 for each in gradients(2, SHAPES, 1)]
    truth = flats[0] + flats[1]
    assert exchange(codecs, flats, SHAPES) == 2  # sent again in full
    assert same(flats)
    assert torch.equal(flats[0], truth)
    for codec in codecs:
        codec.commit()
    flats = [each * 1e5 for each in gradients(2, SHAPES, 2)]
    truth = flats[0] + flats[1]
    assert exchange(codecs, flats, SHAPES) == 1  # the scale has followed
    torch.testing.assert_close(flats[0], truth, rtol=4e-3, atol=500.0)


def test_numbers_that_cancel_in_the_sum_still_bring_the_scale_down() -> None:
    codecs = [Half(torch.float16) for _ in range(2)]
    for rounds in (2, 1):
        flats = [torch.full((4,), 1e5), torch.full((4,), -1e5)]
        assert exchange(codecs, flats, [(4,)]) == rounds
        assert flats[0].tolist() == [0.0] * 4


def test_gradients_below_fp16s_least_come_through_once_the_scale_has_followed() -> None:
    codec = Half(torch.float16)
    for step in range(3):
        flat = torch.full((4,), 1e-7 if step == 0 else 1e-9)
        exchange([codec], [flat], [(4,)])
    assert flat.tolist() == pytest.approx([1e-9] * 4, rel=2e-2)


@HALVES
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("feedback", [False, True])
def test_what_is_not_finite_is_seen_by_all_and_remembered_by_none(
    dtype: torch.dtype, bad: float, feedback: bool
) -> None:
    codecs = [Half(dtype, feedback=feedback) for _ in range(2)]
    flats = gradients(2, SHAPES, 0)
    exchange(codecs, flats, SHAPES)
    for codec in codecs:
        codec.commit()
    before = [({n: t.clone() for n, t in c.owed().items()}, dict(c._scales)) for c in codecs]
    flats = gradients(2, SHAPES, 1)
    flats[1][3] = bad
    exchange(codecs, flats, SHAPES)
    assert all(not math.isfinite(flat[3].item()) for flat in flats)
    for codec, (owed, scales) in zip(codecs, before, strict=True):
        codec.commit()
        assert codec._scales == scales
        assert len(owed) == feedback
        assert all(torch.equal(codec.owed()[number], each) for number, each in owed.items())
    flats = gradients(2, SHAPES, 2)
    exchange(codecs, flats, SHAPES)
    assert all(bool(torch.isfinite(flat).all()) for flat in flats)


@HALVES
def test_a_step_that_is_run_again_begins_from_what_was_owed(dtype: torch.dtype) -> None:
    codec = Half(dtype, feedback=True)
    for step in range(3):
        flat = gradients(1, SHAPES, step)[0]
        exchange([codec], [flat], SHAPES)
        codec.commit()
    first = gradients(1, SHAPES, 9)[0]
    exchange([codec], [first], SHAPES)
    codec.rollback()
    again = gradients(1, SHAPES, 9)[0]
    exchange([codec], [again], SHAPES)
    assert torch.equal(first, again)
    codec.forget(0)
    codec.commit()
    assert codec.owed() == {}


def test_a_member_that_joins_needs_no_scales() -> None:
    old, new = Half(torch.float16), Half(torch.float16)
    flat = torch.full((4,), 1e-7)
    exchange([old], [flat], [(4,)])
    for codec in (old, new):
        codec.view_changed(2)
    flats = gradients(2, SHAPES, 1)
    exchange([old, new], flats, SHAPES)
    assert same(flats)


def test_a_bucket_of_16_bits_is_sent_as_it_is() -> None:
    flats = gradients(2, SHAPES, 1, torch.bfloat16)
    truth = flats[0] + flats[1]
    exchange([Half(torch.float16), Half(torch.float16)], flats, SHAPES)
    assert torch.equal(flats[0], truth)


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bits"):
        Half(torch.float32)


@pytest.mark.slow
@given(st.integers(-40, 40), st.floats(1e-30, 1e30), st.booleans())
def test_scales_are_powers_of_two_and_settle(power: int, peak: float, overflowed: bool) -> None:
    """With gradients that stay as they are, the second scale is kept, and holds them in the middle."""
    scale = 2.0**power
    new = next_scale(scale, peak, overflowed=overflowed)
    assert math.frexp(new)[0] == 0.5
    if overflowed:
        assert new <= scale / 16 or new == 2.0**-60
    held = peak * new / scale
    if not overflowed and 2.0**-60 < new < 2.0**60:
        assert 2**8 <= held < 2**13
        assert next_scale(new, held, overflowed=False) == new


def test_a_sum_of_zeros_or_none_teaches_nothing() -> None:
    for peak in (math.nan, math.inf):
        assert next_scale(4.0, peak, overflowed=True) == 4.0
    assert next_scale(4.0, 0.0, overflowed=False) == 4.0
