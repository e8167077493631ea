"""Secrets on their way to tasks: what they get, and that no file, database or answer holds a value."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shoal.objects.errors import Invalid
from shoal.objects.kinds import JOB
from shoal.testing.local import wait_until
from tests.scenarios.fields import shows
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, role

pytestmark = [pytest.mark.process, pytest.mark.slow]

USE = "spec.roles[].secrets[]"
VALUE, SECOND, THIRD = "correct-horse-battery", "staple-of-silence", "third-of-its-name"


def files_with(folder: Path, text: str) -> list[Path]:
    """The files below a folder, databases and logs included, that hold the text."""
    found: list[Path] = []
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names):
        try:
            if stat.S_ISREG(path.lstat().st_mode) and text.encode() in path.read_bytes():
                found.append(path)
        except FileNotFoundError:
            continue  # it went while it was looked for
    return found


@shows(JOB, f"{USE}.name", f"{USE}.key", f"{USE}.env", f"{USE}.file")
def test_a_task_gets_values_that_stand_nowhere_else(cluster: Standing) -> None:
    home = cluster.home.path
    made = cluster.cli("secret", "create", "hub", stdin=f"{VALUE}\n".encode())
    assert made.code == 0, made.err
    cluster.client.set_secret("default", "mail", {"password": SECOND})
    script = """
echo "${#HUB} $(wc -c < $SHOAL_SECRETS/pw) $(stat -c %a $SHOAL_SECRETS/pw)" >> $SHOAL_OUTPUT/notes
test "$(cat $SHOAL_SECRETS/pw)" = "$(cat $SHOAL_SECRETS/again)" && echo same >> $SHOAL_OUTPUT/notes
while [ ! -e $SHOAL_OUTPUT/end ]; do sleep 0.05; done
"""
    uses = [
        {"name": "hub", "env": "HUB"},
        {"name": "mail", "key": "password", "file": "pw"},
        {"name": "mail", "key": "password", "file": "again"},
    ]
    job = cluster.job(role(script, secrets=uses))
    cluster.until_noted(job, "same")
    assert cluster.notes(job)[0] == f"{len(VALUE)} {len(SECOND)} 600"

    name = job.metadata.name
    beside = cluster.client.exec("default", name, ["sh", "-c", "echo $HUB"])
    said = b""
    while (received := beside.receive())[0] != "exit":
        said += received[1]
    beside.close()
    assert said == f"{VALUE}\n".encode(), "a command beside the task has its variables"

    keys = [path for path in (home / "keys").iterdir() if "secrets" in path.name]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    held = files_with(home, VALUE) + files_with(home, SECOND)
    assert {(path.name, path.parent.name) for path in held} == {
        ("secrets.json", f"default.{cluster.tasks(job)[0].name}"),
        ("pw", "secrets"),
        ("again", "secrets"),
    }, "while the task runs: its own files alone"
    assert {stat.S_IMODE(path.stat().st_mode) for path in held} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in held} == {0o700}
    shown = [
        cluster.cli(*words).out
        for words in (
            ("get", f"job/{name}", "-o", "json"), ("get", f"job/{name}", "-o", "yaml"),
            ("describe", f"job/{name}"), ("explain", f"job/{name}", "-o", "json"),
            ("events", "-o", "json"), ("audit", "-A", "-o", "json"),
            ("secret", "describe", "hub", "-o", "json"), ("secret", "list"), ("logs", f"job/{name}"),
        )
    ]  # fmt: skip
    assert not any(value.encode() in text for text in shown for value in (VALUE, SECOND))

    (cluster.output(job) / "end").touch()
    assert cluster.finished(job).status.phase == "Succeeded"
    wait_until(
        lambda: not files_with(home, VALUE) and not files_with(home, SECOND),
        PATIENCE_SECONDS,
        "no file holds a value once the task has ended",
    )
    cluster.client.delete_secret("default", "hub")
    cluster.client.delete_secret("default", "mail")


def test_a_job_waits_for_its_secret_and_starts_with_it(cluster: Standing) -> None:
    cluster.client.set_secret("default", "late-tokens", {"value": "x"})
    waits = cluster.job(
        role(
            'test "$TOKEN" = third-of-its-name && echo started >> $SHOAL_OUTPUT/notes',
            secrets=[{"name": "late-token", "env": "TOKEN"}],
        )
    )
    assert cluster.waiting(waits) == "SecretMissing"
    found = cluster.look(waits)
    assert found.status.scheduling.message == (
        "the job waits: there is no secret late-token in namespace default (did you mean late-tokens?)"
    )
    assert not found.status.allocation.slots, "it holds no capacity meanwhile"
    explained = cluster.cli("explain", f"job/{waits.metadata.name}").out.decode()
    assert "shoal secret create late-token" in explained
    cluster.client.set_secret("default", "late-token", {"other": "x"})
    cluster.until(
        waits, lambda j: "key value of secret late-token is missing" in j.status.scheduling.message
    )
    cluster.client.set_secret("default", "late-token", {"value": THIRD}, replace=True)
    assert cluster.finished(waits).status.phase == "Succeeded", cluster.log(waits)
    assert cluster.notes(waits) == ["started"]
    for name in ("late-token", "late-tokens"):
        cluster.client.delete_secret("default", name)


@pytest.mark.parametrize(
    ("uses", "path", "reason"),
    [
        ([{"name": "a"}], "secrets[0]", "write exactly one of env and file"),
        ([{"name": "a", "env": "X", "file": "x"}], "secrets[0]", "write exactly one of env and file"),
        ([{"name": "a", "file": "../x"}], "secrets[0].file", "is not made of letters"),
        ([{"name": "a", "env": "SHOAL_X"}], "secrets[0].env", "set by the platform"),
        ([{"name": "a", "env": "PATH"}], "secrets[0].env", "set by the platform"),
        ([{"name": "a", "env": ":tok"}], "secrets[0].env", "not the name of a variable"),
        ([{"name": "a", "env": "X"}, {"name": "b", "env": "X"}], "secrets[1].env", "given twice"),
    ],
)
def test_uses_that_make_no_sense_are_refused(
    cluster: Standing, uses: list[dict[str, str]], path: str, reason: str
) -> None:
    with pytest.raises(Invalid) as refused:
        cluster.job(role("true", secrets=uses))
    (problem,) = refused.value.problems
    assert (problem.path, reason in problem.message) == (f"spec.roles[0].{path}", True), problem
