from __future__ import annotations

import msgspec

from shoal.control.queue_usage import release_reason
from shoal.control.rows import form_of, job_row, node_row, priority_of, queue_row
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import (
    Allocation,
    ArraySpec,
    ElasticStatus,
    Gang,
    Job,
    JobSpec,
    JobStatus,
    Limits,
    Refusal,
    Resources,
    Role,
    RoleStatus,
    RoleTopology,
    Scheduling,
    Slots,
    Speed,
    Toleration,
    Topology,
)
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Node, NodeSpec, NodeStatus, Taint
from shoal.objects.quantities import Bytes, CpuMillis, Seconds
from shoal.objects.queue import Queue, QueueSpec, Quota
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import Form, JobRow, RoleForm, Shape
from tests.control.world import capacity


def job(*roles: Role, status: JobStatus | None = None, **spec) -> Job:
    made = JobSpec(roles=roles or (Role(),), **spec)
    return Job(metadata=Metadata(name="j", uid="u"), spec=made, status=status or JobStatus())


def minima(made: Job) -> tuple[list[int], int]:
    form = form_of(made)
    return [role.minimum for role in form.roles], form.minimum


def test_the_minimum_of_roles_and_gangs():
    assert minima(job(Role(replicas=3))) == ([3], 0)
    assert minima(job(Role(replicas=3, min_replicas=2))) == ([2], 0)
    assert minima(job(Role(replicas=3, min_replicas=9))) == ([3], 0)
    assert minima(job(Role(replicas=3), Role(name="b"), gang=Gang(min=2))) == ([0, 0], 2)
    assert minima(job(Role(replicas=3, min_replicas=1), gang=Gang(min=9))) == ([1], 3)
    array = form_of(job(array=ArraySpec(indices="4,0-2", parallelism=2)))
    assert (array.array, array.parallelism, array.roles[0].indices) == (True, 2, "0-2,4")


def test_gangs_stay_together_and_elastic_roles_are_known():
    assert form_of(job(runtime="torchrun")).whole
    assert not form_of(job(runtime="elastic")).whole
    assert form_of(job(Role(min_replicas=1))).roles[0].elastic


def test_a_shape_is_what_a_task_asks_for():
    role = Role(
        resources=Resources(cpu=CpuMillis(500), memory=Bytes(7), gpu=2),
        node_selector={"b": "2", "a": "1"},
        tolerations=(Toleration(key="k"),),
    )
    assert form_of(job(role)).roles[0].shape == Shape(
        cpu=500, memory=7, gpu=2, selector=(("a", "1"), ("b", "2")), tolerations=(Toleration(key="k"),)
    )


def test_priorities_have_names():
    assert [priority_of(value) for value in ("production", "normal", "experiment", 7, "?")] == [
        1000, 0, -1000, 7, 0,
    ]  # fmt: skip


def test_why_a_job_is_to_hold_nothing():
    assert release_reason(job()) == ""
    assert release_reason(job(suspend=True)) == "Suspended"
    assert release_reason(job(cancelled=True, suspend=True)) == "Cancelled"
    assert release_reason(job(cancelled=True, status=JobStatus(phase="Failed"))) == "Finished"
    metadata = Metadata(name="j", deleted=5.0)
    assert release_reason(msgspec.structs.replace(job(), metadata=metadata)) == "Deleted"


def test_an_ended_job_that_holds_nothing_is_no_row():
    ended = JobStatus(phase="Succeeded")
    assert job_row(job(status=ended), (), 0, Policy()) is None
    waits = msgspec.structs.replace(ended, scheduling=Scheduling(code="TooLarge"))
    assert job_row(job(status=waits), (), 0, Policy()).code == "TooLarge"
    holds = msgspec.structs.replace(
        ended, allocation=Allocation(id=3, slots=(Slots(role="worker", indices="0", node="n"),))
    )
    assert job_row(job(status=holds), (), 0, Policy()).ending == "Finished"


def test_claims_hold_what_the_allocation_no_longer_names():
    status = JobStatus(
        phase="Running",
        allocation=Allocation(id=1, slots=(Slots(role="worker", indices="0-1", node="n"),)),
        roles=(RoleStatus(name="worker", nodes="0-2=n", outcomes="2=Succeeded,7=Failed"),),
    )
    row = job_row(job(Role(replicas=9), status=status), (), 4, Policy())
    assert [(h.index, h.slot, h.claimed, h.cpu) for h in row.holds] == [
        (0, True, True, 1000),
        (1, True, True, 1000),
    ]
    assert (row.done, row.form) == ((("worker", "2,7"),), 4)
    gone = msgspec.structs.replace(status, allocation=Allocation(id=2))
    row = job_row(job(Role(replicas=9), status=gone), (), 0, Policy())
    assert [(h.index, h.slot, h.claimed) for h in row.holds] == [(0, False, True), (1, False, True)]


def test_a_refusal_is_believed_for_its_allocation_and_the_node_avoided_for_longer_each_time():
    refusal = Refusal(allocation=3, node="n", reason="OutOfCpu", message="it is full", at=100.0)
    status = JobStatus(refusal=refusal, allocation=Allocation(id=3), infrastructure_failures=1)
    row = job_row(job(status=status), (), 0, Policy())
    assert (row.refused, row.avoid, row.avoid_until) == (True, "n", 102.0)
    assert (row.avoid_reason, row.avoid_message) == ("OutOfCpu", "it is full")
    later = msgspec.structs.replace(status, allocation=Allocation(id=4), infrastructure_failures=3)
    row = job_row(job(status=later), (), 0, Policy())
    assert (row.refused, row.avoid_until) == (False, 108.0)
    often = msgspec.structs.replace(later, infrastructure_failures=90)
    assert job_row(job(status=often), (), 0, Policy()).avoid_until == 160.0


def test_nodes_and_queues():
    ready = Condition(type="Ready", status="True")
    node = Node(
        metadata=Metadata(name="n", namespace=""),
        spec=NodeSpec(unschedulable=True, lost=True, taints=(Taint(key="k"),), labels={"a": "b"}),
        status=NodeStatus(capacity=capacity(2, gpus=1), conditions=(ready,)),
    )
    row = node_row(node)
    assert (row.cpu, row.gpus, row.ready, row.schedulable, row.lost) == (
        2000,
        ("g0",),
        True,
        False,
        True,
    )
    assert not node_row(Node(metadata=Metadata(name="n", namespace=""))).ready
    queue = Queue(
        metadata=Metadata(name="q", namespace=""),
        spec=QueueSpec(
            quota=Quota(cpu=CpuMillis(5), jobs=2), highest_priority={"*": "normal", "team": "production"}
        ),
    )
    row = queue_row(queue)
    assert (row.limit, row.jobs, row.highest) == ({"cpu": 5.0}, 2, {"*": 0, "team": 1000})


def full() -> Job:
    """With everything that a row can say."""
    near = RoleTopology(required="rack", preferred="rack")
    worker = Role(
        replicas=3, min_replicas=1, topology=near, resources=Resources(gpu=1), command=("python",)
    )
    spec = JobSpec(
        roles=(worker,),
        runtime="elastic",
        queue="research",
        user="ada",
        priority="production",
        preemptible=False,
        grace_period=Seconds(7.0),
        gang=Gang(min=2),
        limits=Limits(wall_time=Seconds(60.0)),
        topology=Topology(required="rack", preferred="rack", spread="rack"),
        speed=Speed(curve=(1.0, 2.0), work=100.0, restart=Seconds(3.0)),
        cancelled=True,
    )
    slots = (Slots(role="worker", indices="0", node="n", devices=("g",)),)
    status = JobStatus(
        phase="Running",
        started=90.0,
        infrastructure_failures=2,
        allocation=Allocation(
            id=3, slots=slots, reason="TurnOver", changed=120.0, since=95.0, served=50.0
        ),
        scheduling=Scheduling(
            code="NoRoom", evidence={"a": 1}, reserved=slots, promised=300.0, place=slots
        ),
        refusal=Refusal(allocation=3, node="n", reason="OutOfCpu", message="full", at=100.0),
        roles=(RoleStatus(name="worker", nodes="0=n", outcomes="2=Succeeded"),),
        elastic=ElasticStatus(step=9, world=1),
    )
    metadata = Metadata(name="j", namespace="team", uid="u", generation=4, created=80.0)
    return Job(metadata=metadata, spec=with_coordinator(spec, "python"), status=status)


def unset(*rows: msgspec.Struct) -> set[str]:
    """What has its default in all of these."""
    default = type(rows[0])
    plain = {
        field.name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(default)
        if not field.required
    }
    return {name for name, value in plain.items() if all(getattr(row, name) == value for row in rows)}


def test_every_column_of_a_job_is_one_that_an_object_sets():
    """One that is added, and set by nobody, is found here."""
    row = job_row(full(), (), 5, Policy())
    assert row is not None
    assert unset(row) == set()
    form, array = form_of(full()), form_of(job(array=ArraySpec(indices="0-3", parallelism=2)))
    gang = form_of(job(Role(replicas=2), runtime="torchrun"))
    assert unset(form, array, gang) == set()
    assert unset(*form.roles, *array.roles) == set()
    assert {type(form), type(form.roles[0]), type(row)} == {Form, RoleForm, JobRow}


def test_what_a_change_costs_is_what_was_said_or_what_changes_have_cost():
    elastic = Role(replicas=3, min_replicas=1)
    waited = JobStatus(elastic=ElasticStatus(recoveries=4, recovery_seconds=6.0))
    said = job(elastic, status=waited, runtime="elastic", speed=Speed(restart=Seconds(3.0)))
    assert job_row(said, (), 0, Policy()).restart_seconds == 3.0
    seen = job(elastic, status=waited, runtime="elastic", speed=Speed(application="a"))
    assert job_row(seen, (), 0, Policy()).restart_seconds == 1.5
    never = job(elastic, status=JobStatus(elastic=ElasticStatus()), runtime="elastic")
    assert job_row(never, (), 0, Policy()).restart_seconds == 0.0
