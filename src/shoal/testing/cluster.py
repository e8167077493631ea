"""The contract suite of `shoal.cluster.base.Cluster`: inherit `ClusterContract` and provide a harness.

    class TestMine(ClusterContract):
        @pytest.fixture
        def harness(self): ...        # a ClusterHarness with two nodes, `one` and `two`

The harness says how to spell tasks that behave in the few ways the suite needs, and how to let time
pass until something is true; so one suite serves real processes and virtual time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import pytest

from shoal.cluster.base import Cluster, Refused, Task
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Endpoint, Placement, TaskBootstrap, TaskKey, TaskSpec, task_name

__all__ = ["ClusterContract", "ClusterHarness"]


class ClusterHarness(Protocol):
    """What an implementation brings. Nodes `one` and `two` have 2 cores and 1 GiB each; `one` has the
    devices `0` and `1`."""

    @property
    def cluster(self) -> Cluster:
        """The cluster under test."""
        ...

    def exits(self, code: int) -> tuple[str, ...]:
        """A command that writes `out CODE` and ends at once with this code."""
        ...

    def sleeps(self) -> tuple[str, ...]:
        """A command that runs until SIGTERM, and ends at once then."""
        ...

    def stays(self) -> tuple[str, ...]:
        """A command that ignores SIGTERM."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until the condition holds; fails the test if it takes too long."""
        ...

    def silence(self, node: str) -> None:
        """Make the node stop answering; its tasks go on."""
        ...

    def restore(self, node: str) -> None:
        """Make the node answer again."""
        ...

    def kill(self, task: Task) -> None:
        """SIGKILL to the task's command from outside."""
        ...


def tell_nothing(
    specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> Mapping[str, TaskBootstrap]:
    """A rendezvous that adds nothing."""
    return {spec.name: TaskBootstrap() for spec in specs}


class ClusterContract:
    """The rules of `shoal.cluster.base`, one test each."""

    _numbers = itertools.count(1)

    def spec(
        self,
        command: tuple[str, ...],
        *,
        node: str = "one",
        index: int = 0,
        incarnation: int = 1,
        job: str = "",
        cpu: int = 100,
        memory: int | None = None,
        devices: tuple[str, ...] = (),
        share: int = 0,
    ) -> TaskSpec:
        """A task of a job of its own, unless `job` names one."""
        job = job or f"job{next(self._numbers)}"
        uid = f"{job}-uid-000000"
        return TaskSpec(
            namespace="default",
            name=task_name(job, uid, "worker", index, incarnation),
            job=job,
            job_uid=uid,
            role="worker",
            index=index,
            attempt=1,
            incarnation=incarnation,
            placement=Placement(node=node, devices=devices, share=share),
            command=command,
            cpu=CpuMillis(cpu),
            memory=None if memory is None else Bytes(memory),
        )

    def task(self, harness: ClusterHarness, key: TaskKey) -> Task | None:
        """The task as listed now."""
        return next((t for t in harness.cluster.list().tasks if t.spec.key == key), None)

    def phase(self, harness: ClusterHarness, key: TaskKey) -> str:
        """Its phase; empty when it is not listed."""
        task = self.task(harness, key)
        return task.phase if task is not None else ""

    def ended(self, harness: ClusterHarness, spec: TaskSpec) -> Task:
        """Wait for its end."""
        harness.until(lambda: self.phase(harness, spec.key) == "Ended")
        task = self.task(harness, spec.key)
        assert task is not None
        return task

    def test_both_nodes_are_ready_and_say_what_they_hold(self, harness: ClusterHarness) -> None:
        nodes = {node.name: node for node in harness.cluster.nodes()}
        assert sorted(nodes) == ["one", "two"]
        assert all(node.ready for node in nodes.values())
        assert nodes["one"].capacity.cpu == 2000
        assert nodes["one"].capacity.gpus == ("0", "1")

    def test_a_task_runs_ends_and_stays_until_acknowledged(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(3))
        harness.cluster.start((spec,), tell_nothing)
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert (task.outcome.exit_code, task.outcome.reason) == (3, "Exited")
        assert task.outcome.stop_reason is None
        assert task.started <= task.ended
        harness.cluster.acknowledge(spec.key)
        assert self.phase(harness, spec.key) == ""

    def test_acknowledging_a_running_task_does_nothing(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.acknowledge(spec.key)
        assert self.phase(harness, spec.key) == "Running"

    def test_acknowledging_what_is_not_there_does_nothing(self, harness: ClusterHarness) -> None:
        harness.cluster.acknowledge(TaskKey(namespace="default", name="never-was"))

    def test_start_is_idempotent_by_name(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        for _ in range(3):
            harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        first = self.task(harness, spec.key)
        harness.cluster.start((spec,), tell_nothing)
        assert self.task(harness, spec.key) == first

    def test_start_of_an_ended_task_does_not_run_it_again(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        harness.cluster.start((spec,), tell_nothing)
        before = self.ended(harness, spec)
        harness.cluster.start((spec,), tell_nothing)
        assert self.task(harness, spec.key) == before

    def test_a_group_is_told_of_all_its_endpoints(self, harness: ClusterHarness) -> None:
        group = tuple(
            self.spec(harness.sleeps(), job=f"gang{id(harness)}", index=i, node=node)
            for i, node in enumerate(("one", "two", "one"))
        )
        seen: list[tuple[Endpoint, ...]] = []

        def tell(
            specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
        ) -> Mapping[str, TaskBootstrap]:
            seen.append(endpoints)
            return tell_nothing(specs, endpoints)

        harness.cluster.start(group, tell)
        assert [(e.index, e.node) for e in seen[0]] == [(0, "one"), (1, "two"), (2, "one")]
        addresses = [(e.host, port) for e in seen[0] for port in e.ports.values()]
        assert len(set(addresses)) == len(addresses)
        assert all("rendezvous" in e.ports for e in seen[0])

    def test_a_group_is_admitted_whole_or_not_at_all(self, harness: ClusterHarness) -> None:
        job = f"big{id(harness)}"
        group = (
            self.spec(harness.sleeps(), job=job, index=0, node="one", cpu=1500),
            self.spec(harness.sleeps(), job=job, index=1, node="two", cpu=2500),
        )
        with pytest.raises(Refused) as caught:
            harness.cluster.start(group, tell_nothing)
        assert (caught.value.node, caught.value.reason) == ("two", "OutOfCpu")
        assert not harness.cluster.list().tasks
        fits = self.spec(harness.sleeps(), cpu=2000)
        harness.cluster.start((fits,), tell_nothing)

    def test_memory_is_admitted_against_the_ledger(self, harness: ClusterHarness) -> None:
        harness.cluster.start((self.spec(harness.sleeps(), memory=700 << 20),), tell_nothing)
        with pytest.raises(Refused) as caught:
            harness.cluster.start((self.spec(harness.sleeps(), memory=700 << 20),), tell_nothing)
        assert caught.value.reason == "OutOfMemory"

    def test_a_device_is_held_by_one_task(self, harness: ClusterHarness) -> None:
        harness.cluster.start((self.spec(harness.sleeps(), devices=("0",)),), tell_nothing)
        for devices in (("0",), ("7",)):
            with pytest.raises(Refused) as caught:
                harness.cluster.start((self.spec(harness.sleeps(), devices=devices),), tell_nothing)
            assert caught.value.reason == "DeviceTaken"
        harness.cluster.start((self.spec(harness.sleeps(), devices=("1",)),), tell_nothing)

    def test_tasks_share_a_device_up_to_the_whole_of_it(self, harness: ClusterHarness) -> None:
        for share in (500, 400):
            part = self.spec(harness.sleeps(), devices=("0",), share=share)
            harness.cluster.start((part,), tell_nothing)
        for share in (200, 0):
            with pytest.raises(Refused) as caught:
                wants = self.spec(harness.sleeps(), devices=("0",), share=share)
                harness.cluster.start((wants,), tell_nothing)
            assert caught.value.reason == "DeviceTaken"
        last = self.spec(harness.sleeps(), devices=("0",), share=100)
        harness.cluster.start((last,), tell_nothing)

    def test_an_ended_task_holds_no_capacity(self, harness: ClusterHarness) -> None:
        first = self.spec(harness.exits(0), cpu=2000, devices=("0", "1"))
        harness.cluster.start((first,), tell_nothing)
        self.ended(harness, first)
        second = self.spec(harness.exits(0), cpu=2000, devices=("0", "1"))
        harness.cluster.start((second,), tell_nothing)
        self.ended(harness, second)

    def test_a_node_that_is_not_there_refuses(self, harness: ClusterHarness) -> None:
        with pytest.raises(Refused):
            harness.cluster.start((self.spec(harness.sleeps(), node="nowhere"),), tell_nothing)

    def test_a_stop_ends_the_task_and_its_reason_comes_back(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.stop(spec.key, grace_seconds=30, reason="Preempted")
        stopping = self.task(harness, spec.key)
        assert stopping is not None
        assert stopping.stop_reason == "Preempted"
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert task.outcome.stop_reason == "Preempted"
        assert task.outcome.exit_code == 143

    def test_the_first_reason_stays(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.stays())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.stop(spec.key, grace_seconds=600, reason="Preempted")
        harness.cluster.stop(spec.key, grace_seconds=0.2, reason="Cancelled")
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert task.outcome.stop_reason == "Preempted"

    def test_a_task_that_ignores_the_notice_is_killed_after_its_grace(
        self, harness: ClusterHarness
    ) -> None:
        spec = self.spec(harness.stays())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.stop(spec.key, grace_seconds=0.3, reason="Cancelled")
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert (task.outcome.exit_code, task.outcome.signal) == (137, 9)
        assert task.outcome.stop_reason == "Cancelled"

    def test_stopping_what_has_ended_or_is_not_there_does_nothing(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        harness.cluster.start((spec,), tell_nothing)
        before = self.ended(harness, spec)
        harness.cluster.stop(spec.key, grace_seconds=1, reason="Cancelled")
        assert self.task(harness, spec.key) == before
        gone = TaskKey(namespace="default", name="never-was")
        harness.cluster.stop(gone, grace_seconds=1, reason="Cancelled")

    def test_a_kill_from_outside_is_a_signal_without_a_stop_reason(
        self, harness: ClusterHarness
    ) -> None:
        spec = self.spec(harness.sleeps())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        task = self.task(harness, spec.key)
        assert task is not None
        harness.kill(task)
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert (outcome.exit_code, outcome.reason, outcome.stop_reason) == (137, "Signalled", None)

    def test_a_silent_node_makes_the_list_incomplete_and_names_it(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps(), node="two")
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.silence("two")
        harness.until(lambda: harness.cluster.list().unreachable_nodes == ("two",))
        assert self.phase(harness, spec.key) == ""
        states = {node.name: node.ready for node in harness.cluster.nodes()}
        assert states == {"one": True, "two": False}
        with pytest.raises(Unavailable):
            harness.cluster.start((self.spec(harness.sleeps(), node="two"),), tell_nothing)
        harness.restore("two")
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        assert not harness.cluster.list().unreachable_nodes

    def test_a_watch_tells_of_changes(self, harness: ClusterHarness) -> None:
        watch = harness.cluster.watch()
        try:
            spec = self.spec(harness.exits(0))
            harness.cluster.start((spec,), tell_nothing)
            seen: list[Task] = []

            def ended() -> bool:
                seen.extend(watch.wait(0.01))
                return any(t.spec.key == spec.key and t.phase == "Ended" for t in seen)

            harness.until(ended)
        finally:
            watch.close()

    def test_logs_outlive_the_task(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        harness.cluster.start((spec,), tell_nothing)
        self.ended(harness, spec)
        assert b"".join(harness.cluster.logs(spec.key)) == b"out 0\n"
        harness.cluster.acknowledge(spec.key)
        assert b"".join(harness.cluster.logs(spec.key)) == b"out 0\n"

    def test_usage_is_of_a_known_task(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        harness.cluster.start((spec,), tell_nothing)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        assert harness.cluster.usage(spec.key).cpu_seconds >= 0
        with pytest.raises(NotFound):
            harness.cluster.usage(TaskKey(namespace="default", name="never-was"))

    def test_forgetting_a_job_is_idempotent(self, harness: ClusterHarness) -> None:
        for _ in range(2):
            harness.cluster.cleanup_job("default", "no-such-uid", outputs=True)
