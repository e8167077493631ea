"""Jobs that wait for jobs: met, never met, deleted, and across a restart of the server."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from shoal.cluster.simulated import Script
from shoal.control.rows import job_row
from shoal.objects.job import Dependency, Job, JobSpec, Restart, Role
from shoal.objects.job_text import job_lines
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.quantities import Seconds
from shoal.objects.task import TaskSpec
from shoal.schedule.plan import Policy
from shoal.store.base import SYSTEM
from shoal.testing.plane import Plane, capacity

On = Literal["success", "failure", "end"]


def _behave(spec: TaskSpec) -> Script:
    return Script(run_seconds=5, exit_code=3 if spec.job.startswith("bad") else 0)


def _plane() -> Plane:
    return Plane({"n0": capacity(8)}, _behave)


def _job(name: str, *after: tuple[str, On], **spec: Any) -> Job:
    waits = tuple(Dependency(job=job, on=on) for job, on in after)
    role = Role(command=("x",))
    spec.setdefault("restart", Restart(policy="Never"))
    return Job(metadata=Metadata(name=name), spec=JobSpec(roles=(role,), after=waits, **spec))


def _delete(plane: Plane, name: str) -> None:
    plane.store.delete(JOB, "default", name, actor=SYSTEM)


def test_a_job_waits_for_the_success_of_another_and_is_not_offered_to_the_scheduler() -> None:
    plane = _plane()
    plane.submit(_job("prepare"))
    plane.submit(_job("train", ("prepare", "success")))
    plane.advance(3)
    train = plane.job("train")
    assert (train.status.phase, train.status.reason) == ("Pending", "Dependency")
    assert train.status.message == "it starts after job/prepare succeeds"
    assert not train.status.scheduling.code, "the scheduler has nothing to say on it"
    assert job_row(train, (), 0, Policy()) is None
    state = JOB.state(train)
    assert (state.code, state.evidence) == ("Dependency", {"after": ["job/prepare (success)"]})
    assert [column.value(train, 0.0) for column in JOB.columns if column.title == "REASON"] == [
        "Dependency"
    ]
    assert ("after", "job/prepare (success)") in job_lines(train, 0.0)
    plane.advance(10)
    assert plane.job("train").status.phase == "Succeeded"
    assert ("after", "job/prepare (success), met") in job_lines(plane.job("train"), 0.0)
    ended, began = plane.job("prepare").status.finished, plane.job("train").status.started
    assert ended <= began <= ended + 1
    assert plane.job("train").status.dependencies_met == ("prepare",)


@pytest.mark.parametrize(
    ("first", "on", "phase"),
    [
        ("good", "success", "Succeeded"),
        ("good", "failure", "Failed"),
        ("good", "end", "Succeeded"),
        ("bad", "success", "Failed"),
        ("bad", "failure", "Succeeded"),
        ("bad", "end", "Succeeded"),
    ],
)
def test_how_the_other_has_to_end(first: str, on: On, phase: str) -> None:
    plane = _plane()
    plane.submit(_job(first))
    plane.submit(_job("then", (first, on)))
    plane.advance(15)
    then = plane.job("then")
    assert then.status.phase == phase
    if phase == "Failed":
        did, wanted = ("failed", "succeeds") if first == "bad" else ("succeeded", "fails")
        said = f"job/{first} {did}, and it starts only after job/{first} {wanted}"
        assert (then.status.reason, then.status.message) == ("DependencyNeverSatisfied", said)
        assert not then.status.started


def test_a_cancelled_job_did_not_succeed() -> None:
    plane = _plane()
    plane.submit(_job("first"))
    for on in ("success", "failure", "end"):
        plane.submit(_job(on, ("first", on)))
    plane.advance(1)
    plane.edit("first", cancelled=True)
    plane.advance(60)
    assert plane.job("success").status.message.startswith("job/first was cancelled, and")
    phases = {on: plane.job(on).status.phase for on in ("success", "failure", "end")}
    assert phases == {"success": "Failed", "failure": "Succeeded", "end": "Succeeded"}


def test_what_can_never_be_met_fails_the_whole_chain() -> None:
    plane = _plane()
    plane.submit(_job("bad"))
    plane.submit(_job("b", ("bad", "success")))
    plane.submit(_job("c", ("b", "success")))
    plane.submit(_job("alarm", ("c", "failure")))
    plane.advance(20)
    assert plane.job("c").status.reason == "DependencyNeverSatisfied"
    assert plane.job("alarm").status.phase == "Succeeded"


def test_several_are_met_one_by_one_and_stay_met() -> None:
    plane = _plane()
    plane.submit(_job("a", ttl_after_finished=Seconds(0)))
    plane.submit(_job("b", ("a", "success")))
    plane.submit(_job("c", ("a", "success"), ("b", "end")))
    plane.advance(7)
    with pytest.raises(Exception, match="a"):
        plane.job("a")  # deleted, its time to live being over, and yet nothing that waited is lost
    assert plane.job("c").status.message == "it starts after job/b ends"
    plane.advance(20)
    assert plane.job("c").status.phase == "Succeeded"


def test_a_finished_job_is_kept_until_its_end_is_recorded() -> None:
    plane = _plane()
    plane.submit(_job("a"))
    plane.submit(_job("b", ("a", "success")))
    plane.advance(3)
    plane.runner.stop(0.0)  # no server while the first ends and is deleted
    plane.clock.advance(10)
    _delete(plane, "a")
    plane.restart()
    plane.advance(20)
    assert plane.job("b").status.phase in ("Succeeded", "Failed")
    # its task had ended well before the deletion was asked for, so that is what counts
    assert plane.job("b").status.phase == "Succeeded", plane.job("b").status.message


def test_a_job_that_is_deleted_before_it_ends() -> None:
    plane = _plane()
    plane.submit(_job("a"))
    plane.submit(_job("b", ("a", "success")))
    plane.submit(_job("c", ("a", "end")))
    plane.advance(1)
    _delete(plane, "a")
    plane.advance(60)
    b = plane.job("b").status
    assert (b.phase, b.reason) == ("Failed", "DependencyNeverSatisfied")
    assert b.message == "job/a was deleted before it ended, and it starts only after job/a succeeds"
    assert plane.job("c").status.phase == "Succeeded"


def test_another_job_of_the_same_name_is_not_waited_for() -> None:
    plane = _plane()
    first = plane.submit(_job("a"))
    waits = _job("b", ("a", "success"))
    annotations = {"shoal.dev/after": f"a={first.metadata.uid}"}
    metadata = msgspec.structs.replace(waits.metadata, annotations=annotations)
    plane.runner.stop(0.0)
    plane.submit(msgspec.structs.replace(waits, metadata=metadata))
    _delete(plane, "a")
    plane.submit(_job("a"))
    plane.restart()
    plane.advance(20)
    assert plane.job("a").status.phase == "Succeeded"
    assert plane.job("b").status.reason == "DependencyNeverSatisfied"


def test_a_restarted_server_goes_on_waiting() -> None:
    plane = _plane()
    plane.submit(_job("a"))
    plane.submit(_job("b", ("a", "success")))
    plane.advance(2)
    plane.restart()
    plane.advance(1)
    assert plane.job("b").status.reason == "Dependency"
    plane.advance(15)
    assert plane.job("b").status.phase == "Succeeded"


def test_a_job_that_waits_for_a_job_can_be_cancelled_and_suspended() -> None:
    plane = _plane()
    plane.submit(_job("a"))
    plane.submit(_job("b", ("a", "success")))
    plane.submit(_job("c", ("a", "success")))
    plane.advance(1)
    plane.edit("b", cancelled=True)
    plane.edit("c", suspend=True)
    plane.advance(15)
    assert plane.job("b").status.phase == "Cancelled"
    assert plane.job("c").status.phase == "Suspended"
    plane.edit("c", suspend=False)
    plane.advance(15)
    assert plane.job("c").status.phase == "Succeeded"
