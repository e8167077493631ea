"""The simulated cluster keeps the contract, and its faults look as real ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal.cluster.base import Task
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import Probe, TaskSpec
from shoal.testing.clock import VirtualClock
from shoal.testing.cluster import ClusterContract, start_group

READY = Probe(command=("ready",))
NEVER = Probe(command=("never",))


def behave(spec: TaskSpec) -> Script:
    word, _, value = spec.command[0].partition(":")
    if word == "exits":
        return Script(run_seconds=0.01, exit_code=int(value), output=f"out {value}\n".encode())
    return Script(stops_after_seconds=None if word == "stays" else 0.01)


class Harness:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        room = {"cpu": CpuMillis(2000), "memory": Bytes(1 << 30)}
        nodes = {"one": Capacity(**room, gpus=("0", "1")), "two": Capacity(**room)}
        self.slow = False
        self.cluster = SimulatedCluster(self.clock, nodes, self.behave)

    def behave(self, spec: TaskSpec) -> Script:
        script = behave(spec)
        if spec.readiness is not None:
            script = replace(script, ready_seconds=None if spec.readiness == NEVER else 2.0)
        return replace(script, admit_seconds=5.0, endpoint_seconds=3.0) if self.slow else script

    def hold_admissions(self) -> None:
        self.slow = True

    def release_admissions(self) -> None:
        self.slow = False

    def declare(
        self, node: str, *, labels: dict[str, str], unschedulable: bool, foreign: Capacity
    ) -> None:
        self.cluster.declare(node, labels=labels, unschedulable=unschedulable, foreign=foreign)

    def ready_when(self) -> tuple[tuple[str, ...], Probe]:
        return self.sleeps(), READY

    def echoes(self) -> None:
        return None

    def never_ready(self) -> tuple[tuple[str, ...], Probe]:
        return self.sleeps(), NEVER

    def exits(self, code: int) -> tuple[str, ...]:
        return (f"exits:{code}",)

    def sleeps(self) -> tuple[str, ...]:
        return ("sleeps",)

    def stays(self) -> tuple[str, ...]:
        return ("stays",)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.clock.advance(0.05)
        pytest.fail("it never came true in 50 s of virtual time")

    def silence(self, node: str) -> None:
        self.cluster.silence(node)

    def restore(self, node: str) -> None:
        self.cluster.silence(node, False)

    def kill(self, task: Task) -> None:
        self.cluster.kill(task.spec.key)


class TestContract(ClusterContract):
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness()

    def test_a_lost_supervisor_is_told_apart(self, harness: Harness) -> None:
        spec = self.spec(harness.sleeps())
        start_group(harness.cluster, (spec,))
        harness.cluster.lose_supervisor(spec.key)
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert outcome.reason == "SupervisorLost"

    def test_tasks_go_on_while_their_node_is_silent(self, harness: Harness) -> None:
        spec = self.spec(harness.exits(5), node="two")
        start_group(harness.cluster, (spec,))
        harness.silence("two")
        harness.clock.advance(10)
        harness.restore("two")
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert outcome.exit_code == 5
