from __future__ import annotations

import threading

import pytest

from shoal.client import Client
from shoal.objects.kinds import JOB
from shoal.objects.meta import Condition, Metadata
from shoal.objects.node import Node
from tests.cli.conftest import Shell
from tests.cli.world import status
from tests.server.harness import LiveServer, a_job


@pytest.mark.slow
@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 100), ("Cancelled", 103)])
def test_how_a_job_ended(sh: Shell, server: LiveServer, client: Client, phase: str, code: int) -> None:
    job = client.create(a_job("train"))
    status(server, job, phase=phase, started=5.0, finished=9.0, message="because")
    said = sh("wait", "job/train")
    assert said.code == code
    assert said.out.startswith("job/train ")
    assert sh("wait", "train", "-o", "json").document["status"]["phase"] == phase


@pytest.mark.slow
def test_it_waits_for_the_end(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    later = threading.Timer(0.2, lambda: status(server, job, phase="Succeeded", finished=9.0))
    later.start()
    said = sh("wait", "train", "--timeout", "60s")
    later.join()
    assert said.code == 0


@pytest.mark.slow
def test_all_must_end_and_the_first_that_went_wrong_counts(
    sh: Shell, server: LiveServer, client: Client
) -> None:
    for name, phase in (("a", "Succeeded"), ("b", "Cancelled"), ("c", "Failed")):
        status(server, client.create(a_job(name)), phase=phase, finished=9.0)
    said = sh("wait", "a", "b", "c", "-o", "json")
    assert said.code == 103
    assert len(said.document["items"]) == 3


@pytest.mark.slow
def test_a_timeout(sh: Shell, client: Client) -> None:
    client.create(a_job("train"))
    said = sh("wait", "train", "--timeout", "50ms", "--json")
    assert (said.code, said.document["code"]) == (101, "NotFinished")
    assert "hint: see why with: shoal explain job/train" in said.err
    assert sh("wait", "train", "--for", "phase=Running", "--timeout", "50ms").code == 7


@pytest.mark.slow
def test_phases(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    assert sh("wait", "train", "--for=phase=Pending").out == "job/train is Pending\n"
    status(server, job, phase="Running", started=5.0)
    assert sh("wait", "train", "--for=phase=Running").code == 0
    status(server, job, phase="Failed", finished=9.0)
    assert sh("wait", "train", "--for=phase=Failed").code == 0
    assert sh("wait", "train", "--for=phase=Running").code == 100  # it never will be again
    assert sh("wait", "train", "--for=phase=Succeeded").code == 100


@pytest.mark.slow
def test_conditions(sh: Shell, server: LiveServer, client: Client) -> None:
    job = client.create(a_job("train"))
    status(server, job, conditions=[Condition(type="Preempting", status="False")])
    assert sh("wait", "train", "--for=condition=Preempting=False").code == 0
    assert sh("wait", "train", "--for=condition=Preempting", "--timeout=50ms").code == 7


@pytest.mark.slow
def test_deletion_and_what_is_not_there(sh: Shell, client: Client) -> None:
    client.create(a_job("train"))
    later = threading.Timer(0.2, lambda: client.delete(JOB, "default", "train"))
    later.start()
    assert sh("wait", "train", "--for", "deleted").out == "job/train is deleted\n"
    later.join()
    assert sh("wait", "train").code == 102
    assert sh("wait", "node/n", "--for", "condition=Ready").code == 3


@pytest.mark.slow
def test_other_kinds(sh: Shell, client: Client) -> None:
    client.create(Node(metadata=Metadata(name="n", namespace="")))
    assert sh("wait", "node/n", "--for", "condition=Ready", "--timeout", "50ms").code == 7
    assert sh("wait", "node/n").code == 2
    assert sh("wait", "node/n", "--for", "phase=Running").code == 2


@pytest.mark.parametrize("what", ["finish", "phase=running", "condition", "phase"])
def test_nothing_to_wait_for(sh: Shell, server: LiveServer, what: str) -> None:
    said = sh("wait", "train", "--for", what)
    assert (said.code, "hint: wait for finished" in said.err) == (2, True)


def test_ctrl_c_only_stops_waiting(sh: Shell, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "wait", wait)
    said = sh("wait", "train", "other")
    assert said.code == 130
    assert "wait again with: shoal wait job/train job/other" in said.err
