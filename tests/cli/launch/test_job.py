from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import msgspec
import pytest

from shoal.cli.failures import Usage
from shoal.cli.launch.job import Request, build_job
from shoal.cli.verbs.run import command
from shoal.client.submit import copy_of, dependency_of, job_name, job_of
from shoal.objects.admit import admit
from shoal.objects.codec import builtins
from shoal.objects.errors import Invalid
from shoal.objects.job import SecretUse
from shoal.objects.kinds import JOB
from shoal.objects.meta import Name
from shoal.objects.quantities import CpuMillis, Seconds


def _built(nodes: tuple[int, ...] = (2000,), **said: Any) -> Any:
    own = {f.name: said.pop(f.name) for f in fields(Request) if f.name in said}
    request = Request(
        command=("python", "train.py"), directory="/w", environment={"A": "b"}, options=said, **own
    )
    return build_job(request, "team-a", nodes)


def test_one_task_is_plain_and_restarts_only_when_told() -> None:
    job = _built()
    (role,) = job.spec.roles
    assert (role.replicas, role.min_replicas, job.spec.runtime) == (1, None, "plain")
    assert (role.command, role.working_directory) == (("python", "train.py"), "/w")
    assert role.env["A"] == "b"
    assert (job.spec.restart.limit, job.metadata.namespace) == (0, "team-a")
    assert re.fullmatch(r"train-[a-z0-9]{5}", job.metadata.name)


def test_every_option_of_the_verb_is_one_of_job_of() -> None:
    """The list of options exists once: the verb passes on what it does not read itself."""
    own = {f.name for f in fields(Request)} | {
        "variables",
        "detach",
        "prefix",
        "raw",
        "dry_run",
        "words",
    }
    of_verb = {each.name for each in command.params if each.expose_value} - own
    assert of_verb <= set(inspect.signature(job_of).parameters)
    assert {"secrets", "wall_time", "restarts", "after"} <= of_verb


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("hub-token", SecretUse(name="hub-token", env="HUB_TOKEN")),
        ("hub=TOKEN", SecretUse(name="hub", env="TOKEN")),
        ("mail/password=PW", SecretUse(name="mail", key="password", env="PW")),
        ("mail/password", SecretUse(name="mail", key="password", env="PASSWORD")),
        ("tls:key.pem", SecretUse(name="tls", file="key.pem")),
    ],
)
def test_a_secret_is_a_variable_or_a_file(text: str, use: SecretUse) -> None:
    job = _built(secrets=(text,))
    assert job.spec.roles[0].secrets == (use,)
    assert admit(builtins(job), JOB, namespace="team-a") == job


@pytest.mark.parametrize("text", ["", "=A", "a=", "a:", ":f", "tls:/etc/key"])
def test_a_secret_that_cannot_be_read(text: str) -> None:
    with pytest.raises(Invalid):
        _built(secrets=(text,))


def test_several_tasks_find_one_another() -> None:
    assert _built(workers=3).spec.runtime == "torchrun"
    assert _built(workers=3, runtime="jax").spec.runtime == "jax"
    assert _built(workers=1).spec.runtime == "plain"


def test_an_elastic_range() -> None:
    spec = _built(least=2, most=6).spec
    (role,) = spec.roles
    assert (role.replicas, role.min_replicas) == (6, 2)
    assert (spec.runtime, spec.restart.limit, spec.restart.scope) == ("elastic", 3, None)
    (role,) = _built(most=6).spec.roles
    assert (role.replicas, role.min_replicas) == (6, 1)
    assert _built(least=2, most=6, runtime="torchrun").spec.runtime == "torchrun"
    assert _built(least=1, most=1, restarts=0).spec.restart.limit == 0


def test_jobs_that_have_to_end_first() -> None:
    job = _built(after=("job/a", "b:failure", "j/c:end"))
    assert [(each.job, each.on) for each in job.spec.after] == [
        ("a", "success"),
        ("b", "failure"),
        ("c", "end"),
    ]
    with pytest.raises(Invalid, match="on success, failure or end; did you mean failure"):
        dependency_of("job/a:failed")
    with pytest.raises(Invalid, match="'queue/a' does not name a job"):
        dependency_of("queue/a")


def test_a_retry_waits_for_nothing_that_was_met() -> None:
    job = _built(after=("a", "b"))
    status = msgspec.structs.replace(job.status, dependencies_met=("a",))
    assert [each.job for each in copy_of(msgspec.structs.replace(job, status=status)).spec.after] == [
        "b"
    ]


def test_an_array() -> None:
    job = _built(indices=("0-99", 10))
    assert (job.spec.array.indices, job.spec.array.parallelism) == ("0-99", 10)
    assert job.spec.runtime == "plain"


@pytest.mark.parametrize(
    ("said", "cpu"),
    [
        ({}, 1000),
        ({"workers": 2}, 950),
        ({"workers": 3}, 633),
        ({"least": 1, "most": 4}, 475),
        ({"indices": ("0-99", None)}, 29),  # at most 32 to a core: 64 at once
        ({"indices": ("0-99", 4)}, 475),
        ({"workers": 3, "cpu": CpuMillis(2000)}, 2000),
    ],
)
def test_processors_of_a_task_unless_told(said: dict[str, Any], cpu: int) -> None:
    assert _built(**said).spec.roles[0].resources.cpu == cpu


def test_what_else_is_said_ends_up_in_the_spec() -> None:
    job = _built(
        queue="q", priority="production", gpu=1, restarts=4, wall_time=Seconds(60), isolation="strict",
        name="mine",
    )  # fmt: skip
    assert (job.spec.queue, job.spec.priority, job.spec.isolation) == ("q", "production", "strict")
    assert (job.spec.restart.limit, job.spec.limits.wall_time) == (4, 60)
    assert (job.metadata.name, job.spec.roles[0].resources.gpu) == ("mine", 1)


@pytest.mark.parametrize(
    "said",
    [
        {"workers": 2, "most": 3},
        {"least": 2},
        {"least": 3, "most": 2},
        {"indices": ("0-3", None), "workers": 2},
        {"indices": ("0-3", None), "most": 2},
    ],
)
def test_what_does_not_go_together(said: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        _built(**said)


@pytest.mark.parametrize(
    "wrong", [{"command": ("x", "\udcff")}, {"directory": "/\udcff"}, {"environment": {"A": "\udcff"}}]
)
def test_bytes_that_are_no_text_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Usage, match="no UTF-8"):
        Request(**{"command": ("x",), "directory": "/", "environment": {}, **wrong})


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        ("python train.py --lr 3", "train"),
        ("python3.11 -u ./Fit_Model.py", "fit-model"),
        ("python -m pkg.sub.tool x", "tool"),
        ("python -c print(1)", "python"),
        ("bash -c ls", "bash"),
        ("uv run train.py", "train"),
        ("env A=b ./go.sh", "go"),
        ("/usr/bin/true", "true"),
        ("torchrun --nproc-per-node=2 main.py", "main"),
        ("./_.sh", "job"),
        ("x" * 90, "x" * 40),
    ],
)
def test_a_name_says_what_runs(command: str, stem: str) -> None:
    name = job_name(command.split())
    assert name.rpartition("-")[0] == stem
    pattern = Name.__metadata__[0].pattern  # type: ignore[attr-defined]
    assert re.fullmatch(pattern, name)
