from __future__ import annotations

import pytest

from shoal.control.rows import form_of
from shoal.control.scheduler_cache import SchedulerCache
from shoal.objects.codec import builtins
from shoal.objects.job import ElasticStatus, Speed
from shoal.objects.task import Placement, TaskSpec
from shoal.schedule.decide import Decider
from shoal.schedule.plan import Policy
from shoal.schedule.speed.learned import Slower
from shoal.testing.cluster import start_group
from tests.control.world import World, role


class Seen:
    def __init__(self) -> None:
        self.world = World()
        self.picture = SchedulerCache(
            self.world.context,
            slower=lambda job, found: self.slower.append((job.metadata.name, found)),
        )
        self.slower: list[tuple[str, Slower]] = []

    def snapshot(self):
        for cache in (self.world.jobs, self.world.queues, self.world.nodes, self.world.tasks):
            cache.sync()
        snapshot, self.news = self.picture.snapshot()
        return snapshot

    def names(self) -> list[str]:
        return [row.name for row in self.snapshot().jobs]


def test_jobs_come_in_the_order_of_service():
    seen = Seen()
    for name, priority in (("b", 0), ("a", 0), ("urgent", 9), ("low", "experiment")):
        seen.world.submit(name, priority=priority)
        seen.world.clock.advance(1)
    assert seen.names() == ["urgent", "b", "a", "low"]
    seen.world.edit("low", priority=10)
    seen.world.edit("b", suspend=True)
    assert seen.names() == ["low", "urgent", "a"]
    seen.world.jobs.delete(seen.world.jobs.get(("default", "urgent")))
    assert seen.names() == ["low", "a"]


def test_rows_that_did_not_change_are_the_same_objects():
    seen = Seen()
    seen.world.submit("a")
    seen.world.submit("b")
    before = seen.snapshot()
    seen.world.edit("b", priority=1)
    after = seen.snapshot()
    assert after.jobs[1] is before.jobs[0]
    assert after.nodes is before.nodes and after.queues is before.queues


def test_equal_jobs_share_a_form_and_unused_ones_make_place():
    seen = Seen()
    for name, replicas in (("one", 2), ("two", 2), ("other", 3)):
        seen.world.submit(name, role(replicas))

    def forms() -> int:
        snapshot = seen.snapshot()
        for row in snapshot.jobs:
            assert snapshot.forms[row.form] == form_of(seen.world.job(row.name))
        return len(snapshot.forms)

    assert forms() == 2
    seen.world.jobs.delete(seen.world.jobs.get(("default", "other")))
    seen.snapshot()
    seen.world.submit("fourth", role(4))
    assert forms() == 2


def test_a_job_made_anew_under_its_name_is_another():
    seen = Seen()
    old = seen.world.submit("j")
    assert seen.snapshot().jobs[0].uid == old.metadata.uid
    seen.world.jobs.delete(seen.world.jobs.get(("default", "j")))
    new = seen.world.submit("j", role(2))
    assert [row.uid for row in seen.snapshot().jobs] == [new.metadata.uid]


def test_tasks_of_jobs_that_are_not_there_are_strangers():
    seen = Seen()
    spec = TaskSpec(
        namespace="default", name="x-0", job="x", job_uid="gone", role="worker", index=0, attempt=1,
        incarnation=1, placement=Placement(node="a"), command=("true",), cpu=role().resources.cpu,
    )  # fmt: skip
    start_group(seen.world.cluster, (spec,))
    assert [(h.node, h.cpu, h.live) for h in seen.snapshot().strangers] == [("a", 1000, True)]
    seen.world.cluster.stop(spec.key, grace_seconds=0, reason="Deleted")
    assert seen.snapshot().strangers == ()


def test_what_a_decision_cannot_turn_on_is_no_news():
    seen = Seen()
    world = seen.world
    world.submit("j", role(2))
    seen.snapshot()
    assert seen.news
    seen.snapshot()
    assert not seen.news
    world.run(1)  # placed and started
    seen.snapshot()
    assert seen.news
    task = world.tasks.of_job(world.job("j").metadata.uid)[0]
    world.cluster.kill(task.spec.key)
    world.run(3)  # ended, and started again on its slot
    seen.snapshot()
    assert not seen.news
    world.edit("j", suspend=True)
    seen.snapshot()
    assert seen.news


def reports(seen: Seen, name: str, *told: tuple[float, int, int]) -> tuple[float, ...]:
    """What its coordinator says: when, of how many members, at which step; the curve after that."""
    for at, members, step in told:
        job = seen.world.job(name)
        status = ElasticStatus(state="running", world=members, step=step, reported=at)
        seen.world.jobs.patch_status(job, writer="elastic", fields={"elastic": builtins(status)})
        seen.snapshot()
    return next(row.speeds for row in seen.snapshot().jobs if row.name == name)


def test_a_curve_is_learned_from_reports_and_shared_by_an_application():
    """Ten steps in ten seconds with one, ten in five with two; what is declared counts more."""
    seen = Seen()
    worker = role(8, min_replicas=1)
    for name in ("first", "second", "other", "knows"):
        curve = (1.0, 1.5) if name == "knows" else ()
        application = "" if name == "other" else "bert"
        speed = Speed(curve=curve, application=application)
        seen.world.submit(name, worker, runtime="elastic", speed=speed)
    assert reports(seen, "first", (0, 1, 0)) == ()
    curve = reports(seen, "first", (10, 1, 10), (11, 2, 12), (16, 2, 22))
    assert curve == pytest.approx((1, 2, 3, 4))
    assert reports(seen, "second", (20, 1, 0)) == pytest.approx(curve)
    assert reports(seen, "other", (20, 1, 0)) == ()
    assert reports(seen, "knows", (20, 1, 0), (30, 1, 10)) == (1.0, 1.5)


def test_that_a_job_is_slower_with_more_is_said_once_for_its_slots():
    """Ten steps a second with one, for a minute five with two; it is no news of who declares a curve."""
    seen = Seen()
    worker = role(2, min_replicas=1)
    seen.world.submit("a", worker, runtime="elastic")
    seen.world.submit("knows", worker, runtime="elastic", speed=Speed(curve=(1.0, 2.0)))
    seen.world.run(1)
    for name in ("knows", "a"):
        reports(seen, name, (0, 1, 0), (10, 1, 100), (11, 2, 101), (41, 2, 251))
        assert seen.slower == []
        reports(seen, name, (81, 2, 451), (91, 2, 501), (101, 2, 551))
    assert seen.slower == [("a", Slower(best=1, speed=10, most=2, with_most=5))]


def test_reports_of_the_same_speed_are_no_news():
    """A decision turns on a curve that is new, and not on each step."""
    seen = Seen()
    seen.world.submit("a", role(4, min_replicas=1), runtime="elastic")
    reports(seen, "a", (0, 1, 0), (10, 1, 10))
    for at in range(2, 6):
        status = ElasticStatus(state="running", world=1, step=10 * at, reported=10.2 * at)
        seen.world.jobs.patch_status(
            seen.world.job("a"), writer="elastic", fields={"elastic": builtins(status)}
        )
        seen.snapshot()
        assert not seen.news


def test_when_a_job_was_given_slots_last_is_known_though_it_is_gone():
    """That it gave them back because it had ended is nobody's act."""
    seen = Seen()
    seen.world.submit("long", role(min_replicas=1, replicas=2))
    seen.world.run(1)
    first = seen.world.job("long").status.allocation.changed
    assert seen.snapshot().acted == first
    seen.world.clock.advance(50)
    seen.world.submit("short")
    seen.world.run(1)
    second = seen.world.job("short").status.allocation.changed
    assert second > first + 49
    assert seen.snapshot().acted == second
    seen.world.clock.advance(10)
    seen.world.edit("short", cancelled=True)
    seen.world.run(30)
    assert seen.world.job("short").status.phase == "Cancelled"
    snapshot = seen.snapshot()
    assert [row.name for row in snapshot.jobs] == ["long"]
    assert snapshot.acted == second
    assert Decider().decide(snapshot, Policy(), second + 60).cluster.acted == second
