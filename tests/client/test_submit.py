from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.client.submit import job_of, secret_use_of
from shoal.objects.admit import admit
from shoal.objects.codec import builtins
from shoal.objects.errors import Invalid
from shoal.objects.kinds import JOB
from shoal.objects.quantities import QuantityError


def test_what_it_makes_is_admitted(tmp_path: Path) -> None:
    job = job_of(
        ["python", "train.py"], name="train", namespace="team-a", workers=4, min_workers=2,
        cpu="500m", memory="2Gi", gpu=1, env={"A": "b"}, working_directory=tmp_path,
        wall_time="2h", labels={"team": "a"}, priority="production", runtime="elastic",
    )  # fmt: skip
    assert admit(builtins(job), JOB, namespace="team-a") == job
    role = job.spec.roles[0]
    assert (role.replicas, role.min_replicas, role.resources.cpu) == (4, 2, 500)
    assert (role.resources.memory, role.resources.gpu) == (2 * 2**30, 1)
    assert (role.env["A"], role.working_directory) == ("b", str(tmp_path))
    assert job.spec.limits.wall_time == 7200


def test_a_part_of_a_device_and_a_budget() -> None:
    spec = job_of(["true"], gpu=0.5, node_hours=2.0).spec
    resources = spec.roles[0].resources
    assert (resources.gpu, resources.gpu_share, spec.limits.node_hours) == (0, 0.5, 2.0)
    for wrong in (1.5, -1, float("nan"), float("inf")):
        with pytest.raises(Invalid, match="neither a whole number of GPUs nor a part of one"):
            job_of(["true"], gpu=wrong)


def test_an_array() -> None:
    spec = job_of(["true"], array="0-9", parallelism=3).spec
    assert spec.array is not None
    assert (spec.array.indices, spec.array.parallelism) == ("0-9", 3)
    with pytest.raises(Invalid, match="no number of workers"):
        job_of(["true"], array="0-9", workers=2)


def test_it_runs_where_and_with_what_the_caller_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/mine")
    monkeypatch.setenv("SOME_SECRET", "x")
    role = job_of(["true"]).spec.roles[0]
    assert role.working_directory == str(tmp_path)
    assert role.env["PATH"] == "/mine"
    assert "SOME_SECRET" not in role.env


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "-u", "My Train_v2.py"], "my-train-v2"),
        (["/usr/bin/env"], "env"),
        (["..."], "job"),
        (["x" * 200], "x" * 40),
    ],
)
def test_a_name_is_made_up(command: list[str], stem: str) -> None:
    name = job_of(command).metadata.name
    assert re.fullmatch(rf"{stem}-[a-z0-9]{{5}}", name)
    assert name != job_of(command).metadata.name


def test_a_command_in_one_string_is_split_into_words() -> None:
    assert job_of("python train.py --name 'my run'").spec.roles[0].command == (
        "python", "train.py", "--name", "my run",
    )  # fmt: skip
    with pytest.raises(Invalid, match="cannot be split into words: No closing quotation"):
        job_of("python 'train.py")
    with pytest.raises(Invalid, match="5 in the command is not text"):
        job_of(["sleep", 5])  # pyright: ignore[reportArgumentType]


def test_an_array_with_a_bound_as_the_command_line_spells_it() -> None:
    array = job_of("true", array="0-99%10").spec.array
    assert array is not None
    assert (array.indices, array.parallelism) == ("0-99", 10)
    with pytest.raises(Invalid, match="such as 0-99%10"):
        job_of("true", array="0-99%x")


def test_what_it_cannot_make() -> None:
    with pytest.raises(Invalid, match="no command"):
        job_of([])
    with pytest.raises(QuantityError):
        job_of(["true"], memory="lots")


@pytest.mark.parametrize("variable", [":tok", "A B", "1ST", "A-B"])
def test_a_secrets_variable_has_the_name_of_a_variable(variable: str) -> None:
    with pytest.raises(Invalid, match="is not the name of a variable"):
        secret_use_of(f"hub-token={variable}")
    assert secret_use_of("hub-token=_A1").env == "_A1"
