"""Batch and factor at each world size, and the ramps between them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from shoal.elastic.optim import Scale
from shoal.elastic.optim.policy import Ramp, Scaling, linear, root


@pytest.mark.slow
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 1024))
def test_linear_and_root_follow_the_batch(world: int, reference: int, samples: int) -> None:
    for rule, power in (("linear", 1.0), ("sqrt", 0.5)):
        scaling = Scaling(Scale(rule, reference), samples)  # type: ignore[arg-type]
        scaling.world_is(world, 0)
        assert scaling.batch >= 1
        assert scaling.factor(0) == pytest.approx((scaling.batch / samples) ** power)
        if samples * world % reference == 0:
            assert scaling.batch * reference == samples * world


def test_warm_up_is_gradual_at_the_start_and_after_every_change() -> None:
    """Goyal and others, section 2.2: from the rate of one worker to k times it, a little each step."""
    scaling = Scaling(Scale("linear", warmup=4), 32)
    scaling.world_is(5, 0)
    assert [scaling.factor(step) for step in range(6)] == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    scaling.world_is(3, 6)
    assert [scaling.factor(step) for step in range(6, 12)] == [5.0, 4.5, 4.0, 3.5, 3.0, 3.0]
    scaling.world_is(3, 12)
    assert scaling.factor(12) == 3.0


def test_a_change_during_a_ramp_goes_on_from_where_it_stands() -> None:
    scaling = Scaling(Scale("linear", warmup=4), 32)
    scaling.world_is(5, 0)
    assert scaling.factor(2) == 3.0
    scaling.world_is(1, 2)
    assert [scaling.factor(step) for step in range(2, 7)] == [3.0, 2.5, 2.0, 1.5, 1.0]


@pytest.mark.slow
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(0, 50), st.integers(-10, 100))
def test_a_ramp_stays_between_its_ends(start: float, aim: float, steps: int, step: int) -> None:
    ramp = Ramp(start, 0, steps)
    assert min(start, aim) * (1 - 1e-9) <= ramp.at(step, aim) <= max(start, aim) * (1 + 1e-9)
    assert ramp.at(steps, aim) == aim
    assert ramp.turn(step, aim).at(step, 7.0) == pytest.approx(ramp.at(step, aim) if steps else 7.0)


def test_saved_and_loaded_in_the_middle_of_a_ramp() -> None:
    scaling = Scaling(Scale("linear", warmup=10), 32)
    scaling.world_is(4, 3)
    other = Scaling(Scale("linear", warmup=10), 32)
    other.load_state_dict(scaling.state_dict())
    assert other == scaling
    plain = Scaling(Scale("sqrt", warmup=10), 32)
    plain.load_state_dict(scaling.state_dict())
    assert plain.factor(100) == 2.0


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="cubic"):
        Scale("cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reference"):
        Scale(reference=0)
    with pytest.raises(ValueError, match="no batch"):
        Scaling(Scale(), 0)
    with pytest.raises(ValueError, match="0 workers"):
        Scaling(Scale(), 8).world_is(0, 0)
    for rule in (linear, root):
        with pytest.raises(ValueError, match="no batch"):
            rule(0.0)
