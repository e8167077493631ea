from shoal.cluster.base import Task, Watches
from shoal.objects.task import Placement, TaskSpec


def task(name, phase="Running"):
    spec = TaskSpec(
        namespace="default", name=name, job="job", job_uid="uid", role="worker", index=0, attempt=1,
        incarnation=1, placement=Placement(node="n"), command=("true",),
    )  # fmt: skip
    return Task(spec=spec, phase=phase)


def test_only_the_newest_state_of_a_task_is_told():
    watches = Watches()
    watch = watches.open()
    watches.push([task("a", "Admitted"), task("b")])
    watches.push([task("a", "Ended")])
    assert watch.wait(0) == [task("a", "Ended"), task("b")]
    assert watch.wait(0) == []


def test_missed_changes_are_said_once():
    watches = Watches()
    watch = watches.open()
    watches.missed()
    assert watch.wait(10) == []
    assert watch.relist
    assert not watch.relist


def test_whoever_waits_is_woken():
    watches = Watches()
    watch, woken = watches.open(), []
    watches.push([task("a")])
    watch.on_ready(lambda: woken.append(1))
    assert woken == [1]  # there is something already
    watch.wait(0)
    watches.push([task("a")])
    watches.missed()
    assert woken == [1, 1, 1]


def test_a_closed_watch_hears_no_more():
    watches = Watches()
    watch = watches.open()
    watch.close()
    watch.close()
    watches.push([task("a")])
    assert watch.wait(10) == []
