from __future__ import annotations

import math
import random
import statistics

import pytest
from bench.elastic.spread import percentile, ratio


def test_a_constant_ratio_has_a_narrow_interval() -> None:
    found = ratio([1.03 * n for n in range(1, 9)], [float(n) for n in range(1, 9)])
    assert found.mean == pytest.approx(1.03)
    assert (found.low, found.high) == (pytest.approx(1.03), pytest.approx(1.03))
    assert found.pairs == 8


@pytest.mark.slow
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says() -> None:
    seed = 7
    print(f"seed {seed}")
    chance, held = random.Random(seed), 0
    for _ in range(1000):
        reference = [math.exp(chance.gauss(0, 0.5)) for _ in range(12)]
        measured = [1.1 * each * math.exp(chance.gauss(0, 0.2)) for each in reference]
        found = ratio(measured, reference)
        held += found.low <= 1.1 <= found.high
    assert 930 <= held <= 970


def test_it_agrees_with_student_by_hand() -> None:
    logs = [0.1, 0.2, 0.4]
    half = 4.303 * statistics.stdev(logs) / math.sqrt(3)
    found = ratio([math.exp(each) for each in logs], [1.0] * 3)
    assert math.log(found.high) == pytest.approx(statistics.fmean(logs) + half)
    assert math.log(found.low) == pytest.approx(statistics.fmean(logs) - half)


def test_what_makes_no_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        ratio([1.0], [1.0])
    with pytest.raises(ValueError, match="no pairs"):
        ratio([1.0, 2.0], [1.0, 2.0, 3.0])


def test_percentiles() -> None:
    values = [float(n) for n in range(1, 1001)]
    assert percentile(values, 0.999) == 999.0
    assert percentile(values, 1.0) == 1000.0
    assert percentile([3.0], 0.5) == 3.0
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
