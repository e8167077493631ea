"""Leases: one holder at a time, tokens that rise, no trust in wall clocks."""

from __future__ import annotations

from functools import partial

import pytest

from shoal.objects.errors import Invalid
from shoal.store.base import SYSTEM, Lease, Store
from shoal.testing.clock import VirtualClock
from shoal.testing.store.harness import Rules, StoreHarness, needs, opened, together

__all__ = ["LeaseRules"]


class LeaseRules(Rules):
    """Rules of `acquire` and `release`."""

    def test_one_holds_it(self, store: Store) -> None:
        lease = taken(store, "leader", "a")
        assert (lease.name, lease.holder, lease.duration_seconds) == ("leader", "a", 15.0)
        assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None
        assert taken(store, "other", "b").holder == "b"

    def test_renewing_keeps_the_token(self, store: Store) -> None:
        first = taken(store, "leader", "a")
        again = store.acquire("leader", "a", 30.0, actor=SYSTEM)
        assert again is not None
        assert (again.token, again.duration_seconds) == (first.token, 30.0)

    def test_releasing_lets_the_next_in_with_a_higher_token(self, store: Store) -> None:
        first = taken(store, "leader", "a")
        store.release(first, actor=SYSTEM)
        second = taken(store, "leader", "b")
        assert second.token > first.token
        store.release(first, actor=SYSTEM)
        assert store.acquire("leader", "a", 15.0, actor=SYSTEM) is None
        store.release(second, actor=SYSTEM)
        third = taken(store, "leader", "a")
        assert third.token > second.token
        store.release(first, actor=SYSTEM)
        assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None

    def test_releasing_what_nobody_holds_is_nothing(self, store: Store) -> None:
        store.release(Lease("leader", "a", 1, 15.0), actor=SYSTEM)
        lease = taken(store, "leader", "a")
        store.release(lease, actor=SYSTEM)
        store.release(lease, actor=SYSTEM)

    def test_a_lease_needs_a_name_a_holder_and_a_duration(self, store: Store) -> None:
        for name, holder, duration in (("", "a", 1.0), ("leader", "", 1.0), ("leader", "a", 0.0)):
            with pytest.raises(Invalid):
                store.acquire(name, holder, duration, actor=SYSTEM)

    @needs("clock")
    def test_it_runs_out_when_it_is_not_renewed(self, harness: StoreHarness) -> None:
        clock = VirtualClock()
        with opened(harness, clock=clock) as store:
            first = taken(store, "leader", "a")
            assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            clock.advance(14.9)
            assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            clock.advance(0.2)
            second = taken(store, "leader", "b")
            assert second.token > first.token
            assert store.acquire("leader", "a", 15.0, actor=SYSTEM) is None

    @needs("clock")
    def test_renewing_starts_the_time_again(self, harness: StoreHarness) -> None:
        clock = VirtualClock()
        with opened(harness, clock=clock) as store:
            first = taken(store, "leader", "a")
            for _ in range(5):
                clock.advance(10.0)
                assert taken(store, "leader", "a").token == first.token
                assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None

    @needs("clock")
    def test_the_late_holder_renews_what_nobody_took(self, harness: StoreHarness) -> None:
        clock = VirtualClock()
        with opened(harness, clock=clock) as store:
            first = taken(store, "leader", "a")
            clock.advance(100.0)
            assert taken(store, "leader", "a").token == first.token

    @needs("clock")
    def test_a_wall_clock_that_jumps_changes_nothing(self, harness: StoreHarness) -> None:
        clock = VirtualClock()
        with opened(harness, clock=clock) as store:
            first = taken(store, "leader", "a")
            for wall in (0.0, 4e9, 1.0):
                clock.set_wall(wall)
                assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            clock.advance(15.1)
            assert taken(store, "leader", "b").token > first.token

    @needs("clock", "shared")
    def test_another_store_judges_by_what_it_has_seen_itself(self, harness: StoreHarness) -> None:
        clock, other = VirtualClock(), VirtualClock(5.0)
        with opened(harness, clock=clock) as one, opened(harness, clock=other) as two:
            first = taken(one, "leader", "a")
            other.advance(1000.0)
            assert two.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            other.advance(14.0)
            assert taken(one, "leader", "a").token == first.token
            other.advance(14.0)
            assert two.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            other.advance(15.1)
            second = taken(two, "leader", "b")
            assert second.token > first.token
            assert one.acquire("leader", "a", 15.0, actor=SYSTEM) is None

    @needs("durable")
    def test_a_lease_outlives_the_store(self, harness: StoreHarness) -> None:
        with opened(harness) as store:
            first = taken(store, "leader", "a")
        with opened(harness) as store:
            assert store.acquire("leader", "b", 15.0, actor=SYSTEM) is None
            assert taken(store, "leader", "a").token == first.token
            store.release(first, actor=SYSTEM)
            assert taken(store, "leader", "b").token > first.token

    def test_of_many_at_once_one_gets_it(self, store: Store) -> None:
        for _ in range(5):
            winners: list[Lease] = []

            def attempt(holder: str, winners: list[Lease] = winners) -> None:
                lease = store.acquire("leader", holder, 15.0, actor=SYSTEM)
                if lease is not None:
                    winners.append(lease)

            together(*(partial(attempt, f"h{number}") for number in range(8)))
            assert len(winners) == 1
            store.release(winners[0], actor=SYSTEM)


def taken(store: Store, name: str, holder: str) -> Lease:
    """The lease; fails when another holds it."""
    lease = store.acquire(name, holder, 15.0, actor=SYSTEM)
    assert lease is not None
    return lease
