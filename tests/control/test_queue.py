from __future__ import annotations

import pytest

from shoal.cluster.simulated import Script, run_for
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import QueueBudget, QueueStatus, QueueUsage, Quota
from tests.control.world import World, capacity, role


def status(world: World, name: str = "default") -> QueueStatus:
    return world.queues.get(("", name)).status


def test_waiting_running_and_usage_are_counted():
    world = World({"a": capacity(4, gpus=2)}, run_for(5))
    world.submit("one", role(2, cpu=0.5, gpu=1))
    world.run(1)
    waiting = world.submit("two", role(9))
    world.submit("three", role(9), suspend=True)
    world.run(1)
    now = status(world)
    assert (now.running, now.pending) == (1, 1)
    assert now.usage == QueueUsage(cpu=CpuMillis(1000), memory=Bytes(0), gpu=2)
    assert now.oldest_pending == waiting.metadata.created
    world.run(5)
    now = status(world)
    assert (now.running, now.usage, now.pending) == (0, QueueUsage(), 1)


def test_tasks_on_their_way_out_still_count():
    world = World({"a": capacity(4)}, lambda spec: Script(stops_after_seconds=3))
    world.submit("j", role(2))
    world.run(1)
    world.edit("j", suspend=True)
    world.run(1)
    assert (status(world).running, status(world).usage.cpu) == (1, 2000)
    world.run(4)
    assert (status(world).running, status(world).usage.cpu, status(world).pending) == (0, 0, 0)


def test_a_job_that_changes_its_queue_is_counted_where_it_is():
    world = World()
    world.queue("other")
    world.submit("j", role(2))
    world.run(1)
    world.edit("j", queue="other")
    world.run(1)
    assert (status(world).running, status(world, "other").running) == (0, 1)


def test_tasks_on_a_lost_node_do_not_count():
    world = World({"a": capacity(4)})
    world.submit("j", role(2))
    world.run(1)
    world.cluster.silence("a")
    world.edit_node("a", lost=True)
    world.run(1)
    assert (status(world).running, status(world).pending) == (0, 1)


def test_changes_close_together_cost_one_write():
    world = World()
    world.run(1)
    before = status(world).writers["queue"]
    for number in range(20):
        world.submit(f"j{number}", role(9))
    world.run(2)
    assert status(world).pending == 20
    assert status(world).writers["queue"] <= before + 2


def test_budgets_count_what_is_held_here_and_below_and_hold_jobs_when_they_are_used_up():
    world = World({"a": capacity(8, gpus=2)}, run_for(None))
    budgets = (
        QueueBudget(name="cores", resource="cpu", hours=0.02),
        QueueBudget(name="gpus", resource="gpu", hours=100),
        QueueBudget(name="nodes", resource="node", hours=100),
    )
    world.queue("lab", budgets=budgets)
    world.queue("team", parent="lab")
    world.submit("here", role(2, gpu=1), queue="lab")
    world.run(1)
    world.submit("below", role(1), queue="team")
    world.run(19.5)
    spent = status(world, "lab").spent
    for name, rate, first in (("cores", 3, 2), ("gpus", 2, 2), ("nodes", 2, 1)):
        seconds = 3600 * spent[name]
        assert first + 19.5 * rate - 10.5 * rate <= seconds <= first + 20 * rate, "ten seconds late"
    assert status(world, "team").spent == {}
    world.run(30)
    world.submit("late", role(1), queue="team")
    world.run(1)
    assert world.why("late") == "BudgetExhausted"
    assert "budget cores of its queue is used up" in world.job("late").status.scheduling.message
    assert len(world.running("here")) == 2, "who runs goes on"


def test_a_change_of_what_is_held_counts_from_then_on():
    world = World({"a": capacity(8)}, run_for(None))
    world.queue("q", budgets=(QueueBudget(name="b", resource="cpu", hours=9),), quota=Quota())
    world.submit("j", role(4), queue="q")
    world.run(10)
    world.edit("j", cancelled=True)
    world.run(100)
    assert status(world, "q").spent["b"] == pytest.approx(40 / 3600, rel=0.15)


@pytest.mark.slow
def test_decayed_usage_of_users_is_written_when_it_changes_and_survives_a_restart():
    world = World({"a": capacity(4, gpus=2)}, run_for(100))
    world.submit("one", role(1, gpu=2), user="ann")
    world.run(1)
    began = status(world)
    assert began.decayed_usage == {"ann": 0.0}
    world.run(50)
    assert status(world) == began, "it follows from what was written"
    world.boot()
    world.run(49)
    assert status(world) == began
    world.run(10)
    (used,) = status(world).decayed_usage.values()
    assert used == pytest.approx(200.0, rel=0.05)
    assert status(world).decayed_at > began.decayed_at
