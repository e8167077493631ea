import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.schedule.speed.calibrated import Calibrated, calibrate
from shoal.schedule.speed.goodput import Batching, Noise, best_goodput
from shoal.schedule.speed.throughput import Observation, Throughput, fit

TRUE = Throughput(compute=(0.05, 0.002), across=(0.08, 0.004), inside=(0.02, 0.001), overlap=1.5)
EXACT = Calibrated(TRUE, ([1.0], [1.0]), {})


def seen(model, *, nodes, replicas, local):
    step = float(model.step(nodes, replicas, local))
    return Observation(nodes, replicas, local, step, step - float(model.computing(local)))


def test_what_a_model_makes_is_found_again():
    shapes = [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16)]
    found = fit([seen(TRUE, nodes=n, replicas=r, local=m) for n, r in shapes for m in (16, 64, 128)])
    for nodes, replicas, local in [(1, 3, 32), (2, 6, 96), (8, 32, 64)]:
        assert found.step(nodes, replicas, local) == pytest.approx(
            TRUE.step(nodes, replicas, local), rel=0.02
        )


def test_what_was_not_seen_is_taken_to_cost_nothing():
    found = fit([seen(TRUE, nodes=1, replicas=1, local=32)])
    assert found.step(1, 1, 32) == pytest.approx(TRUE.step(1, 1, 32))
    assert found.step(4, 16, 32) == pytest.approx(found.step(1, 1, 32), rel=1e-5)
    inside = fit([seen(TRUE, nodes=1, replicas=r, local=32) for r in (1, 2, 4)])
    assert inside.step(2, 4, 32) >= inside.step(1, 4, 32)  # a network is no faster than a node


def test_nothing_observed_is_an_error():
    with pytest.raises(ValueError, match="nothing was observed"):
        fit([])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 4), st.integers(1, 4), st.sampled_from([8, 16, 32]), st.floats(0.01, 9)
        ),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.0, 0.99),
)
def test_any_observations_give_finite_times(rows, part):
    observations = [Observation(n, n * r, m, step, step * part) for n, r, m, step in rows]
    times = fit(observations).step([1, 1, 2, 16], [1, 4, 8, 64], 16)
    assert np.isfinite(times).all()
    assert (times > 0).all()


def test_the_best_batch_is_as_good_as_any_other():
    batching = Batching(initial=32, most=4096, least_local=8, most_local=128)
    noise = Noise(sqr=1.0, var=20.0)
    best = best_goodput(EXACT, batching, noise, [2], [8])
    count = 8
    tried = []
    for local in range(8, 129):
        for passes in (1, 2, 3, 4):
            batch = local * passes * count
            if 32 <= batch <= 4096:
                seconds = (passes - 1) * TRUE.computing(local) + TRUE.step(2, count, local)
                worth = (noise.var + noise.sqr) / (noise.var / (batch / 32) + noise.sqr)
                tried.append(float(worth / seconds))
    assert best.value[0] == pytest.approx(max(tried), rel=0.02)
    batch = best.local[0] * (best.accumulations[0] + 1) * count
    assert 32 <= batch <= 4096


def test_a_size_that_the_batch_does_not_allow_is_worth_nothing():
    batching = Batching(initial=32, most=64, least_local=16, most_local=128)
    best = best_goodput(EXACT, batching, Noise(1.0, 1.0), [1, 2], [4, 8])
    assert best.value[0] > 0
    assert best.value[1] == 0


def test_a_fixed_batch_stays():
    batching = Batching(initial=32, most=4096, least_local=8, most_local=128, fixed=512)
    best = best_goodput(EXACT, batching, Noise(1.0, 1.0), [1], [2])
    assert (best.local[0] * 2 * (best.accumulations[0] + 1)) == 512


def test_what_was_measured_is_believed_and_what_is_near_it_is_corrected():
    bent = [
        Observation(1, 1, 16, 1.0, 0.0),
        Observation(1, 1, 32, 1.1, 0.0),
        Observation(1, 1, 64, 2.9, 0.0),
        Observation(2, 8, 16, 1.7, 0.7),
    ]
    times = calibrate(bent)
    local = np.array([[16.0, 32.0, 64.0]])
    assert times.computing(local)[0] == pytest.approx([1.0, 1.1, 2.9])
    one = np.array([1])
    assert times.step(one, one, local)[0] == pytest.approx([1.0, 1.1, 2.9])
    two, eight = np.array([2]), np.array([8])
    assert times.step(two, eight, local)[0, 0] == pytest.approx(1.7)
    ratio = 1.7 / float(times.model.step(2, 8, 16))
    assert times.step(two, eight, local)[0, 2] == pytest.approx(
        ratio * float(times.model.step(2, 8, 64))
    )
