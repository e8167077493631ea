"""The life of a job, decided in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.cluster.base import Outcome, Refusal
from shoal.cluster.simulated import Script, run_for
from shoal.control.job.actions import AddFinalizer
from shoal.control.job.observe import Observed
from shoal.control.job.reconcile import reconcile_job
from shoal.objects.job import (
    Allocation,
    ArraySpec,
    Job,
    JobSpec,
    JobStatus,
    Limits,
    Resources,
    Restart,
    RestartRule,
    Role,
    Success,
)
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity
from shoal.objects.quantities import CpuMillis, Seconds
from shoal.objects.task import TaskSpec

from .world import World, gang, slots

QUICK = Restart(backoff=Seconds(0))


def by_incarnation(**exits: int):
    """Tasks named `i<index>n<incarnation>` end after a second with that code; others run for ever."""

    def behave(spec: TaskSpec) -> Script:
        code = exits.get(f"i{spec.index}n{spec.incarnation}")
        return Script() if code is None else Script(run_seconds=1.0, exit_code=code)

    return behave


def array(indices: str, **fields: Any) -> JobSpec:
    return JobSpec(roles=(Role(command=("x",)),), array=ArraySpec(indices=indices), **fields)


def test_nothing_starts_without_the_finalizer():
    job = Job(metadata=Metadata(name="j", uid="u", generation=1), spec=gang())
    assert reconcile_job(Observed(job, ()), 0.0).actions == ()
    allocation = Allocation(id=1, slots=(slots("0-2"),))
    placed = msgspec.structs.replace(job, status=JobStatus(allocation=allocation))
    assert reconcile_job(Observed(placed, ()), 0.0).actions == (AddFinalizer(),)


def test_a_job_without_slots_is_pending_and_is_not_written_to():
    world = World(gang(), run_for(1))
    world.settle()
    assert world.job.status.phase == "Pending"
    assert world.job.status.observed_generation == 0


def test_a_gang_starts_runs_and_succeeds():
    world = World(gang(), run_for(5))
    world.allocate(slots("0-1"), slots("2", "n1"))
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Running", 1)
    assert world.job.status.roles[0].running == 3
    world.advance(5)
    status = world.job.status
    assert (status.phase, status.exit_code, status.attempt, status.failures) == ("Succeeded", 0, 1, 0)
    assert status.roles[0].succeeded == 3
    assert not world.tasks()


def test_a_failed_gang_burns_one_however_many_tasks_fall():
    world = World(gang(restart=QUICK), by_incarnation(i0n1=1, i1n1=1, i2n1=1, i0n2=0, i1n2=0, i2n2=0))
    world.allocate(slots("0-2"))
    world.advance(10)
    status = world.job.status
    assert (status.phase, status.failures, status.attempt) == ("Succeeded", 1, 2)
    assert status.roles[0].incarnations == "0-2=2"


def test_the_peers_of_a_failed_task_are_stopped_before_the_gang_starts_again():
    world = World(gang(restart=QUICK), by_incarnation(i1n1=7))
    world.allocate(slots("0-2"))
    world.advance(3)
    assert world.tasks() == {"worker-0-2": "Running", "worker-1-2": "Running", "worker-2-2": "Running"}
    stops = {t.spec.index: t.outcome.stop_reason for t in world.acknowledged if t.outcome}
    assert stops == {0: "GangRestart", 1: None, 2: "GangRestart"}
    assert world.job.status.roles[0].exit_codes.startswith("1=7")


def test_the_budget_is_exact():
    world = World(gang(1, restart=Restart(limit=2, backoff=Seconds(0))), run_for(1, exit_code=9))
    world.allocate(slots("0"))
    world.advance(20)
    status = world.job.status
    assert (status.phase, status.reason, status.failures) == ("Failed", "RestartLimit", 3)
    assert (status.exit_code, status.attempt, len(world.started)) == (9, 3, 3)


def test_backoff_doubles():
    world = World(gang(1, restart=Restart(limit=3, backoff=Seconds(10))), run_for(1, exit_code=9))
    world.allocate(slots("0"))
    world.advance(200)
    starts = [t.started - 1_000_000 for t in world.acknowledged]
    assert [round(s) for s in starts] == [0, 11, 32, 73]


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Succeeded")])
def test_restart_policy(policy: Any, phase: str):
    world = World(gang(1, restart=Restart(policy=policy)), by_incarnation(i0n1=1, i0n2=0))
    world.allocate(slots("0"))
    world.advance(20)
    assert world.job.status.phase == phase


def test_always_restarts_after_success_and_burns_nothing():
    spec = gang(1, restart=Restart(policy="Always", limit=0, backoff=Seconds(1)))
    world = World(spec, run_for(1))
    world.allocate(slots("0"))
    world.advance(7)
    assert world.job.status.phase in ("Running", "Starting")
    assert world.job.status.failures == 0
    assert len(world.started) >= 3


@pytest.mark.parametrize(
    ("action", "phase", "failures"), [("Fail", "Failed", 1), ("Ignore", "Succeeded", 0)]
)
def test_rules_decide_by_exit_code(action: Any, phase: str, failures: int):
    rule = RestartRule(exit_codes=(42,), action=action)
    restart = Restart(limit=0, backoff=Seconds(0), rules=(rule,))
    world = World(gang(1, restart=restart), by_incarnation(i0n1=42, i0n2=0))
    world.allocate(slots("0"))
    world.advance(5)
    assert (world.job.status.phase, world.job.status.failures) == (phase, failures)


def test_a_roles_own_rule_comes_first():
    mine = RestartRule(exit_codes=(42,), action="Ignore")
    general = RestartRule(exit_codes=(42,), action="Fail")
    role = Role(command=("x",), restart_rules=(mine,))
    spec = JobSpec(roles=(role,), restart=Restart(rules=(general,), backoff=Seconds(0)))
    world = World(spec, by_incarnation(i0n1=42, i0n2=0))
    world.allocate(slots("0"))
    world.advance(5)
    assert world.job.status.phase == "Succeeded"


def test_a_single_task_restarts_alone_in_task_scope():
    world = World(gang(3, runtime="elastic", restart=QUICK), by_incarnation(i1n1=1))
    world.allocate(slots("0-2"))
    world.advance(3)
    assert world.tasks() == {"worker-0-1": "Running", "worker-1-2": "Running", "worker-2-1": "Running"}
    assert (world.job.status.attempt, world.job.status.failures) == (1, 1)


def test_a_lost_supervisor_burns_the_infrastructures_budget():
    world = World(gang(2, restart=Restart(limit=0)), run_for(None))
    world.allocate(slots("0-1"))
    world.settle()
    world.cluster.lose_supervisor(world.cluster.list().tasks[0].spec.key)
    world.advance(5)
    status = world.job.status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Running", 0, 1)
    assert status.roles[0].incarnations == "0-1=2"


def test_the_infrastructures_budget_ends_too():
    world = World(gang(1, restart=Restart(infrastructure_limit=1)), run_for(None))
    world.allocate(slots("0"))
    for _ in range(2):
        world.advance(60)
        world.cluster.lose_supervisor(world.cluster.list().tasks[0].spec.key)
    world.advance(60)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "InfrastructureLimit")


def test_a_preempted_gang_is_pending_again_and_burns_nothing():
    world = World(gang(2, restart=Restart(limit=0)), run_for(None))
    world.allocate(slots("0-1"))
    world.settle()
    world.allocate(reason="Preempted")
    world.advance(1)
    status = world.job.status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Pending", 0, 0)
    assert {t.outcome.stop_reason for t in world.acknowledged if t.outcome} == {"Preempted"}
    world.allocate(slots("0-1", "n1"))
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Running", 2)


def test_a_slot_taken_from_an_elastic_job_stops_one_task():
    world = World(gang(3, runtime="elastic"), run_for(None))
    world.allocate(slots("0-2"))
    world.settle()
    world.allocate(slots("0-1"), reason="Shrunk")
    world.advance(1)
    assert sorted(world.tasks()) == ["worker-0-1", "worker-1-1"]
    world.allocate(slots("0-2"), reason="Grown")
    world.advance(1)
    assert sorted(world.tasks()) == ["worker-0-1", "worker-1-1", "worker-2-2"]
    assert world.job.status.attempt == 1


def test_a_fixed_gang_resizes_by_a_new_attempt():
    world = World(gang(3), run_for(None))
    world.allocate(slots("0-1"))
    world.settle()
    world.allocate(slots("0-2"), reason="Grown")
    world.advance(1)
    assert sorted(world.tasks()) == ["worker-0-2", "worker-1-2", "worker-2-1"]
    assert (world.job.status.attempt, world.job.status.failures) == (2, 0)


def test_a_refused_placement_waits_for_the_scheduler_and_spares_the_users_budget():
    world = World(gang(1, restart=Restart(limit=0)), run_for(1))
    world.allocate(slots("0", "nowhere"))
    world.settle()
    refusal = world.job.status.refusal
    assert refusal is not None
    assert (refusal.node, refusal.allocation) == ("nowhere", 1)
    assert not world.started
    world.allocate(slots("0"))
    world.advance(3)
    status = world.job.status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Succeeded", 0, 1)


def test_isolations_that_a_node_lacks_are_named_once():
    world = World(gang(2), run_for(5))
    world.allocate(slots("0-1"))
    world.settle()
    for node in world.cluster._nodes.values():
        for running in node.tasks.values():
            lacking = ("memory: no control group can be had for it", "pids: nor for this")
            running.task = msgspec.structs.replace(running.task, unenforced=lacking)
    world.advance(3)
    world.advance(1)
    (note,) = [note for note in world.notes if note.reason == "IsolationMissing"]
    assert note.warning
    assert "memory: no control group" in note.message
    (condition,) = [c for c in world.job.status.conditions if c.type == "IsolationMissing"]
    assert (condition.status, "pids" in condition.message) == ("True", True)


def refusals(reason: str, count: int, limit: int) -> list[int]:
    """The infrastructure's failures after each of so many placements that node n0 refuses."""
    world = World(gang(1, restart=Restart(infrastructure_limit=limit)), run_for(None))
    refusal = Refusal(node="n0", reason=reason, message=f"node n0 refuses it: {reason}")
    world.cluster.ensure = lambda group: [world.cluster.refuse(spec, refusal) for spec in group]
    counts: list[int] = []
    for _ in range(count):
        world.allocate(slots("0"))
        world.advance(40.0)
        counts.append(world.job.status.infrastructure_failures)
        if world.job.status.finished:
            assert world.job.status.reason == "InfrastructureLimit"
            break
    return counts


def test_what_the_cluster_cannot_run_fails_the_job_with_the_clusters_sentence():
    world = World(gang(1), run_for(None))
    refusal = Refusal(node="n0", reason="Unsupported", message="role worker asks for an image")
    world.cluster.ensure = lambda group: [world.cluster.refuse(spec, refusal) for spec in group]
    world.allocate(slots("0"))
    world.advance(1.0)
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "Unsupported")
    assert (status.message, status.failures) == (refusal.message, 0)


def test_a_job_without_ports_waits_ever_longer_and_never_fails():
    assert refusals("PortTaken", 9, limit=0) == [1, 2, 3, 4, 5, 6, 6, 6, 6]
    assert refusals("OutOfCpu", 9, limit=3) == [1, 2, 3, 4]


def test_cancel_stops_and_ends_once_all_are_gone():
    world = World(
        gang(2, grace_period=Seconds(5)),
        lambda spec: Script(stops_after_seconds=None if spec.index else 0.0),
    )
    world.allocate(slots("0-1"))
    world.settle()
    world.edit(cancelled=True)
    world.advance(4)
    assert world.job.status.phase == "Running"
    world.advance(2)
    status = world.job.status
    assert (status.phase, status.attempt, status.failures) == ("Cancelled", 1, 0)
    assert {t.outcome.exit_code for t in world.acknowledged if t.outcome} == {143, 137}


def test_cancel_of_a_waiting_job_is_at_once():
    world = World(gang(), run_for(1))
    world.edit(cancelled=True)
    world.settle()
    assert world.job.status.phase == "Cancelled"


def test_success_beats_a_cancel_that_comes_too_late():
    world = World(gang(1), run_for(1))
    world.allocate(slots("0"))
    world.settle()
    world.clock.advance(1.5)
    world.edit(cancelled=True)
    world.settle()
    assert world.job.status.phase == "Succeeded"


def test_suspend_and_resume():
    world = World(gang(2), run_for(None))
    world.allocate(slots("0-1"))
    world.settle()
    world.edit(suspend=True)
    world.advance(1)
    assert world.job.status.phase == "Suspended"
    assert not world.tasks()
    world.edit(suspend=False)
    world.settle()
    assert (world.job.status.phase, world.job.status.attempt) == ("Running", 2)


def test_wall_time_ends_the_job():
    world = World(gang(2, limits=Limits(wall_time=Seconds(10))), run_for(None))
    world.allocate(slots("0-1"))
    world.advance(9)
    assert world.job.status.phase == "Running"
    world.advance(2)
    assert (world.job.status.phase, world.job.status.reason) == ("Failed", "WallTimeExceeded")
    assert {t.outcome.stop_reason for t in world.acknowledged if t.outcome} == {"WallTime"}


def test_an_array_counts_each_index_apart():
    spec = array("0-3", restart=Restart(limit=1, backoff=Seconds(0)))
    world = World(spec, by_incarnation(i0n1=0, i1n1=1, i1n2=0, i2n1=1, i2n2=1, i3n1=0))
    world.allocate(slots("0-3"))
    world.advance(10)
    status = world.job.status
    assert (status.phase, status.reason, status.exit_code) == ("Failed", "IndicesFailed", 1)
    role = status.roles[0]
    assert role.outcomes == "0-1=Succeeded,2=Failed,3=Succeeded"
    assert role.failures == "1=1,2=2"
    assert status.failures == 3


def test_an_array_runs_what_has_slots():
    world = World(array("0-9"), run_for(1))
    for first in range(0, 10, 2):
        world.allocate(slots(f"{first}-{first + 1}"))
        world.advance(2)
    assert world.job.status.phase == "Succeeded"
    assert len(world.started) == 10


@pytest.mark.parametrize(
    ("success", "decider"),
    [(Success(role="chief"), "chief"), (Success(role="worker", policy="First"), "worker")],
)
def test_the_success_rule_names_the_role_that_decides(success: Success, decider: str):
    roles = (Role(name="chief", command=("x",)), Role(name="worker", replicas=2, command=("x",)))

    def behave(spec: TaskSpec) -> Script:
        ends = spec.role == decider and spec.index == 0
        return Script(run_seconds=1.0 if ends else None)

    world = World(JobSpec(roles=roles, success=success), behave)
    world.allocate(slots("0", role="chief"), slots("0-1"))
    world.advance(3)
    assert world.job.status.phase == "Succeeded"
    assert not world.tasks()


def test_any_success_is_enough_when_the_rule_says_so():
    world = World(gang(3, success=Success(policy="Any")), by_incarnation(i2n1=0))
    world.allocate(slots("0-2"))
    world.advance(3)
    assert world.job.status.phase == "Succeeded"


def test_clean_up_none_lets_the_rest_end_by_itself():
    def behave(spec: TaskSpec) -> Script:
        return Script(run_seconds=1.0 if spec.index == 0 else 10.0)

    world = World(gang(2, success=Success(policy="First"), clean_up="None"), behave)
    world.allocate(slots("0-1"))
    world.advance(3)
    assert world.job.status.phase == "Succeeded"
    assert world.tasks() == {"worker-1-1": "Running"}
    world.advance(10)
    assert not world.tasks()


def test_clean_up_all_removes_the_outputs():
    world = World(gang(1, clean_up="All"), run_for(1))
    world.allocate(slots("0"))
    world.advance(3)
    assert ("uid-1", True) in world.cluster.forgotten


def test_time_to_live_deletes_the_finished_job():
    world = World(gang(1, ttl_after_finished=Seconds(60)), run_for(1))
    world.allocate(slots("0"))
    world.advance(50)
    assert not world.gone
    world.advance(20)
    assert world.gone


def test_a_deleted_job_goes_once_its_tasks_are_gone():
    world = World(gang(2), lambda _: Script(stops_after_seconds=3.0))
    world.allocate(slots("0-1"))
    world.settle()
    world.delete()
    world.advance(2)
    assert not world.gone
    world.advance(2)
    assert world.gone
    assert world.cluster.forgotten == [("uid-1", False)]


def test_nothing_is_concluded_about_a_silent_node():
    world = World(gang(2, restart=Restart(limit=0)), by_incarnation(i0n1=1))
    world.allocate(slots("0"), slots("1", "n1"))
    world.settle()
    world.cluster.silence("n1")
    world.advance(5)
    status = world.job.status
    assert (status.phase, status.reason) == ("Starting", "WaitingForNode")
    assert status.failures == 0
    world.cluster.silence("n1", False)
    world.advance(5)
    assert (world.job.status.phase, world.job.status.failures) == ("Failed", 1)


def test_the_echo_of_a_lost_node_burns_no_user_budget():
    world = World(gang(2, restart=Restart(limit=0)), by_incarnation(i0n1=1))
    world.allocate(slots("0"), slots("1", "n1"))
    world.settle()
    world.cluster.silence("n1")
    world.advance(5)
    world.lost = frozenset({"n1"})
    world.allocate(slots("0-1"), reason="NodeLost")
    world.advance(5)
    status = world.job.status
    assert (status.phase, status.failures, status.infrastructure_failures) == ("Running", 0, 1)
    assert sorted(world.tasks()) == ["worker-0-2", "worker-1-2"]


def test_lost_nodes_end_the_infrastructures_budget_too():
    world = World(gang(2, restart=Restart(infrastructure_limit=0)), run_for(None))
    world.allocate(slots("0"), slots("1", "n1"))
    world.settle()
    world.cluster.silence("n1")
    world.lost = frozenset({"n1"})
    world.advance(5)
    status = world.job.status
    assert (status.phase, status.reason) == ("Failed", "InfrastructureLimit")
    assert "n1" in status.message


def test_a_gang_that_comes_to_its_end_ends_though_more_was_asked_for():
    """The scheduler gives it no more, so nobody may wait for more."""
    world = World(gang(2), by_incarnation(i0n1=0))
    world.allocate(slots("0-1"))
    world.advance(2)
    assert world.job.status.roles[0].outcomes == "0=Succeeded"
    world.edit(roles=(msgspec.structs.replace(world.job.spec.roles[0], replicas=4),))
    (left,) = (task for task in world.cluster.list().tasks if task.phase == "Running")
    world.cluster.end(left.spec.key, Outcome(reason="Exited", exit_code=0))
    world.advance(2)
    assert (world.job.status.phase, world.job.status.attempt) == ("Succeeded", 1)


def test_an_elastic_job_that_is_suspended_at_its_end_has_not_succeeded():
    elastic = Role(replicas=2, min_replicas=1, command=("x",))
    spec = msgspec.structs.replace(gang(2, runtime="elastic"), roles=(elastic,))
    world = World(spec, by_incarnation(i0n1=0))
    world.allocate(slots("0-1"))
    world.advance(2)
    assert world.job.status.roles[0].outcomes == "0=Succeeded"
    world.edit(suspend=True)
    world.allocate()
    world.advance(2)
    assert world.job.status.phase == "Suspended"


@pytest.mark.parametrize("cut_after", [1, 2, 3, 4])
@pytest.mark.parametrize("scope", ["Gang", "Task"])
def test_every_prefix_of_the_actions_is_safe(cut_after: int, scope: Any):
    """Die after so many actions of each pass, then go on: same end, same counters, nothing twice."""
    spec = gang(2, restart=Restart(scope=scope, limit=3, backoff=Seconds(0)))
    behave = by_incarnation(i0n1=1, i0n2=0, i1n1=0, i1n2=0)
    world = World(spec, behave)
    world.allocate(slots("0"), slots("1", "n1"))
    for _ in range(60):
        world.turn(cut_after)
        world.turn()
        world.clock.advance(0.3)
    status = world.job.status
    assert (status.phase, status.failures) == ("Succeeded", 1)
    assert status.roles[0].incarnations == ("0-1=2" if scope == "Gang" else "0=2")
    assert not world.tasks()


@pytest.mark.parametrize("names", [("launcher", "worker"), ("worker",)])
def test_mpiruns_exit_decides_an_mpi_job(names: tuple[str, ...]):
    roles = tuple(
        Role(name=name, replicas=1 if name == "launcher" else 2, command=("x",)) for name in names
    )

    def behave(spec: TaskSpec) -> Script:
        return Script(run_seconds=1.0 if (spec.role, spec.index) == (names[0], 0) else None)

    world = World(JobSpec(roles=roles, runtime="mpi"), behave)
    world.allocate(*(slots("0" if n == "launcher" else "0-1", role=n) for n in names))
    world.advance(3)
    assert world.job.status.phase == "Succeeded"


def test_tensorflows_tasks_restart_alone_but_change_size_together():
    world = World(gang(3, runtime="tensorflow", restart=QUICK), by_incarnation(i1n1=1))
    world.allocate(slots("0-1"))
    world.advance(3)
    assert sorted(world.tasks()) == ["worker-0-1", "worker-1-2"]
    assert world.job.status.attempt == 1
    world.allocate(slots("0-2"), reason="Grown")
    world.advance(3)
    assert sorted(world.tasks()) == ["worker-0-2", "worker-1-3", "worker-2-1"]
    assert (world.job.status.attempt, world.job.status.failures) == (2, 1)


def test_giving_up_slots_is_told():
    world = World(gang(2), run_for(None))
    world.allocate(slots("0-1"))
    world.settle()
    world.allocate(reason="NodeDrained")
    world.advance(1)
    said = [(note.reason, note.message) for note in world.notes]
    assert ("NodeDrained", "2 tasks (2 cpu) give up their places") in said


def crashing(*crashes: int, after: float = 1.0):
    """The workers with these indices fail after that time, whenever they run; others run for ever."""
    return lambda spec: Script(run_seconds=after, exit_code=1) if spec.index in crashes else Script()


ELASTIC = JobSpec(
    runtime="elastic",
    roles=(Role(replicas=2, min_replicas=1, command=("x",)),),
    restart=Restart(limit=100, backoff=Seconds(4)),
)


def starts(world: World, index: int) -> int:
    return sum(name.startswith(f"j-uid-1-worker-{index}-") for name in world.started)


def test_a_crash_does_not_hold_back_the_restart_of_another_task():
    """Worker 0 dies again and again; worker 1, which died once, restarts after its own first backoff."""
    world = World(
        ELASTIC,
        lambda spec: (
            Script(run_seconds=3.0, exit_code=1)
            if spec.index == 0 or spec.incarnation == 1
            else Script()
        ),
    )
    world.allocate(slots("0-1"))
    world.advance(3.5)
    assert (starts(world, 0), starts(world, 1)) == (1, 1)
    world.advance(4.0)  # both restart after 4 s, and worker 0 crashes once more soon after
    assert (starts(world, 0), starts(world, 1)) == (2, 2)
    world.advance(5.0)
    assert world.tasks()["worker-1-2"] == "Running"


def test_the_backoff_of_a_task_is_bounded():
    world = World(ELASTIC, crashing(0))
    world.allocate(slots("0-1"))
    world.advance(600.0)
    before = starts(world, 0)
    world.advance(62.0)
    assert starts(world, 0) >= before + 1, "at most a minute between two starts"


def test_the_backoff_of_a_task_begins_anew_after_progress():
    world = World(ELASTIC, crashing(0, after=100.0))
    world.allocate(slots("0-1"))
    world.advance(510.0)
    assert starts(world, 0) == 5, "each ran for 100 s, so each wait is the first one: 4 s"
    assert world.job.status.roles[0].crashes == "0=1"


def test_restarts_are_counted_not_failures():
    world = World(gang(restart=QUICK), by_incarnation(i0n1=1))
    world.allocate(slots("0-2"))
    assert world.job.status.restarts == 0
    world.advance(2.0)
    assert (world.job.status.failures, world.job.status.restarts) == (1, 1)


def test_a_refused_group_is_placed_again_under_other_names():
    """A refusal counts once, though the pass that recorded it was cut before the acknowledgement."""
    world = World(gang(), run_for(None))
    world.cluster.declare("n0", foreign=Capacity(cpu=CpuMillis(8000)))
    roles = (Role(replicas=3, command=("x",), resources=Resources(cpu=CpuMillis(1000))),)
    world.edit(roles=roles)
    world.allocate(slots("0-2"))
    for _ in range(4):
        world.turn(cut_after=2)
    status = world.job.status
    assert status.refusal is not None
    assert (status.refusal.node, status.refusal.reason) == ("n0", "OutOfCpu")
    assert status.infrastructure_failures == 1
    world.allocate(slots("0-2", "n1"))
    world.settle()
    assert world.job.status.phase == "Running"
    assert set(world.tasks()) == {f"worker-{index}-2" for index in range(3)}
    assert world.job.status.restarts == 0


def test_a_gang_is_bootstrapped_once_all_its_endpoints_are_known():
    """Admission of one task takes 5 s, its endpoint 3 s more: no task runs before, no thread waits."""
    slow = Script(admit_seconds=5.0, endpoint_seconds=3.0)
    world = World(gang(), lambda spec: slow if spec.index == 1 else Script())
    world.allocate(slots("0-1"), slots("2", "n1"))
    world.settle()
    assert set(world.tasks().values()) == {"Pending"}
    world.advance(6.0)
    assert set(world.tasks().values()) == {"Admitted"}
    world.advance(3.0)
    assert set(world.tasks().values()) == {"Running"}
