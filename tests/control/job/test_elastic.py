"""An elastic job: its workers come, go and die one by one, and its coordinator is the platform's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.cluster.base import Outcome
from shoal.cluster.simulated import Script
from shoal.control.job.actions import PatchStatus
from shoal.control.job.observe import Observed
from shoal.control.job.reconcile import reconcile_job
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import ElasticStatus, JobSpec, Restart, Role
from shoal.objects.quantities import Seconds
from shoal.objects.task import TaskSpec
from tests.control.job.world import World, slots

COORDINATOR = slots("0", role="coordinator")


def elastic(least: int = 1, most: int = 4, **fields: Any) -> JobSpec:
    worker = Role(replicas=most, min_replicas=least, command=("python", "train.py"))
    return with_coordinator(JobSpec(roles=(worker,), runtime="elastic", **fields), "python")


def started(indices: str, ends: dict[str, Script] | None = None, **fields: Any) -> World:
    """A world whose job runs these workers; `ends` is by `role-index-incarnation`, others run on."""
    scripts = ends or {}

    def behave(task: TaskSpec) -> Script:
        return scripts.get(f"{task.role}-{task.index}-{task.incarnation}", Script())

    world = World(elastic(**fields), behave)
    world.allocate(COORDINATOR, slots(indices))
    world.settle()
    return world


def test_coordinator_and_workers_start_together() -> None:
    world = started("0-1")
    assert world.tasks() == {
        "coordinator-0-1": "Running", "worker-0-1": "Running", "worker-1-1": "Running",
    }  # fmt: skip
    assert world.job.status.phase == "Running"


def test_a_worker_that_dies_starts_again_alone_and_counts() -> None:
    world = started("0-2", {"worker-1-1": Script(5, exit_code=137)}, restart=Restart(limit=3))
    world.advance(30)
    assert world.tasks() == {
        "coordinator-0-1": "Running", "worker-0-1": "Running",
        "worker-1-2": "Running", "worker-2-1": "Running",
    }  # fmt: skip
    status = world.job.status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (1, 0, 1)


def test_a_lost_node_counts_as_one_loss_of_the_infrastructure() -> None:
    world = started("0-1")
    world.allocate(COORDINATOR, slots("0"), slots("1", "n1"))
    world.advance(60)
    before = world.job.status
    world.lost = frozenset({"n1"})
    world.settle()
    world.allocate(COORDINATOR, slots("0-1"), reason="NodeLost")
    world.settle()
    assert world.tasks()["worker-0-1"] == "Running"
    status = world.job.status
    assert status.failures == before.failures == 0
    assert status.infrastructure_failures == before.infrastructure_failures + 1


def test_a_worker_that_gives_up_its_slot_has_notice_and_costs_nothing() -> None:
    world = started("0-3", {"worker-3-1": Script(stops_after_seconds=3)})
    world.allocate(COORDINATOR, slots("0-2"), reason="Preempted")
    world.settle()
    stopping = next(t for t in world.cluster.list().tasks if t.spec.index == 3)
    assert (stopping.phase, stopping.stop_reason) == ("Terminating", "Preempted")
    world.advance(10)
    assert "worker-3-1" not in world.tasks()
    world.allocate(COORDINATOR, slots("0-3"), reason="Grown")
    world.settle()
    assert world.tasks()["worker-3-2"] == "Running", "the next incarnation"
    status = world.job.status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (0, 0, 1)
    assert all(f"worker-{index}-1" in world.tasks() for index in range(3))


def test_what_comes_back_waits_for_its_own_predecessor() -> None:
    world = started("0-1", {"worker-1-1": Script(stops_after_seconds=20)})
    world.allocate(COORDINATOR, slots("0"), reason="Preempted")
    world.settle()
    world.allocate(COORDINATOR, slots("0-1"), reason="Grown")
    world.advance(10)
    assert "worker-1-2" not in world.tasks()
    world.advance(15)
    assert world.tasks()["worker-1-2"] == "Running"


def test_it_has_succeeded_when_its_workers_have() -> None:
    world = started("0-1", {f"worker-{index}-1": Script(5 + index) for index in range(2)})
    world.advance(30)
    status = world.job.status
    assert (status.phase, status.exit_code) == ("Succeeded", 0)
    assert status.decided_by.endswith("worker-1-1")
    assert world.tasks() == {}, "the coordinator ends with the others"
    coordinator = next(t for t in world.acknowledged if t.spec.role == "coordinator")
    assert coordinator.outcome is not None
    assert coordinator.outcome.stop_reason == "JobFinished"


def test_even_where_the_rest_may_end_by_itself() -> None:
    world = started("0", {"worker-0-1": Script(5)}, clean_up="None")
    world.advance(60)
    assert world.job.status.phase == "Succeeded"
    assert world.tasks() == {}


def test_a_coordinator_that_ends_well_leaves_the_job_to_its_workers() -> None:
    ends = {"coordinator-0-1": Script(5), "coordinator-0-2": Script(1), "worker-0-1": Script(9)}
    world = started("0", ends)
    world.advance(20)
    status = world.job.status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Succeeded", 0, 0)
    assert "j-uid-1-coordinator-0-2" in world.started, "a worker may need one again"


def test_one_that_has_said_that_all_is_over_is_not_needed_again() -> None:
    ends = {
        "coordinator-0-1": Script(5),
        "worker-0-1": Script(30),
        "worker-1-1": Script(10, exit_code=1),
    }
    world = started("0-1", ends)
    world.status(elastic=ElasticStatus(attempt=1, state="ended", message="all epochs are over"))
    world.advance(20)
    assert world.tasks() == {"worker-0-1": "Running", "worker-1-2": "Running"}
    assert world.job.status.infrastructure_failures == 0


def test_a_coordinators_death_is_the_platforms() -> None:
    """training-G5, the platform's side: it comes back at once, and no worker notices."""
    world = started("0-1", {"coordinator-0-1": Script(60, exit_code=137)}, restart=Restart(limit=0))
    world.advance(60.1)
    assert world.tasks() == {
        "coordinator-0-2": "Running", "worker-0-1": "Running", "worker-1-1": "Running",
    }  # fmt: skip
    status = world.job.status
    assert (status.failures, status.infrastructure_failures, status.attempt) == (0, 1, 1)
    assert [note.reason for note in world.notes].count("CoordinatorLost") == 1


def test_one_that_cannot_live_is_tried_again_with_patience_and_not_for_ever() -> None:
    ends = {f"coordinator-0-{n}": Script(0.1, exit_code=1) for n in range(1, 50)}
    restart = Restart(limit=0, infrastructure_limit=5)
    world = started("0", ends, restart=restart)
    world.advance(1)
    assert len([name for name in world.started if "coordinator" in name]) == 1
    world.advance(60)
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "InfrastructureLimit")
    assert (status.failures, status.infrastructure_failures) == (0, 6)
    assert len([name for name in world.started if "coordinator" in name]) == 6


def test_one_that_is_not_there_fails_the_job_at_once() -> None:
    world = started("0")
    outcome = Outcome(reason="CommandNotFound", exit_code=127, message="there is no python")
    tasks = tuple(
        msgspec.structs.replace(task, phase="Ended", outcome=outcome, ended=world.clock.now())
        if task.spec.role == "coordinator"
        else task
        for task in world.cluster.list().tasks
    )
    first = reconcile_job(Observed(world.job, tasks), world.clock.now()).actions[0]
    assert isinstance(first, PatchStatus)
    assert (first.fields["phase"], first.fields["reason"]) == ("Failed", "CommandNotFound")
    assert first.fields["exitCode"] == 127


def test_the_workers_backoff_does_not_hold_the_coordinator_back() -> None:
    ends = {"worker-0-1": Script(20, exit_code=1), "coordinator-0-1": Script(21, exit_code=137)}
    world = started("0-1", ends, restart=Restart(limit=3, backoff=Seconds(60)))
    world.advance(25)
    assert world.tasks()["coordinator-0-2"] == "Running"
    assert "worker-0-2" not in world.tasks()
    world.advance(60)
    assert world.tasks()["worker-0-2"] == "Running"


def test_a_job_all_of_whose_workers_fail_ends_failed() -> None:
    ends = {f"worker-{i}-{n}": Script(1, exit_code=3) for i in range(2) for n in range(1, 9)}
    world = started("0-1", ends, restart=Restart(limit=2))
    world.advance(120)
    status = world.job.status
    assert (status.phase, status.reason, status.exit_code) == ("Failed", "RestartLimit", 3)
    assert (status.failures, status.infrastructure_failures) == (3, 0)
    assert world.tasks() == {}


def test_the_job_may_say_itself_that_it_cannot_go_on() -> None:
    """Samples on which every worker crashes: it ends naming them, with budget left."""
    world = started("0-1", restart=Restart(limit=100))
    world.status(elastic=ElasticStatus(attempt=1, state="failed", message="samples 10-12 crash"))
    world.settle()
    status = world.job.status
    assert (status.phase, status.reason, status.message) == (
        "Failed", "TrainingFailed", "samples 10-12 crash",
    )  # fmt: skip
    world.advance(60)
    assert world.tasks() == {}
    assert world.job.status.elastic is not None, "what it said stays"


def test_what_an_earlier_attempt_said_decides_nothing() -> None:
    world = started("0")
    world.status(elastic=ElasticStatus(attempt=0, state="failed", message="long ago"))
    world.settle()
    assert world.job.status.phase == "Running"


def test_suspended_and_resumed_it_is_another_attempt() -> None:
    """Only from its first start on: what is on its way out still speaks for the one before."""
    world = started("0-1", {"worker-0-1": Script(stops_after_seconds=5)})
    world.edit(suspend=True)
    world.allocate(reason="Suspended")
    world.settle()
    assert world.job.status.attempt == 1
    world.advance(20)
    assert (world.job.status.phase, world.job.status.attempt) == ("Suspended", 1)
    world.edit(suspend=False)
    world.allocate(COORDINATOR, slots("0-1"))
    world.settle()
    assert world.job.status.attempt == 2
    assert {t.spec.attempt for t in world.cluster.list().tasks} == {2}
    assert world.tasks().keys() == {"coordinator-0-2", "worker-0-2", "worker-1-2"}


@pytest.mark.parametrize("how", ["suspend", "cancelled"])
def test_the_coordinator_goes_last(how: str) -> None:
    """Workers that have notice leave at a step boundary, which takes somebody to agree with."""
    world = started("0-1", {"worker-1-1": Script(stops_after_seconds=5)})
    world.edit(**{how: True})
    world.allocate(reason="Suspended" if how == "suspend" else "Cancelled")
    world.advance(4)
    assert world.tasks() == {"coordinator-0-1": "Running", "worker-1-1": "Terminating"}
    assert world.job.status.phase == "Running"
    world.advance(4)
    assert world.tasks() == {}
    assert world.job.status.phase == ("Suspended" if how == "suspend" else "Cancelled")


def test_a_coordinator_whose_place_is_taken_moves_at_once() -> None:
    world = started("0-1")
    world.allocate(slots("0", "n1", role="coordinator"), slots("0-1"), reason="NodeDrained")
    world.settle()
    assert world.tasks()["coordinator-0-2"] == "Running"
    assert world.tasks()["worker-0-1"] == "Running"


def test_deleted_it_goes_as_a_whole() -> None:
    world = started("0-1")
    world.delete()
    world.advance(60)
    assert world.tasks() == {}
    assert world.gone


def test_cancelled_all_of_it_ends() -> None:
    world = started("0-1")
    world.edit(cancelled=True)
    world.advance(60)
    assert (world.job.status.phase, world.tasks()) == ("Cancelled", {})


def test_without_workers_it_does_not_count_as_running() -> None:
    world = started("0", {"worker-0-1": Script(20, exit_code=1)}, restart=Restart(backoff=Seconds(30)))
    world.advance(25)
    assert world.tasks() == {"coordinator-0-1": "Running"}
    assert world.job.status.phase == "Starting"


@pytest.mark.parametrize("cut", range(6))
def test_every_prefix_of_the_actions_is_safe(cut: int) -> None:
    world = World(elastic(restart=Restart(limit=5)), lambda task: Script())
    world.allocate(COORDINATOR, slots("0-2"))
    world.turn(cut)
    world.settle()
    world.allocate(COORDINATOR, slots("0-1"), reason="Preempted")
    world.turn(cut)
    world.advance(1)
    world.allocate(COORDINATOR, slots("0-3"), reason="Grown")
    world.turn(cut)
    world.advance(1)
    assert world.tasks().keys() == {
        "coordinator-0-1", "worker-0-1", "worker-1-1", "worker-2-2", "worker-3-1",
    }  # fmt: skip
    assert world.job.status.failures == 0
