"""The simulated cluster keeps the contract, and its faults look as real ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.cluster.base import Task
from shoal.cluster.simulated import Script, SimulatedCluster
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import TaskSpec
from shoal.testing.clock import VirtualClock
from shoal.testing.cluster import ClusterContract, tell_nothing


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
        self.cluster = SimulatedCluster(self.clock, nodes, behave)

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
        harness.cluster.start((spec,), tell_nothing)
        harness.cluster.lose_supervisor(spec.key)
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert outcome.reason == "SupervisorLost"

    def test_tasks_go_on_while_their_node_is_silent(self, harness: Harness) -> None:
        spec = self.spec(harness.exits(5), node="two")
        harness.cluster.start((spec,), tell_nothing)
        harness.silence("two")
        harness.clock.advance(10)
        harness.restore("two")
        outcome = self.ended(harness, spec).outcome
        assert outcome is not None
        assert outcome.exit_code == 5
