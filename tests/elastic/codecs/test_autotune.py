"""The choice is a function of the numbers, and refuses what does not pay."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from shoal.elastic.codecs.autotune import Setting, Trial, choose, price
from shoal.elastic.codecs.catalogue import plan
from shoal.elastic.codecs.tuner import Plan, Tuner
from shoal.elastic.errors import ElasticError

MIB = 1 << 20
NONE, BF16, POWER = (Setting(codec, 25 * MIB) for codec in ("none", "bf16", "powersgd:4"))


def trials(seconds: dict[Setting, list[float]]) -> list[Trial]:
    return [
        Trial(setting, turn, each) for setting, all_ in seconds.items() for turn, each in enumerate(all_)
    ]


def test_the_fastest_that_is_worth_its_price_wins() -> None:
    found = choose(trials({NONE: [1.0] * 5, BF16: [0.6] * 5, POWER: [0.2] * 5}), NONE)
    assert found.setting == POWER
    assert found.speedup == pytest.approx(5.0)


def test_what_is_slower_is_refused_with_its_figure() -> None:
    found = choose(trials({NONE: [1.0] * 5, BF16: [1.5] * 5}), NONE)
    assert (found.setting, found.speedup) == (NONE, 1.0)
    assert found.reason == ("bf16 in buckets of 25 MiB: refused, 1.50 times as slow",)


def test_a_little_faster_is_not_worth_the_loss() -> None:
    found = choose(trials({NONE: [1.0] * 5, BF16: [0.95] * 5, POWER: [0.8] * 5}), NONE)
    assert found.setting == NONE
    assert all("refused" in reason for reason in found.reason)


def test_faster_now_and_then_is_not_faster() -> None:
    found = choose(trials({NONE: [1.0] * 5, BF16: [0.5, 0.5, 0.5, 1.2, 1.2]}), NONE)
    assert found.setting == NONE
    assert "60% of the rounds" in found.reason[0]


def test_each_round_is_compared_with_itself() -> None:
    """Another job slows the machine down threefold in two rounds of five: every round says the same."""
    load = [1.0, 3.0, 1.0, 3.0, 1.0]
    found = choose(trials({NONE: load, BF16: [0.7 * each for each in load]}), NONE)
    assert found.speedup == pytest.approx(1 / 0.7)


def test_what_cannot_be_compared_is_not_chosen() -> None:
    alone = [Trial(NONE, 0, 1.0), Trial(BF16, 1, 0.1)]
    found = choose(alone, NONE)
    assert found.setting == NONE
    assert "never measured beside" in found.reason[0]
    with pytest.raises(ValueError, match="was not measured"):
        choose(alone[1:], NONE)
    with pytest.raises(ValueError, match="no duration"):
        choose([Trial(NONE, 0, 0.0)], NONE)


durations = st.lists(st.floats(1e-4, 10), min_size=1, max_size=6)


@given(durations, durations, durations, st.integers(-9, 9), st.randoms(use_true_random=False))
def test_order_and_unit_do_not_matter_and_the_price_is_always_paid(
    none: list[float], bf16: list[float], power: list[float], power_of_two: int, shuffle: random.Random
) -> None:
    measured = trials({NONE: none, BF16: bf16, POWER: power})
    found = choose(measured, NONE)
    mixed = [Trial(t.setting, t.round, t.seconds * 2.0**power_of_two) for t in measured]
    shuffle.shuffle(mixed)
    assert choose(mixed, NONE) == found
    if found.setting != NONE:
        assert found.speedup >= 1 / (1 - price(found.setting.codec))


def drive(
    tuners: list[Tuner], cost: dict[str, float], seed: int, best_size: int = 0
) -> tuple[int, list[Setting]]:
    """Steps until all are done, and what was used in each; a step's duration is told with the next."""
    noise = random.Random(seed)
    used: list[Setting] = []
    before = noise.uniform(0.0, 100.0)  # of another view: nobody's
    for step in range(1000):
        if tuners[0].done:
            return step, used
        assert len({tuner.setting for tuner in tuners}) == 1
        setting = tuners[0].setting
        used.append(setting)
        choices = [tuner.record(before) for tuner in tuners]
        assert all(choice == choices[0] for choice in choices)
        size = 1.0 if setting.bucket_bytes == best_size or not best_size else 1.2
        before = cost[setting.codec] * size * noise.uniform(0.98, 1.02)
    raise AssertionError("never done")


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4), st.sampled_from(["none", "bf16", "powersgd:4"]))
def test_all_ranks_choose_the_same_at_the_same_step(seed: int, ranks: int, fastest: str) -> None:
    plan = Plan(("none", "bf16", "powersgd:4"), (1 * MIB, 25 * MIB), rounds=4)
    tuners = [Tuner(plan) for _ in range(ranks)]
    cost = {codec: 1.0 if codec == fastest else 2.0 for codec in ("none", "bf16", "powersgd:4")}
    steps, used = drive(tuners, cost, seed, best_size=25 * MIB)
    assert steps <= 4 * (1 + 2) * (3 + 2) + 2
    assert all(tuner.setting == Setting(fastest, 25 * MIB) for tuner in tuners)
    assert {setting.codec for setting in used} == set(cost)
    assert len(tuners[0].choices) == 2


def test_what_is_far_slower_is_not_tried_again_and_again() -> None:
    tuner = Tuner(Plan(("none", "bf16", "powersgd:4"), rounds=6, cold=0, counted=2))
    _, used = drive([tuner], {"none": 1.0, "bf16": 1.1, "powersgd:4": 2.0}, 1)
    tried = [setting.codec for setting in used[:-1]]
    assert tried.count("none") == tried.count("bf16") == 12
    assert tried.count("powersgd:4") == 4
    assert any("2.0" in reason for reason in tuner.choices[0].reason)


def test_steps_after_a_change_of_the_setting_are_not_counted() -> None:
    tuner = Tuner(Plan(("none", "bf16"), rounds=2, cold=1, counted=1))
    seen: list[str] = []
    before = 7.0
    for seconds in (100.0, 1.0) * 4:
        seen.append(tuner.setting.codec)
        assert tuner.record(before) is None
        before = seconds
    assert seen == ["bf16", "bf16", "none", "none", "none", "none", "bf16", "bf16"]
    assert tuner.setting.codec == "none"
    choice = tuner.record(before)
    assert choice is not None
    assert choice.reason[0].startswith("bf16 in buckets of 25 MiB: refused, 1.00 times as fast")
    assert tuner.done
    assert tuner.record(1.0) is None


def test_with_nothing_to_try_it_is_done() -> None:
    tuner = Tuner(Plan())
    assert tuner.done
    assert tuner.setting == Setting("none", 25 * MIB)
    assert Tuner(Plan(("bf16",))).setting.codec == "bf16"


def test_plans_that_measure_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="counts no step"):
        Plan(counted=0)
    with pytest.raises(ValueError, match="bucket sizes"):
        Plan(bucket_bytes=())
    with pytest.raises(ValueError, match="no codec"):
        Plan(codecs=())


def test_what_a_script_may_say() -> None:
    assert not plan().measures
    assert not plan("powersgd:2", 1 * MIB).measures
    assert plan("auto").codecs[0] == "none"
    assert str(plan()) == "none in buckets of 25 MiB"
    assert str(plan("bf16", "auto")) == (
        "bf16 in buckets of 25 MiB or buckets of 1 MiB or buckets of 4 MiB or one bucket"
    )
    assert plan("none", "auto").first == plan().first
    for codec, bucket in (("zip", MIB), ("none", "large"), ("none", 0)):
        with pytest.raises(ElasticError, match=r"no codec 'zip'|a bucket size is"):
            plan(codec, bucket)
