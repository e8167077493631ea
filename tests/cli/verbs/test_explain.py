from __future__ import annotations

import time

import pytest

from shoal.cli.targets import Target
from shoal.cli.verbs.describe import _print_explanation  # pyright: ignore[reportPrivateUsage]
from shoal.client import Client
from shoal.client.reports import Explanation
from shoal.objects.job import Allocation, Job, Scheduling, Slots
from shoal.objects.job_text import job_lines
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.node import Node
from tests.cli.conftest import Shell
from tests.cli.world import event, status
from tests.server.harness import LiveServer, a_job

_EVIDENCE = {
    "wanted": {"worker": 4}, "fitting": {"worker": 1}, "short": ["cpu"], "holders": ["default/large"],
}  # fmt: skip


def test_why_a_job_waits(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    held = Scheduling(code="NoRoom", message="it needs more", evidence=_EVIDENCE, since=5.0)
    status(server, job, writer="scheduler", scheduling=held)
    event(server, job, "e", "Created", "it was created")
    large = client.create(a_job("large"))  # what the evidence names
    slots = (Slots(role="worker", indices="0", node="n0"),)
    status(server, large, writer="scheduler", allocation=Allocation(id=1, slots=slots))
    server.with_caches().order.names = ("default/first", "default/train", "default/large")
    said = sh("explain", "train")
    assert said.code == 0
    assert said.lines[0].startswith("job/train is Pending (NoRoom), for ")
    assert said.lines[1] == "  it needs more"
    assert said.lines[-1].startswith("What would change it: it starts when running jobs finish")
    assert not any("at the latest" in line for line in said.lines)
    document = sh("explain", "job/train", "-o", "json").document
    assert (document["code"], document["evidence"]) == ("NoRoom", _EVIDENCE)
    assert document["remedy"]


def test_jobs_tried_before_it_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    why = Explanation(
        kind="Job", namespace="default", name="train", phase="Pending", ahead=("default/first",)
    )
    _print_explanation(Target(JOB, "default", "train"), why, "", wide=False)
    assert "Tried before it: default/first" in capsys.readouterr().out.splitlines()


def test_why_a_job_failed(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    status(
        server, job, phase="Failed", reason="TaskFailed", message="worker 0 exited with 3", finished=9.0
    )
    said = sh("explain", "job/train")
    assert said.lines[0].startswith("job/train is Failed (TaskFailed)")
    assert said.lines[-1] == "What would change it: shoal logs job/train shows what its tasks wrote"


def test_other_kinds(sh: Shell, client: Client) -> None:
    client.create(Node(metadata=Metadata(name="n1", namespace="")))
    assert sh("explain", "node/n1").lines[0].startswith("node/n1 is NotReady")
    assert sh("explain", "queue/default").lines[0] == "queue/default: 0 running, 0 pending"
    assert sh("explain", "nope").code == 3


@pytest.mark.slow
def test_when_it_starts_at_the_latest(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    at = time.time() + 90
    held = Scheduling(code="Dated", message="it has a date", evidence={"at": at}, promised=at)
    status(server, job, writer="scheduler", scheduling=held)
    said = sh("explain", "train")
    line = next(line for line in said.lines if "at the latest" in line)
    assert line.startswith("  it starts at ")
    assert "(in 1m" in line
    assert sh("explain", "train", "-o", "json").document["starts"] == at
    lines = dict(job_lines(client.get(Job, "default", "train"), time.time()))
    assert lines["starts"] == line.strip()
