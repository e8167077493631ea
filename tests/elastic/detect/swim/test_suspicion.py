"""How long a suspicion lasts, to the digit."""

from __future__ import annotations

import pytest

from shoal.elastic.detect.swim.members import Suspicion
from shoal.elastic.detect.swim.settings import Settings


@pytest.mark.parametrize(("confirmers", "seconds"), [(0, 2.0), (1, 1.25), (2, 0.8113), (3, 0.5)])
def test_confirmations_shorten_it(confirmers: int, seconds: float) -> None:
    """training-C1b: from 2 s to 0.5 s with three confirmations; repeats and the accuser do not count."""
    suspicion = Suspicion("me", 10.0, 0.5, 2.0, 3)
    assert not suspicion.confirm("me")
    for at in range(confirmers):
        assert suspicion.confirm(f"m{at}")
        assert not suspicion.confirm(f"m{at}")
    assert suspicion.ends_at - 10.0 == pytest.approx(seconds, abs=1e-3)


def test_more_than_enough_is_no_news() -> None:
    """training-C1b: the fourth confirmation is not passed on and changes nothing."""
    suspicion = Suspicion("me", 0.0, 0.5, 2.0, 3)
    assert [suspicion.confirm(f"m{at}") for at in range(5)] == [True, True, True, False, False]
    assert suspicion.ends_at == 0.5


def test_nobody_to_confirm_it() -> None:
    """training-C1b: k = 0 gives the shortest time at once."""
    assert Suspicion("me", 0.0, 0.5, 2.0, 0).ends_at == 0.5


def test_what_the_settings_make_of_the_number_of_members() -> None:
    """training-C1: with four members nobody is left to confirm, and the time is the shortest."""
    settings = Settings(probe_interval=0.1, suspicion_mult=5)
    assert settings.suspicion_seconds(6) == pytest.approx((0.5, 1.0))
    assert settings.suspicion_seconds(1000) == pytest.approx((1.5, 3.0))
    assert [settings.confirmations(count) for count in (1, 4, 5, 100)] == [0, 0, 3, 3]
    scale = [
        settings.push_pull_seconds(n) / settings.push_pull_interval for n in (2, 32, 33, 64, 65, 1024)
    ]
    assert scale == [1, 1, 2, 2, 3, 6]
