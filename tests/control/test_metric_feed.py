from __future__ import annotations

from shoal.control.metric_collector import MetricFeed
from shoal.history.base import JobKey, Point
from tests.support.memory_history import MemoryHistory

A = JobKey(namespace="default", name="a", uid="u1")
B = JobKey(namespace="default", name="b", uid="u2")


def point(job: JobKey, sequence: int) -> Point:
    return Point(job=job, name="loss", value=0.0, at=1.0, writer="w", sequence=sequence)


def test_jobs_with_new_points_are_called_back_once() -> None:
    history, seen = MemoryHistory(), list[JobKey]()
    feed = MetricFeed(history)
    feed.on_change(lambda _, job: seen.append(job))
    assert (feed.synced, feed.sync(), feed.synced) == (False, False, True)
    history.append_points([point(A, 1), point(B, 1), point(A, 2)])
    feed.ready.set()
    assert feed.sync()
    assert not feed.ready.is_set()
    assert sorted(each.name for each in seen) == ["a", "b"]
    assert not feed.sync()
    history.append_points([point(B, 1), point(B, 2)])
    assert feed.sync()
    assert seen[2:] == [B]


def test_after_a_restart_each_job_comes_again() -> None:
    history, seen = MemoryHistory(), list[JobKey]()
    history.append_points([point(A, 1)])
    feed = MetricFeed(history)
    feed.on_change(lambda _, job: seen.append(job))
    feed.sync()
    assert seen == [A]
    assert [each.order for each in feed.points("default", "u1")] == [1]


def test_without_a_history_there_are_no_points() -> None:
    feed = MetricFeed(None)
    assert not feed.sync()
    assert feed.points("default", "u1") == ()
