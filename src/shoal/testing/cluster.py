"""The contract suite of `shoal.cluster.base.Cluster`: inherit `ClusterContract` and provide a harness.

    class TestMine(ClusterContract):
        @pytest.fixture
        def harness(self): ...        # a ClusterHarness with two nodes, `one` and `two`

The harness says how to spell tasks that behave in the few ways the suite needs, and how to let time
pass until something is true; so one suite serves real processes and virtual time. `start_group` drives
a group to its start where a test has no controller.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import pytest

from shoal.cluster.base import Cluster, NodeState, Refused, Task
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Endpoint, Placement, Probe, TaskBootstrap, TaskKey, TaskSpec, task_name

__all__ = ["ClusterContract", "ClusterHarness", "Render", "render_nothing", "start_group"]

Render = Callable[[tuple[TaskSpec, ...], tuple[Endpoint, ...]], Mapping[str, TaskBootstrap]]
"""The bootstraps of a group by task name, given the endpoints of its tasks."""

_START_SECONDS = 20.0


def render_nothing(
    specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
) -> Mapping[str, TaskBootstrap]:
    """A rendezvous that adds nothing."""
    return {spec.name: TaskBootstrap() for spec in specs}


def start_group(
    cluster: Cluster, group: tuple[TaskSpec, ...], render: Render = render_nothing
) -> tuple[Endpoint, ...]:
    """Do what the job controller does for one group, in real time: ensure it, wait for its endpoints,
    bootstrap it. Returns the endpoints, in order.

    Raises:
        Refused: a node refused it; the refusal is acknowledged.
        Unavailable: a node does not answer.
    """
    deadline = time.monotonic() + _START_SECONDS
    names = {spec.key for spec in group}
    while True:
        cluster.ensure(group)
        tasks = {task.spec.key: task for task in cluster.list().tasks if task.spec.key in names}
        refusals = [task.refusal for task in tasks.values() if task.refusal is not None]
        if refusals:
            for key in tasks:
                cluster.acknowledge(key)
            raise Refused(refusals[0].node, refusals[0].reason, refusals[0].message)
        endpoints = tuple(
            endpoint
            for spec in group
            if spec.key in tasks and (endpoint := tasks[spec.key].endpoint) is not None
        )
        if len(endpoints) == len(group):
            break
        if time.monotonic() > deadline:
            raise Unavailable(f"{len(group) - len(endpoints)} tasks were not admitted in time")
        time.sleep(0.005)
    rendered = render(group, endpoints)
    cluster.bootstrap({spec.key: rendered[spec.name] for spec in group})
    return endpoints


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

    def silence(self, node: str) -> None:
        """Make the node stop answering; its tasks go on."""

    def restore(self, node: str) -> None:
        """Make the node answer again."""

    def kill(self, task: Task) -> None:
        """SIGKILL to the task's command from outside."""

    def hold_admissions(self) -> None:
        """Nodes take a while to admit what is ensured from now on."""

    def release_admissions(self) -> None:
        """Nodes admit what waits, and what comes."""

    def declare(
        self, node: str, *, labels: dict[str, str], unschedulable: bool, foreign: Capacity
    ) -> None:
        """The node declares this of itself from now on, and others use so much of it."""

    def ready_when(self) -> tuple[tuple[str, ...], Probe]:
        """A command that runs until SIGTERM, and a probe that succeeds a moment later."""
        ...

    def echoes(self) -> tuple[str, ...] | None:
        """A command that listens on its port `$SHOAL_PORT_WEB`, writes `listens`, and sends a connection
        back what came of it once that half is closed. None: `forward` is not supported."""
        ...

    def never_ready(self) -> tuple[tuple[str, ...], Probe]:
        """As `ready_when`, but the probe never succeeds."""
        ...


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

    def endpoint(self, harness: ClusterHarness, key: TaskKey) -> Endpoint | None:
        """Its endpoint, once it is known."""
        task = self.task(harness, key)
        return task.endpoint if task is not None else None

    def ready(self, harness: ClusterHarness, key: TaskKey) -> bool:
        """Its readiness."""
        task = self.task(harness, key)
        return task is not None and task.ready

    def node(self, harness: ClusterHarness, name: str) -> NodeState:
        """The node as listed now."""
        return next(node for node in harness.cluster.nodes() if node.name == name)

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
        start_group(harness.cluster, (spec,))
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert (task.outcome.exit_code, task.outcome.reason) == (3, "Exited")
        assert task.outcome.stop_reason is None
        assert task.started <= task.ended
        harness.cluster.acknowledge(spec.key)
        assert self.phase(harness, spec.key) == ""

    def test_acknowledging_a_running_task_does_nothing(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.acknowledge(spec.key)
        assert self.phase(harness, spec.key) == "Running"

    def test_acknowledging_what_is_not_there_does_nothing(self, harness: ClusterHarness) -> None:
        harness.cluster.acknowledge(TaskKey(namespace="default", name="never-was"))

    def test_start_is_idempotent_by_name(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        for _ in range(3):
            start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        first = self.task(harness, spec.key)
        start_group(harness.cluster, (spec,))
        assert self.task(harness, spec.key) == first

    def test_start_of_an_ended_task_does_not_run_it_again(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        start_group(harness.cluster, (spec,))
        before = self.ended(harness, spec)
        start_group(harness.cluster, (spec,))
        assert self.task(harness, spec.key) == before

    def test_a_group_is_told_of_all_its_endpoints(self, harness: ClusterHarness) -> None:
        group = tuple(
            self.spec(harness.sleeps(), job=f"gang{id(harness)}", index=i, node=node)
            for i, node in enumerate(("one", "two", "one"))
        )
        seen: list[tuple[Endpoint, ...]] = []

        def render(
            specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
        ) -> Mapping[str, TaskBootstrap]:
            seen.append(endpoints)
            return render_nothing(specs, endpoints)

        start_group(harness.cluster, group, render)
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
            start_group(harness.cluster, group)
        assert (caught.value.node, caught.value.reason) == ("two", "OutOfCpu")
        assert not harness.cluster.list().tasks
        fits = self.spec(harness.sleeps(), cpu=2000)
        start_group(harness.cluster, (fits,))

    def test_memory_is_admitted_against_the_ledger(self, harness: ClusterHarness) -> None:
        start_group(harness.cluster, (self.spec(harness.sleeps(), memory=700 << 20),))
        with pytest.raises(Refused) as caught:
            start_group(harness.cluster, (self.spec(harness.sleeps(), memory=700 << 20),))
        assert caught.value.reason == "OutOfMemory"

    def test_a_device_is_held_by_one_task(self, harness: ClusterHarness) -> None:
        start_group(harness.cluster, (self.spec(harness.sleeps(), devices=("0",)),))
        for devices in (("0",), ("7",)):
            with pytest.raises(Refused) as caught:
                start_group(harness.cluster, (self.spec(harness.sleeps(), devices=devices),))
            assert caught.value.reason == "DeviceTaken"
        start_group(harness.cluster, (self.spec(harness.sleeps(), devices=("1",)),))

    def test_tasks_share_a_device_up_to_the_whole_of_it(self, harness: ClusterHarness) -> None:
        for share in (500, 400):
            part = self.spec(harness.sleeps(), devices=("0",), share=share)
            start_group(harness.cluster, (part,))
        for share in (200, 0):
            with pytest.raises(Refused) as caught:
                wants = self.spec(harness.sleeps(), devices=("0",), share=share)
                start_group(harness.cluster, (wants,))
            assert caught.value.reason == "DeviceTaken"
        last = self.spec(harness.sleeps(), devices=("0",), share=100)
        start_group(harness.cluster, (last,))

    def test_an_ended_task_holds_no_capacity(self, harness: ClusterHarness) -> None:
        first = self.spec(harness.exits(0), cpu=2000, devices=("0", "1"))
        start_group(harness.cluster, (first,))
        self.ended(harness, first)
        second = self.spec(harness.exits(0), cpu=2000, devices=("0", "1"))
        start_group(harness.cluster, (second,))
        self.ended(harness, second)

    def test_a_node_that_is_not_there_refuses(self, harness: ClusterHarness) -> None:
        with pytest.raises(Refused):
            start_group(harness.cluster, (self.spec(harness.sleeps(), node="nowhere"),))

    def test_a_stop_ends_the_task_and_its_reason_comes_back(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        start_group(harness.cluster, (spec,))
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
        start_group(harness.cluster, (spec,))
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
        start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.cluster.stop(spec.key, grace_seconds=0.3, reason="Cancelled")
        task = self.ended(harness, spec)
        assert task.outcome is not None
        assert (task.outcome.exit_code, task.outcome.signal) == (137, 9)
        assert task.outcome.stop_reason == "Cancelled"

    def test_stopping_what_has_ended_or_is_not_there_does_nothing(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        start_group(harness.cluster, (spec,))
        before = self.ended(harness, spec)
        harness.cluster.stop(spec.key, grace_seconds=1, reason="Cancelled")
        assert self.task(harness, spec.key) == before
        gone = TaskKey(namespace="default", name="never-was")
        harness.cluster.stop(gone, grace_seconds=1, reason="Cancelled")

    def test_a_kill_from_outside_is_a_signal_without_a_stop_reason(
        self, harness: ClusterHarness
    ) -> None:
        spec = self.spec(harness.sleeps())
        start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        task = self.task(harness, spec.key)
        assert task is not None
        harness.kill(task)
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert (outcome.exit_code, outcome.reason, outcome.stop_reason) == (137, "Signalled", None)

    def test_a_silent_node_makes_the_list_incomplete_and_names_it(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps(), node="two")
        start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        harness.silence("two")
        harness.until(lambda: harness.cluster.list().unreachable_nodes == ("two",))
        assert self.phase(harness, spec.key) == ""
        states = {node.name: node.ready for node in harness.cluster.nodes()}
        assert states == {"one": True, "two": False}
        with pytest.raises(Unavailable):
            start_group(harness.cluster, (self.spec(harness.sleeps(), node="two"),))
        harness.restore("two")
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        assert not harness.cluster.list().unreachable_nodes

    def test_a_watch_tells_of_changes(self, harness: ClusterHarness) -> None:
        watch = harness.cluster.watch()
        try:
            spec = self.spec(harness.exits(0))
            start_group(harness.cluster, (spec,))
            seen: list[Task] = []

            def ended() -> bool:
                seen.extend(watch.wait(0.01))
                return any(t.spec.key == spec.key and t.phase == "Ended" for t in seen)

            harness.until(ended)
        finally:
            watch.close()

    def test_logs_outlive_the_task(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.exits(0))
        start_group(harness.cluster, (spec,))
        self.ended(harness, spec)
        assert b"".join(harness.cluster.logs(spec.key)) == b"out 0\n"
        harness.cluster.acknowledge(spec.key)
        assert b"".join(harness.cluster.logs(spec.key)) == b"out 0\n"

    def test_usage_is_of_a_known_task(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        gone = TaskKey(namespace="default", name="never-was")
        used = harness.cluster.usage((spec.key, gone))
        assert used.keys() == {spec.key}
        assert used[spec.key].cpu_seconds >= 0

    def test_forgetting_a_job_is_idempotent(self, harness: ClusterHarness) -> None:
        for _ in range(2):
            harness.cluster.cleanup_job("default", "no-such-uid", outputs=True)

    def test_what_is_ensured_is_pending_until_its_nodes_admit_it(self, harness: ClusterHarness) -> None:
        job = f"slow{next(self._numbers)}"
        group = tuple(
            self.spec(harness.sleeps(), job=job, index=i, node=node)
            for i, node in enumerate(("one", "two"))
        )
        bootstraps = {spec.key: TaskBootstrap() for spec in group}
        watch = harness.cluster.watch()
        harness.hold_admissions()
        try:
            begun = time.monotonic()
            harness.cluster.ensure(group)
            harness.cluster.bootstrap(bootstraps)
            assert time.monotonic() - begun < 0.5, "nothing waits for a node"
            seen = {task.spec.key: task for task in watch.wait(0)}
        finally:
            harness.release_admissions()
            watch.close()
        assert {key: task.phase for key, task in seen.items()} == dict.fromkeys(bootstraps, "Pending")
        harness.until(lambda: all(self.endpoint(harness, spec.key) for spec in group))
        assert {self.phase(harness, spec.key) for spec in group} == {"Admitted"}, (
            "too early: passed over"
        )
        harness.cluster.ensure(group)
        harness.cluster.bootstrap(bootstraps)
        harness.until(lambda: all(self.phase(harness, s.key) == "Running" for s in group))

    def test_a_task_runs_only_once_its_endpoint_is_known_and_it_is_bootstrapped(
        self, harness: ClusterHarness
    ) -> None:
        spec = self.spec(harness.sleeps())
        harness.cluster.ensure((spec,))
        harness.until(lambda: self.endpoint(harness, spec.key) is not None)
        task = self.task(harness, spec.key)
        assert task is not None
        assert (task.phase, task.bootstrapped, task.ready) == ("Admitted", False, False)
        harness.cluster.bootstrap({spec.key: TaskBootstrap()})
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        task = self.task(harness, spec.key)
        assert task is not None
        assert (task.bootstrapped, task.ready) == (True, True)

    def test_a_pending_task_that_is_stopped_never_runs(self, harness: ClusterHarness) -> None:
        spec = self.spec(harness.sleeps())
        harness.hold_admissions()
        try:
            harness.cluster.ensure((spec,))
            harness.cluster.stop(spec.key, grace_seconds=1, reason="Cancelled")
        finally:
            harness.release_admissions()
        task = self.ended(harness, spec)
        assert (task.started, task.stop_reason) == (0.0, "Cancelled")

    def test_a_refusal_is_observed_on_every_task_of_the_group(self, harness: ClusterHarness) -> None:
        job = f"refused{next(self._numbers)}"
        group = (
            self.spec(harness.sleeps(), job=job, index=0, node="one"),
            self.spec(harness.sleeps(), job=job, index=1, node="two", cpu=2500),
        )
        harness.cluster.ensure(group)
        for spec in group:
            task = self.ended(harness, spec)
            assert task.refusal is not None
            assert (task.refusal.node, task.refusal.reason) == ("two", "OutOfCpu")
            assert task.outcome is not None
            assert task.outcome.reason == "Refused"
        for spec in group:
            harness.cluster.acknowledge(spec.key)
        harness.until(lambda: not harness.cluster.list().tasks)

    def test_readiness_is_observed(self, harness: ClusterHarness) -> None:
        command, probe = harness.ready_when()
        later = msgspec.structs.replace(self.spec(command), readiness=probe, ports={"web": 0})
        command, probe = harness.never_ready()
        never = msgspec.structs.replace(self.spec(command), readiness=probe, ports={"web": 0})
        for spec in (later, never):
            start_group(harness.cluster, (spec,))
        harness.until(lambda: self.phase(harness, later.key) == "Running")
        harness.until(lambda: self.ready(harness, later.key))
        assert self.phase(harness, never.key) == "Running"
        assert not self.ready(harness, never.key)
        harness.cluster.stop(later.key, grace_seconds=5, reason="Cancelled")
        assert not self.ended(harness, later).ready

    def test_a_port_of_a_task_is_forwarded_in_pieces(self, harness: ClusterHarness) -> None:
        with pytest.raises(NotFound):
            harness.cluster.forward(self.spec(harness.sleeps()).key, 1)
        command = harness.echoes()
        spec = msgspec.structs.replace(self.spec(command or harness.sleeps()), ports={"web": 0})

        def render(
            specs: tuple[TaskSpec, ...], endpoints: tuple[Endpoint, ...]
        ) -> Mapping[str, TaskBootstrap]:
            port = str(endpoints[0].ports["web"])
            return {specs[0].name: TaskBootstrap(env={"SHOAL_PORT_WEB": port})}

        (endpoint,) = start_group(harness.cluster, (spec,), render)
        harness.until(lambda: self.phase(harness, spec.key) == "Running")
        if command is None:  # declared as not supported: it says so
            with pytest.raises(NotFound):
                harness.cluster.forward(spec.key, 1)
            return
        harness.until(lambda: b"listens" in b"".join(harness.cluster.logs(spec.key)))
        sent = bytes(range(256)) * 1024
        found = self.forwarded(harness, spec.key, endpoint.ports["web"], sent)
        pieces, rest = list[bytes](), found["out"]
        while rest:
            size = int.from_bytes(rest[:4], "big")
            pieces.append(rest[4 : 4 + size])
            assert len(pieces[-1]) == size
            rest = rest[4 + size :]
        assert b"".join(pieces) == sent
        assert [number for number, piece in enumerate(pieces) if not piece] == [len(pieces) - 1]
        assert (found["err"], found["exit"]) == (b"+", b"0")
        refused = self.forwarded(harness, spec.key, 1, b"")
        assert refused == {"out": b"", "err": b"", "exit": b"111"}

    def forwarded(
        self, harness: ClusterHarness, key: TaskKey, port: int, sent: bytes
    ) -> dict[str, bytes]:
        """Everything that a connection gives to one that sends this and closes its half."""
        session = harness.cluster.forward(key, port)
        found = {"out": b"", "err": b"", "exit": b""}
        try:
            if sent:
                session.send(sent)
            session.send(b"")
            while not found["exit"]:
                stream, data = session.receive()
                found[stream] += data
        finally:
            session.close()
        return found

    def test_nodes_that_change_are_watched(self, harness: ClusterHarness) -> None:
        changed = threading.Event()
        watch = harness.cluster.watch_nodes()
        watch.on_ready(changed.set)
        try:
            changed.clear()
            labels = {"zone": "b"}
            harness.declare("one", labels=labels, unschedulable=True, foreign=Capacity())
            harness.until(changed.is_set)
            harness.until(lambda: self.node(harness, "one").labels == labels)
            assert self.node(harness, "one").unschedulable
            changed.clear()
            harness.silence("two")
            harness.until(changed.is_set)
            harness.until(lambda: not self.node(harness, "two").ready)
        finally:
            harness.restore("two")
            watch.close()

    def test_what_others_use_is_not_given_out(self, harness: ClusterHarness) -> None:
        foreign = Capacity(cpu=CpuMillis(1500), gpus=("0",))
        harness.declare("one", labels={}, unschedulable=False, foreign=foreign)
        harness.until(lambda: self.node(harness, "one").foreign == foreign)
        assert self.node(harness, "one").capacity.cpu == 2000
        for spec, reason in (
            (self.spec(harness.sleeps(), cpu=600), "OutOfCpu"),
            (self.spec(harness.sleeps(), devices=("0",)), "DeviceTaken"),
        ):
            with pytest.raises(Refused) as caught:
                start_group(harness.cluster, (spec,))
            assert caught.value.reason == reason
        start_group(harness.cluster, (self.spec(harness.sleeps(), cpu=500, devices=("1",)),))
