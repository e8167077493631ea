"""Sidecars that watch each other, with the real coordinator, which alone decides; real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from .crowd import Crowd
from .harness import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_above_the_limit_sidecars_watch_each_other(tmp_path: Path) -> None:
    """A silent machine is found without heartbeats, and joins again. What else happens in the life of
    such a job, and how soon, is in virtual time (`test_large_job`, `coordinator/test_watching`)."""
    with Crowd(tmp_path, 4, "--star-limit", "2") as crowd:
        crowd.until_watched(4)
        crowd.until(lambda: crowd.beats_in(0.5) == 0, "some still beat")
        victim, others = crowd.members[3], crowd.members[:3]
        victim.stop_machine()
        crowd.until(lambda: all(victim.name not in each.members for each in others), "it is still in")
        assert crowd.tap.count("silent") > 0, "a sidecar has reported it"
        victim.continue_machine()
        crowd.until(lambda: all(victim.name in each.members for each in others), "it is not back")
        assert victim.fenced >= 1


@pytest.mark.soak
def test_six_above_a_limit_of_four(tmp_path: Path) -> None:
    """The life of a job that watches itself: no beats; losses found; restarts evict nobody; and back."""
    with Crowd(tmp_path, 6, "--star-limit", "4") as crowd:
        crowd.until_watched(6)
        assert crowd.beats_in(1.0) == 0
        epoch = crowd.members[0].epoch

        # a sidecar is killed: started and watched again, and nobody is put out for the former's silence
        first = crowd.members[1].sidecar
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: crowd.members[1].sidecar != first, "no new sidecar")
        crowd.until(lambda: crowd.tap.count("silent") > 0, "the former sidecar is not missed")
        crowd.until(lambda: crowd.beats_in(0.5) == 0, "not all are watched again")
        assert crowd.members[0].epoch == epoch

        # the coordinator is killed: whom it does not hear when it is back is not silent
        crowd.kill_coordinator()
        crowd.start_coordinator()
        crowd.until(lambda: crowd.tap.count("hello") >= 13, "not all sidecars are back")
        assert crowd.beats_in(2.0) == 0
        assert crowd.members[0].epoch == epoch

        # a machine falls silent; later it is back, fenced, and joins as another
        victim, others = crowd.members[5], crowd.members[:5]
        silent_at = victim.stop_machine()
        crowd.until_all_know(5, others)
        took = others[0].changed_at - silent_at
        print(f"view without it {took:.2f} s after the machine went silent")
        assert took < 3.0
        victim.continue_machine()
        crowd.until_all_know(6)
        assert victim.fenced == 1
        assert victim.incarnation == 7
        crowd.until(lambda: crowd.beats_in(0.5) == 0, "the one that is back is not watched")

        # fewer than the limit: all beat again
        for member in crowd.members[3:]:
            member.close()
        crowd.until_all_know(3, crowd.members[:3])
        crowd.until(lambda: crowd.beats_in(0.5) >= 10, "they do not beat again")
        epoch = crowd.members[0].epoch
        time.sleep(1.0)  # longer than silence is borne with
        assert crowd.members[0].epoch == epoch


@pytest.mark.soak
def test_one_that_is_starved_is_not_put_out(tmp_path: Path) -> None:
    """A sidecar that runs for a tenth of a second in each half: suspected at times, it refutes."""
    with Crowd(tmp_path, 6, "--star-limit", "4") as crowd:
        crowd.until_watched(6)
        epoch, starved = crowd.members[0].epoch, crowd.members[3]
        until = time.monotonic() + 4.0
        while time.monotonic() < until:
            os.kill(starved.sidecar, signal.SIGSTOP)
            time.sleep(0.4)  # the starving
            os.kill(starved.sidecar, signal.SIGCONT)
            time.sleep(0.1)
        print(f"{crowd.tap.count('silent')} accusations")
        assert starved.fenced == 0
        assert crowd.members[0].epoch == epoch


@pytest.mark.soak
def test_sixty_six_members(tmp_path: Path) -> None:
    """More than beat by default, each with a sidecar of its own."""
    with Crowd(tmp_path, 66) as crowd:
        crowd.until_watched(66)
        crowd.until(lambda: crowd.beats_in(0.5) == 0, "some still beat")
        before, at = crowd.coordinator_seconds(), time.monotonic()
        words = crowd.tap.count("gossiping")
        time.sleep(3.0)  # a rate is measured
        words = crowd.tap.count("gossiping") - words
        share = (crowd.coordinator_seconds() - before) / (time.monotonic() - at)
        print(f"the coordinator uses {share:.1%} of a core, hears {words / 3:.0f} words a second")
        assert words <= 2 * 66, "each says so every 5 s, all perhaps at the same moment"
        assert len({member.epoch for member in crowd.members}) == 1
        victim, others = crowd.members[40], [*crowd.members[:40], *crowd.members[41:]]
        silent_at = victim.stop_machine()
        crowd.until_all_know(65, others)
        took = max(other.changed_at for other in others) - silent_at
        print(f"view without it {took:.2f} s after the machine went silent")
        assert took < 10.0
