"""Random schedules: whatever happens, no plan breaks a rule, and all comes to rest."""

from __future__ import annotations

import pytest

from tests.simulate.cluster.chance import Chance, Kinds


def run(seed: int, events: int, kinds: Kinds | None = None) -> None:
    """So many events, a rest now and then, and then all end."""
    chance = Chance(seed, kinds)
    print(f"seed {seed}, {events} events, {chance.kinds}")
    try:
        for at in range(events):
            chance.event()
            if at % 25 == 24:
                chance.settle()
        chance.drain()
    except Exception:
        print("\n".join(chance.log[-30:]))
        raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_random_schedule_comes_to_rest(seed: int) -> None:
    """A hundred events each."""
    run(seed, 100)


@pytest.mark.slow
def test_120_events_on_a_larger_cluster_come_to_rest() -> None:
    """With more that wait."""
    run(1001, 120, Kinds(nodes=10, waiting=25))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [104, 106, 108, 120, 122, 128])
def test_1500_events_on_clusters_of_other_sizes_come_to_rest(seed: int) -> None:
    """Each has broken once: on nodes that do not answer, over limits of queues, with few nodes."""
    run(seed, 1500, Kinds(nodes=4 + seed % 8, waiting=5 + seed % 11))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_10000_events_come_to_rest() -> None:
    """No livelock, and whoever can start does in the end."""
    run(7, 10_000, Kinds(nodes=8, waiting=10))
