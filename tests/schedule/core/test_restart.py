"""Decisions depend on rows alone: a restarted server decides the same, after any of its writes."""

from __future__ import annotations

import msgspec
import pytest

from shoal.objects import codec
from shoal.schedule.core.usage import UsageLedger, accrued
from shoal.schedule.cycle.rows import Job as Row
from shoal.schedule.cycle.rows import Queue, Role, Task, UserUsage
from shoal.schedule.decide import Decider
from shoal.schedule.plan import Plan, policy_named
from shoal.schedule.record import Record, again
from shoal.schedule.snapshot import Snapshot
from tests.schedule.world import NOW, Job, apply, elastic, gang, node, placed, snapshot

POLICY = policy_named("shoal", edition=2)
QUEUES = (
    Queue(name="default", nominal={"cpu": 6000.0}),
    Queue(name="other", nominal={"cpu": 6000.0}),
)


def busy(**usage: float) -> Snapshot:
    """Elastic jobs of two queues, a claim within nominal, and users with a past."""
    holds = " ".join(f"+{index}@{'ab'[index // 4]}" for index in range(8))
    jobs = [
        Job("wide", elastic(1, 12), holds, queue="other", reason="Grown", changed=NOW - 200.0),
        Job("narrow", elastic(1, 6), "+0@c", reason="Grown", changed=NOW - 5.0, created=NOW - 300.0),
        Job("claim", gang(3), user="greedy", created=NOW - 50.0),
        Job("modest", gang(3), user="modest", created=NOW - 40.0),
        Job("prod", gang(2), priority=1000, wall_seconds=60.0),
        Job("large", gang(12), wall_seconds=100.0, created=NOW - 400.0),
    ]
    rows = tuple(
        UserUsage(queue="default", user=user, seconds=seconds, at=NOW - 100.0)
        for user, seconds in usage.items()
    )
    nodes = [node(name) for name in "abc"]
    return msgspec.structs.replace(snapshot(nodes, jobs, QUEUES), usage=rows)


def bytes_of(plan: Plan) -> bytes:
    return codec.encode(plan)


@pytest.mark.slow
def test_a_restarted_server_decides_the_same_after_each_write() -> None:
    first = Decider().decide(busy(greedy=1e6), POLICY, NOW).plan
    assert len(first.writes) >= 5
    for count in range(len(first.writes) + 1):
        running = Decider()
        after = busy(greedy=1e6)
        assert bytes_of(running.decide(after, POLICY, NOW).plan) == bytes_of(first)
        for write in first.writes[:count]:
            after = apply(after, write)
        for now in (NOW + 1.0, NOW + 31.0):
            kept = running.decide(after, POLICY, now).plan
            assert bytes_of(kept) == bytes_of(Decider().decide(after, POLICY, now).plan), count


def test_a_recorded_decision_is_replayed_with_the_usage_that_it_saw() -> None:
    seen = busy(greedy=1e6)
    plan = Decider().decide(seen, POLICY, NOW).plan
    record = codec.decode(codec.encode(Record(now=NOW, policy=POLICY, snapshot=seen, plan=plan)), Record)
    assert again(record) == (plan, True)
    forgotten = msgspec.structs.replace(record, snapshot=busy())
    assert not again(forgotten)[1], "usage decides which of the two users comes first"


@pytest.mark.parametrize(("past", "first"), [("ann", "of-bob"), ("bob", "of-ann")])
def test_the_user_who_has_used_less_comes_first(past: str, first: str) -> None:
    jobs = [Job(f"of-{user}", gang(4), user=user) for user in ("ann", "bob")]
    rows = (UserUsage(queue="default", user=past, seconds=3600.0, at=NOW - 60.0),)
    world = msgspec.structs.replace(snapshot([node("n")], jobs), usage=rows)
    plan = Decider().decide(world, POLICY, NOW).plan
    assert [name for name in ("of-ann", "of-bob") if placed(plan, name)] == [first]


def test_usage_in_parts_comes_to_the_same_as_at_once() -> None:
    once = accrued(500.0, 3.0, 900.0, 600.0)
    parts = accrued(accrued(500.0, 3.0, 250.0, 600.0), 3.0, 650.0, 600.0)
    assert parts == pytest.approx(once)
    assert accrued(500.0, 0.0, 600.0, 600.0) == pytest.approx(250.0)
    assert accrued(500.0, 3.0, 900.0, 0.0) == 0.0, "without a half-life there is no history"


def test_the_ledger_of_a_simulation_counts_what_was_held() -> None:
    ledger = UsageLedger(600.0)
    task = Task(node="n", gpus=(0, 1))
    job = Row(name="j", queue="q", user="u", roles=(Role(gpus=2),), tasks=(task,))
    assert ledger.look([job], 100.0) == ()
    (row,) = ledger.look([], 160.0)
    assert (row.queue, row.user, row.at) == ("q", "u", 160.0)
    assert row.seconds == pytest.approx(accrued(0.0, 2.0, 60.0, 600.0))
    (later,) = ledger.look([], 760.0)
    assert later.seconds == pytest.approx(row.seconds / 2)
