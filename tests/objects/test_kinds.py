"""The registry of kinds and what their tables show."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from shoal.objects import kinds
from shoal.objects.columns import age
from shoal.objects.errors import NotFound
from shoal.objects.job import (
    Allocation,
    Job,
    JobSpec,
    JobStatus,
    Limits,
    Role,
    RoleStatus,
    Scheduling,
    Slots,
)
from shoal.objects.kinds import JOB, KINDS, NODE, QUEUE, Kind, kind_named, kind_of
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Capacity, Node, NodeSpec, NodeStatus, Taint
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueSpec, QueueStatus, Quota


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("job", JOB), ("Jobs", JOB), ("j", JOB), ("SJOB", JOB), ("jobs.shoal.dev", JOB),
        ("queue", QUEUE), ("queues", QUEUE), ("Q", QUEUE),
        ("node", NODE), ("Nodes", NODE), ("no", NODE),
    ],
)  # fmt: skip
def test_singular_plural_and_aliases_in_any_case(word: str, kind: Kind) -> None:
    assert kind_named(word) is kind


def test_two_kinds_of_one_word_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Kind(name="Jig", plural="jigs", aliases=("j",), struct=Job)
    monkeypatch.setattr(kinds, "KINDS", {"Job": JOB, "Jig": twin})
    with pytest.raises(ValueError, match="the kinds Job and Jig are both called j"):
        kinds._words()  # pyright: ignore[reportPrivateUsage]


def test_an_unknown_kind_names_the_nearest_or_all() -> None:
    with pytest.raises(NotFound) as near:
        kind_named("jbos")
    assert near.value.hint == "did you mean jobs?"
    with pytest.raises(NotFound) as far:
        kind_named("xyzzy")
    assert far.value.hint == "the kinds are jobs, queues, nodes, experiments, trials"


def test_each_struct_carries_its_kinds_name_and_every_status_field_has_one_writer() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind.struct.__struct_defaults__[-1] == name
        named = [field for fields in kind.status_writers.values() for field in fields]
        assert len(named) == len(set(named))
        assert "*" in named
        assert kind_of(kind.struct) is kind
    with pytest.raises(NotFound):
        kind_of(object)  # type: ignore[arg-type]


def test_a_waiting_jobs_row_says_why() -> None:
    job = Job(
        metadata=Metadata(name="a", created=100.0),
        spec=JobSpec(roles=(Role(replicas=3),), priority=1000, limits=Limits()),
        status=JobStatus(scheduling=Scheduling(code="Limit", message="the queue is full")),
    )
    row = {column.title: column.value(job, 130.0) for column in JOB.columns}
    assert row["NAME"] == "a"
    assert row["PHASE"] == "Pending"
    assert row["TASKS"] == "0/3"
    assert row["PRIORITY"] == "production"
    assert row["AGE"] == "30s"
    assert row["REASON"] == "Limit"
    assert row["MESSAGE"] == "the queue is full"


def test_a_running_jobs_row() -> None:
    job = Job(
        metadata=Metadata(name="a", created=100.0, submitter="ann"),
        spec=JobSpec(roles=(Role(replicas=3),), priority=7),
        status=JobStatus(
            phase="Running",
            failures=1,
            infrastructure_failures=1,
            roles=(RoleStatus(name="worker", running=2, incarnations="0-1=1,2=3"),),
            started=110.0,
            restarts=2,
            conditions=(Condition(type="Resizing", status="True"),),
            allocation=Allocation(slots=(Slots(role="worker", indices="0-1", node="n0"),)),
        ),
    )
    row = {column.title: column.value(job, 130.0) for column in JOB.columns}
    assert row["PHASE"] == "Resizing"
    assert row["TASKS"] == "2/3"
    assert row["PRIORITY"] == "7"
    assert row["RESTARTS"] == "2"
    assert (row["AGE"], row["ELAPSED"]) == ("30s", "20s")
    assert row["NODES"] == "n0"
    assert row["SUBMITTER"] == "ann"
    assert row["EXIT"] == "-"


def row_of(phase: str = "Running", runtime: str = "plain", **fields: Any) -> dict[str, str]:
    spec = {name: fields.pop(name) for name in ("cancelled", "suspend") if name in fields}
    job = Job(
        metadata=Metadata(name="a", created=100.0),
        spec=JobSpec(roles=(Role(replicas=2),), runtime=runtime, **spec),  # type: ignore[arg-type]
        status=JobStatus(phase=phase, **fields),  # type: ignore[arg-type]
    )
    return {column.title: column.value(job, 200.0) for column in JOB.columns}


@pytest.mark.parametrize(
    ("fields", "restarts"),
    [
        ({"failures": 1, "phase": "Failed"}, "0"),  # it failed, and was never started again
        ({"attempt": 1, "runtime": "torchrun"}, "0"),
        ({"attempt": 3, "failures": 2, "restarts": 2, "runtime": "torchrun"}, "2"),
        ({"roles": (RoleStatus(name="worker", incarnations="0-1=1"),)}, "0"),
        ({"restarts": 1, "roles": (RoleStatus(name="worker", incarnations="0=1,1=2"),)}, "1"),
    ],
)
def test_restarts_are_starts_after_the_first(fields: dict[str, Any], restarts: str) -> None:
    assert row_of(**fields)["RESTARTS"] == restarts


def test_a_job_that_is_being_stopped_says_so() -> None:
    assert row_of(cancelled=True)["PHASE"] == "Cancelling"
    assert row_of(suspend=True)["PHASE"] == "Suspending"
    assert row_of("Suspended", suspend=True)["PHASE"] == "Suspended"
    assert row_of("Succeeded", cancelled=True)["PHASE"] == "Succeeded"


def test_explain_says_why_a_cancelled_job_still_runs() -> None:
    slots = Allocation(slots=(Slots(role="worker", indices="0", node="n0"),))
    job = Job(
        metadata=Metadata(name="a"),
        spec=JobSpec(roles=(Role(),), cancelled=True),
        status=JobStatus(phase="Running", allocation=slots),
    )
    state = JOB.state(job)
    assert state.phase == "Cancelling"
    assert state.message == "its tasks have been asked to stop, and are killed after 30s"


def test_elapsed_ends_with_the_job() -> None:
    assert row_of(started=150.0)["ELAPSED"] == "50s"
    assert row_of("Succeeded", started=150.0, finished=160.0)["ELAPSED"] == "10s"
    assert row_of("Pending")["ELAPSED"] == "-"


def test_rows_of_queue_and_node() -> None:
    queue = Queue(
        metadata=Metadata(name="q"),
        spec=QueueSpec(quota=Quota(cpu=CpuMillis(4000)), namespaces=("a", "b")),
        status=QueueStatus(pending=2, running=1),
    )
    row = {column.title: column.value(queue, 0.0) for column in QUEUE.columns}
    assert row["CPU"] == "0/4"
    assert row["RUNNING"] == "1"
    assert row["NAMESPACES"] == "a,b"
    node = Node(
        metadata=Metadata(name="n"),
        spec=NodeSpec(
            unschedulable=True, taints=(Taint(key="k", value="v"),), labels={"b": "1", "a": "2"}
        ),
        status=NodeStatus(
            capacity=Capacity(cpu=CpuMillis(1500), memory=Bytes(16_777_000_000), gpus=("0", "1")),
            conditions=(Condition(type="Ready", status="True"),),
        ),
    )
    row = {column.title: column.value(node, 0.0) for column in NODE.columns}
    assert row["STATUS"] == "Ready,Cordoned"
    assert (row["CPU"], row["MEMORY"], row["GPU"]) == ("1500m", "15.62Gi", "2")
    assert row["TAINTS"] == "k=v:NoSchedule"
    assert row["LABELS"] == "a=2,b=1"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (700, "11m"),
        (10_800, "3h"),
        (10**6, "11d"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    assert age(1000.0, 1000.0 + seconds) == text
    assert age(0.0, 5.0) == "-"


def test_importing_the_kinds_stays_light() -> None:
    heavy = "yaml numpy sqlalchemy fastapi pydantic click rich asyncio difflib shoal.objects.validate"
    modules = "sys, shoal.objects.kinds, shoal.objects.codec"
    code = f"import {modules}; print([m for m in {heavy.split()} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("phase", "status", "since"),
    [
        ("Running", {"started": 10.0, "allocation": Allocation(since=500.0, changed=600.0)}, 500.0),
        ("Running", {"started": 510.0, "allocation": Allocation(since=500.0, changed=600.0)}, 510.0),
        ("Suspended", {"started": 10.0, "allocation": Allocation(changed=700.0)}, 700.0),
        ("Suspended", {}, 5.0),
        ("Pending", {"started": 10.0, "allocation": Allocation(changed=800.0)}, 800.0),
        ("Failed", {"started": 10.0, "finished": 900.0}, 900.0),
    ],
)
def test_since_when_a_job_is_in_its_phase(phase: Any, status: dict[str, Any], since: float) -> None:
    job = Job(
        metadata=Metadata(name="x", created=5.0),
        spec=JobSpec(roles=(Role(command=("x",)),)),
        status=JobStatus(phase=phase, **status),
    )
    assert JOB.state(job).since == since


def test_since_when_a_node_is_lost_is_not_made_up() -> None:
    conditions = (Condition(type="Ready", status="False", changed=5.0),)
    node = Node(metadata=Metadata(name="n"), status=NodeStatus(conditions=conditions))
    assert NODE.state(node).since == 5.0
    assert NODE.state(msgspec.structs.replace(node, spec=NodeSpec(lost=True))).since == 0.0
