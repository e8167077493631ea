from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.objects.errors import NotFound
from shoal.objects.job import Job
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue
from tests.cli.conftest import Shell
from tests.cli.world import status
from tests.server.harness import LiveServer

_JOB = """
apiVersion: shoal.dev/v1alpha1
kind: Job
metadata: {name: train}
spec:
  queue: default
  roles:
  - name: worker
    replicas: 2
    command: [python, train.py]
"""
_QUEUE = """
apiVersion: shoal.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec: {quota: {cpu: 4}}
"""


@pytest.fixture
def file(tmp_path: Path, server: LiveServer) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(_JOB)
    return path


def test_created_then_unchanged(sh: Shell, file: Path, client: Client) -> None:
    first = sh("apply", "-y", "-f", str(file))
    assert (first.code, first.lines) == (0, ["job/train will be created", "job/train created"])
    assert client.get(Job, "default", "train").spec.roles[0].replicas == 2
    second = sh("apply", "-f", str(file))  # nothing to ask about
    assert (second.code, second.lines[-1]) == (0, "job/train unchanged")


def test_a_change_is_shown_field_by_field(sh: Shell, file: Path, client: Client) -> None:
    sh("apply", "-y", "-f", str(file))
    changed = _JOB.replace("replicas: 2", "replicas: 3").replace(
        "{name: train}", "{name: train, labels: {a: b}}"
    )
    file.write_text(changed + "  priority: production\n")
    said = sh("apply", "-y", "-f", str(file))
    assert said.code == 0, said.err
    assert said.lines == [
        "job/train will be changed",
        "  labels.a: (none) -> b",
        "  spec.roles[worker].replicas: 2 -> 3",
        "  spec.priority: (none) -> production",
        "job/train configured",
    ]


def test_without_a_terminal_it_wants_a_yes(sh: Shell, file: Path, client: Client) -> None:
    said = sh("apply", "-f", str(file))
    assert said.code == 2
    assert "hint: pass -y" in said.err
    with pytest.raises(NotFound):
        client.get(Job, "default", "train")


def test_a_dry_run_changes_nothing(sh: Shell, file: Path, client: Client) -> None:
    said = sh("apply", "--dry-run", "-f", str(file))
    assert (said.code, said.lines) == (0, ["job/train will be created"])
    assert "1 to create; nothing was changed" in said.err
    document = sh("apply", "--dry-run", "-f", str(file), "--json").document
    assert document["items"][0] | {"changes": []} == {
        "kind": "Job", "namespace": "default", "name": "train", "result": "created", "changes": [],
    }  # fmt: skip
    with pytest.raises(NotFound):
        client.get(Job, "default", "train")


def test_standard_input_folders_and_several_files(
    sh: Shell, file: Path, client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "team"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "q.yml").write_text(_QUEUE)
    (folder / "notes.txt").write_text("not yaml: [")
    said = sh("apply", "-y", "-f", str(folder), "-f", "-", "-o", "name", input=_JOB)
    assert (said.code, said.out) == (0, "queue/research\njob/train\n")
    assert client.get(Queue, "", "research").spec.quota.cpu == 4000


def test_a_job_may_come_with_its_queue(sh: Shell, tmp_path: Path, client: Client) -> None:
    job = _JOB.replace("queue: default", "queue: research")
    alone = sh("apply", "-y", "-f", "-", input=job)
    assert (alone.code, "there is no queue research" in alone.err) == (2, True)
    both = sh("apply", "-y", "-f", "-", input=f"{job}---{_QUEUE}")
    assert both.code == 0, both.err
    assert both.lines[-2:] == ["queue/research created", "job/train created"]


def test_a_job_may_come_with_the_job_that_it_waits_for(
    sh: Shell, server: LiveServer, client: Client
) -> None:
    first = _JOB.replace("{name: train}", "{name: prepare}")
    waits = f"{_JOB}  after: [{{job: prepare}}]\n"
    alone = sh("apply", "-y", "-f", "-", input=waits)
    assert (alone.code, "there is no job prepare in namespace default" in alone.err) == (2, True)
    circle = sh("apply", "-y", "-f", "-", input=f"{waits}---{first}  after: [{{job: train}}]\n")
    assert circle.code == 2
    assert "refers to itself: job/prepare -> job/train -> job/prepare" in circle.err
    both = sh("apply", "-y", "-f", "-", input=f"{waits}---{first}")
    assert both.lines[-2:] == ["job/prepare created", "job/train created"], both.err
    status(server, client.get(Job, "default", "train"), reason="Dependency", message="it starts after x")
    said = sh("explain", "train").out
    assert "job/train is Pending (Dependency)" in said
    assert "job/prepare (success)" in said


def test_every_problem_of_every_file_at_once(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_JOB.replace("replicas:", "replica:").replace("queue:", "que:"))
    (tmp_path / "b.yaml").write_text("kind: [\n")
    (tmp_path / "c.yaml").write_text(_QUEUE)
    said = sh("apply", "-y", "-f", str(tmp_path), "-o", "json")
    assert said.code == 2
    problems = said.document["details"]["problems"]
    first, second = (str(tmp_path / name) for name in ("a.yaml", "b.yaml"))
    assert [problem["file"] for problem in problems] == [first, first, second]
    assert any("did you mean replicas?" in problem["message"] for problem in problems)
    assert all(problem["line"] and problem["column"] for problem in problems)
    assert {"spec.que", "spec.roles[0].replica"} <= {problem["path"] for problem in problems}
    for problem in problems:
        where = f"{problem['file']}, line {problem['line']}, column {problem['column']}: "
        assert where in said.err
        assert problem["message"] in said.err


def test_every_problem_that_the_server_finds_at_once(sh: Shell, server: LiveServer) -> None:
    one = _JOB.replace("queue: default", "queue: nope")
    two = one.replace("{name: train}", "{name: other}")
    said = sh("apply", "-y", "-f", "-", input=f"{one}---{two}")
    assert said.code == 2
    assert "job/train" in said.err
    assert "job/other" in said.err


def test_one_problem_of_one_file_is_the_error(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text(_JOB.replace("replicas: 2", "replicas: many"))
    said = sh("apply", "-y", "-f", str(path))
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert str(path) in said.err
    assert "line 9, column" in said.err


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "holds no object"), ("a: 1", "apiVersion"), ("&a [*a]", "")],
)
def test_what_is_no_manifest(sh: Shell, server: LiveServer, text: str, says: str) -> None:
    said = sh("apply", "-y", "-f", "-", input=text)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


def test_files_that_are_not_there(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in sh("apply", "-f", str(tmp_path / "nope.yaml")).err
    (tmp_path / "empty").mkdir()
    assert "holds no file that ends in" in sh("apply", "-f", str(tmp_path / "empty")).err
    assert sh("apply").code == 2


def test_a_huge_file_is_refused_before_it_is_read(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text("# x\n" * 2_600_000)
    said = sh("apply", "-y", "-f", str(path))
    assert said.code == 2
    assert said.err.count("\n") <= 2


def test_the_namespace_of_the_command_is_the_objects(sh: Shell, client: Client) -> None:
    assert sh("apply", "-y", "-n", "team-a", "-f", "-", input=_JOB).code == 0
    assert client.get(Job, "team-a", "train")
    named = _JOB.replace("{name: train}", "{name: train, namespace: team-b}")
    assert sh("apply", "-y", "-f", "-", input=named).code == 0
    assert client.get(Job, "team-b", "train")
    said = sh("apply", "-y", "-n", "team-a", "-f", "-", input=named)
    assert said.code == 2
    assert "of namespace team-b" in said.err


def test_two_files_with_one_object(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(textwrap.dedent(_JOB))
    said = sh("apply", "-y", "-f", str(tmp_path))
    assert said.code == 2
    assert "a.yaml already" in said.err


_TREE = """
apiVersion: shoal.dev/v1alpha1
kind: Queue
metadata: {name: vision}
spec: {parent: research, nominal: {cpu: 2}}
---
apiVersion: shoal.dev/v1alpha1
kind: Queue
metadata: {name: research}
spec: {quota: {cpu: 4}}
"""


@pytest.mark.slow
def test_a_queue_comes_after_the_one_above_it(
    sh: Shell, tmp_path: Path, server: LiveServer, client: Client
) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(_TREE)
    shown = sh("apply", "--dry-run", "-f", str(path))
    assert shown.lines == ["queue/research will be created", "queue/vision will be created"]
    said = sh("apply", "-y", "-f", str(path))
    assert said.lines[-2:] == ["queue/research created", "queue/vision created"]
    assert client.get(Queue, "", "vision").spec.parent == "research"
    path.write_text(_TREE.replace("parent: research", "parent: reserch"))
    refused = sh("apply", "-y", "-f", str(path))
    assert refused.code == 2
    assert (
        "queues.yaml, queue/vision, line 5, column 8: spec.parent: there is no queue reserch; did you"
        in (refused.err)
    )


def test_what_is_surely_not_meant_is_told_once(sh: Shell, tmp_path: Path, server: LiveServer) -> None:
    server.declared = [Capacity(cpu=CpuMillis(2000), memory=Bytes(2**30))]
    path = tmp_path / "queue.yaml"
    path.write_text(_QUEUE)
    said = sh("apply", "-y", "-f", str(path))
    assert said.code == 0
    assert said.err == "warning: queue research may use 4 cpu, and all nodes together have 2\n"


@pytest.mark.slow
def test_what_the_server_refuses_is_said_with_file_line_and_object(
    sh: Shell, server: LiveServer, client: Client, tmp_path: Path
) -> None:
    job = "kind: Job\nmetadata: {name: %s}\nspec:\n  queue: nope\n  roles:\n  - command: [x]\n"
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("apiVersion: shoal.dev/v1alpha1\n" + job % "a")
    two.write_text("\n\napiVersion: shoal.dev/v1alpha1\n" + job % "b")
    alone = sh("apply", "-y", "-f", str(one))
    assert alone.code == 2
    assert f"error: {one}, job/a, line 5, column 3: spec.queue: there is no queue nope" in alone.err
    both = sh("apply", "-y", "-f", str(tmp_path), "-o", "json")
    assert both.code == 2
    places = [(each["file"], each["line"]) for each in both.document["details"]["problems"]]
    assert places == [(f"{one}, job/a", 5), (f"{two}, job/b", 7)]
