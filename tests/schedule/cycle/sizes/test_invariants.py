"""What has to hold of every plan holds too where jobs say how fast they are, and for every policy as far
as it knows of it."""

from __future__ import annotations

import hashlib
import os

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.schedule.cycle.invariants import broken, order, places, wholes
from shoal.schedule.cycle.peers.named import POLICIES
from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Rules
from shoal.simulate.cluster.world import World
from tests.schedule.cycle.strategies import situations

RANDOM = "SHOAL_RANDOM_EXAMPLES"
"""Set: other examples each time. Else the same: what is found is to be looked for, not met by chance."""

slowly = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=RANDOM not in os.environ,
)
change = msgspec.structs.replace


def _told(job: Job) -> Job:
    """Most jobs say something of themselves, which follows from their names."""
    chance = hashlib.sha256(job.name.encode()).digest()
    if chance[0] < 50:
        return job
    most = max(role.maximum for role in job.roles)
    power = 0.3 + chance[1] / 365
    return change(
        job,
        speeds=tuple((count + 1.0) ** power for count in range(most)),
        work=10.0 + 5 * chance[2] if chance[3] < 190 else None,
        done=float(chance[4]),
        restart_seconds=[0.0, 1.0, 30.0][chance[5] % 3],
    )


def _telling(situation: tuple[Cluster, Rules, float]) -> tuple[Cluster, Rules, float]:
    cluster, rules, now = situation
    return change(cluster, jobs=tuple(map(_told, cluster.jobs))), rules, now


telling = situations().map(_telling)


def _nothing_is_broken(situation: tuple[Cluster, Rules, float]) -> None:
    cluster, rules, now = situation
    made = plan(cluster, rules, now)
    assert broken(cluster, made, now + rules.notice_seconds) == []
    World(cluster, rules).apply(made, now)  # raises where its own books say otherwise


@settings(slowly, max_examples=20)
@given(telling)
@pytest.mark.slow
def test_nothing_is_broken(situation: tuple[Cluster, Rules, float]) -> None:
    _nothing_is_broken(situation)


@pytest.mark.soak
@settings(slowly, max_examples=1000)
@given(telling)
def test_nothing_is_broken_by_any_of_many(situation: tuple[Cluster, Rules, float]) -> None:
    _nothing_is_broken(situation)


def _places_are_there(situation: tuple[Cluster, Rules, float], policy: str) -> None:
    """Priorities and shares are nothing to other policies; room, gangs and beneficiaries are."""
    cluster, rules, now = situation
    made = plan(cluster, change(rules, policy=policy, patience_seconds=20.0, quiet_seconds=30.0), now)
    wrong = order.wrong(cluster, made)
    assert wrong or [*places.wrong(cluster, made), *wholes.wrong(cluster, made)] == []
    assert wrong == []


@settings(slowly, max_examples=20)
@given(telling, st.sampled_from(POLICIES[1:]))
@pytest.mark.slow
def test_other_policies_break_nothing_that_they_know_of(
    situation: tuple[Cluster, Rules, float], policy: str
) -> None:
    _places_are_there(situation, policy)


@pytest.mark.soak
@settings(slowly, max_examples=800)
@given(telling, st.sampled_from(POLICIES[1:]))
def test_other_policies_never_break_it(situation: tuple[Cluster, Rules, float], policy: str) -> None:
    _places_are_there(situation, policy)
