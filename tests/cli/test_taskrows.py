from __future__ import annotations

from typing import Any

from shoal.cli.taskrows import task_rows
from shoal.client.reports import TaskReport
from shoal.cluster.base import Outcome
from shoal.history.base import About, Entry
from shoal.objects.job import ArraySpec, Job, JobSpec, JobStatus, Role, RoleStatus
from shoal.objects.meta import Metadata


def _job(status: RoleStatus, *, array: str = "", finished: float = 0.0, replicas: int = 3) -> Job:
    return Job(
        metadata=Metadata(name="train"),
        spec=JobSpec(
            roles=(Role(replicas=replicas, command=("x",)),),
            array=ArraySpec(indices=array) if array else None,
        ),
        status=JobStatus(roles=(status,), finished=finished),
    )


def _task(index: int, incarnation: int, outcome: Outcome | None = None) -> TaskReport:
    return TaskReport(
        namespace="default", job="train", job_uid="u", role="worker", index=index, attempt=1,
        incarnation=incarnation, name=f"t{index}", node="n", phase="Ended" if outcome else "Running",
        started=5.0, outcome=outcome, memory_bytes=7,
    )  # fmt: skip


def test_tasks_that_run_and_those_that_wait() -> None:
    status = RoleStatus(name="worker", incarnations="1=2", nodes="0-1=n,2=gone")
    rows = task_rows(_job(status, replicas=4), [_task(0, 1), _task(1, 1), _task(1, 2)])
    assert [(r.phase, r.incarnation, r.node, r.memory_bytes) for r in rows] == [
        ("Running", 1, "n", 7),
        ("Running", 2, "n", 7),
        ("Unknown", 1, "gone", None),  # its node does not answer
        ("Waiting", 1, "", None),
    ]


def test_a_running_task_does_not_show_the_exit_code_of_the_one_before() -> None:
    status = RoleStatus(name="worker", incarnations="0=2", exit_codes="0=3", nodes="0=n")
    (row,) = task_rows(_job(status, replicas=1), [_task(0, 2)])
    assert (row.phase, row.incarnation, row.exit_code) == ("Running", 2, None)


def test_how_tasks_ended_is_remembered_by_the_status() -> None:
    status = RoleStatus(name="worker", outcomes="0=Succeeded,1=Failed", exit_codes="0=0,1=3,2=143")
    rows = task_rows(_job(status, finished=9.0), [])
    assert [(r.phase, r.exit_code) for r in rows] == [("Succeeded", 0), ("Failed", 3), ("Stopped", 143)]


def test_an_end_that_is_not_recorded_yet() -> None:
    killed = Outcome(reason="OutOfMemory", exit_code=137)
    rows = task_rows(_job(RoleStatus(name="worker"), replicas=1), [_task(0, 1, killed)])
    assert [(r.phase, r.exit_code, r.memory_bytes) for r in rows] == [("OutOfMemory", 137, None)]


def test_an_arrays_indices() -> None:
    rows = task_rows(_job(RoleStatus(name="worker"), array="2,5-6"), [])
    assert [r.index for r in rows] == [2, 5, 6]


def test_indices_left_over_from_a_larger_size_are_shown() -> None:
    rows = task_rows(_job(RoleStatus(name="worker", nodes="4=n"), replicas=1), [_task(4, 1)])
    assert [(r.index, r.phase) for r in rows] == [(0, "Waiting"), (4, "Running")]


def _entry(kind: Any, incarnation: int, **data: Any) -> Entry:
    about = About(kind="Job", namespace="default", name="train")
    data = {"role": "worker", "index": 0, "incarnation": incarnation, **data}
    return Entry(id=f"{kind}{incarnation}", type=kind, about=about, at=5.0, data=data)


def test_what_a_finished_task_used_comes_from_history() -> None:
    history = [
        _entry("attempt", 1, node="n1", started=10.0, ended=20.0, exitCode=1),
        _entry("usage", 1, cpuSeconds=1.0, peakMemoryBytes=1),
        _entry("attempt", 2, node="n2", started=30.0, ended=95.0, exitCode=0),
        _entry("usage", 2, cpuSeconds=60.0, peakMemoryBytes=2**20),
    ]
    status = RoleStatus(name="worker", outcomes="0=Succeeded", exit_codes="0=0", incarnations="0=2")
    (row,) = task_rows(_job(status, replicas=1, finished=99.0), [], history)
    assert (row.phase, row.incarnation, row.node, row.exit_code) == ("Succeeded", 2, "n2", 0)
    assert (row.started, row.ended) == (30.0, 95.0)
    assert (row.cpu_seconds, row.memory_bytes, row.peak_memory_bytes) == (60.0, None, 2**20)
