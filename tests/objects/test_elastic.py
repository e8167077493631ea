from __future__ import annotations

import msgspec
import pytest

from shoal.objects import codec
from shoal.objects.admit import admit
from shoal.objects.elastic import (
    COORDINATOR,
    coordinator_of,
    elastic_role,
    is_coordinator,
    own_roles,
    with_coordinator,
)
from shoal.objects.errors import Invalid
from shoal.objects.job import Gang, Job, JobSpec, Restart, Role, Success, Toleration
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata

WORKER = Role(
    command=("python3.12", "train.py"), replicas=4, min_replicas=1, env={"PATH": "/venv/bin"},
    working_directory="/work", node_selector={"disk": "fast"}, tolerations=(Toleration(key="spot"),),
)  # fmt: skip


def spec(*roles: Role, **fields) -> JobSpec:
    return JobSpec(**{"roles": roles or (WORKER,), "runtime": "elastic", **fields})


def admitted(given: JobSpec) -> JobSpec:
    job = Job(metadata=Metadata(name="train"), spec=given)
    made = admit(codec.builtins(job), JOB)
    assert isinstance(made, Job)
    return made.spec


def test_an_elastic_job_gets_a_coordinator_behind_its_own_roles() -> None:
    made = with_coordinator(spec(), "/server/python")
    assert own_roles(made) == (WORKER,)
    role = coordinator_of(made)
    assert role == made.roles[-1]
    assert role is not None
    assert (role.name, role.replicas, role.min_replicas) == (COORDINATOR, 1, None)
    assert role.command == ("python3.12", "-P", "-m", "shoal.elastic.coordinator", "--api")
    assert int(role.resources.cpu) == 100
    assert (role.env, role.working_directory) == (WORKER.env, "/work"), "`python` must mean the same"
    assert (role.node_selector, role.tolerations) == (WORKER.node_selector, WORKER.tolerations)
    assert with_coordinator(made, "/other/python") == made
    assert admitted(made) == made, "what was read from the platform can be given to it"


@pytest.mark.parametrize(
    ("program", "python"),
    [
        ("python", "python"),
        ("/venv/bin/python3", "/venv/bin/python3"),
        ("./venv/bin/python3.11", "./venv/bin/python3.11"),
        ("bash", "/server/python"),
        ("pythonic", "/server/python"),
        ("/opt/python/run.sh", "/server/python"),
    ],
)
def test_it_runs_under_the_jobs_own_interpreter(program: str, python: str) -> None:
    worker = msgspec.structs.replace(WORKER, command=(program, "x"))
    role = coordinator_of(with_coordinator(spec(worker), "/server/python"))
    assert role is not None
    assert role.command[0] == python


def test_other_runtimes_have_none() -> None:
    plain = spec(runtime="plain")
    assert with_coordinator(plain, "python") == plain
    mine = spec(msgspec.structs.replace(WORKER, name=COORDINATOR), runtime="plain")
    assert admitted(mine) == mine, "elsewhere the name is anybody's"
    assert not is_coordinator(mine, COORDINATOR)


def test_the_members_are_the_role_with_a_minimum() -> None:
    head = Role(name="head", command=("true",))
    assert elastic_role(spec(head, WORKER)) == WORKER
    assert elastic_role(with_coordinator(spec(head), "python")) == head


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (spec(WORKER, msgspec.structs.replace(WORKER, name=COORDINATOR)), "spec.roles[1].name"),
        (spec(msgspec.structs.replace(WORKER, name=COORDINATOR)), "spec.roles[0].name"),
        (spec(restart=Restart(scope="Gang")), "spec.restart.scope"),
    ],
)
def test_what_cannot_be_elastic_is_told_in_one_sentence(wrong: JobSpec, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        admitted(wrong)
    (problem,) = caught.value.problems
    assert problem.path == path


def test_the_coordinator_that_was_changed_is_nobodys() -> None:
    made = with_coordinator(spec(), "python")
    changed = msgspec.structs.replace(made.roles[-1], replicas=2)
    with pytest.raises(Invalid, match="another name"):
        admitted(msgspec.structs.replace(made, roles=(WORKER, changed)))


def test_it_decides_nothing_and_is_not_counted_by_people() -> None:
    made = with_coordinator(spec(gang=Gang(min=4)), "python")
    assert admitted(made) == made
    with pytest.raises(Invalid, match="more than the 4 tasks"):
        admitted(msgspec.structs.replace(made, gang=Gang(min=5)))
    with pytest.raises(Invalid, match="no role is called coordinator"):
        admitted(msgspec.structs.replace(made, success=Success(role=COORDINATOR)))
