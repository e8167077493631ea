from __future__ import annotations

import json

import pytest

from shoal.cli.verbs import events
from shoal.client import Client
from tests.cli.conftest import Shell
from tests.cli.world import event
from tests.server.harness import LiveServer, a_job


@pytest.fixture(autouse=True)
def happenings(server: LiveServer, client: Client) -> None:
    for namespace, name in (("default", "a"), ("default", "b"), ("team-a", "c")):
        job = client.create(a_job(name, namespace=namespace))
        event(server, job, f"{name}1", "Started", f"{name} started")
        event(server, job, f"{name}2", "Ended", f"{name} ended")


def test_of_a_namespace_of_an_object_of_all(sh: Shell) -> None:
    assert [line.split()[2:4] for line in sh("events").lines[1:]] == [
        ["job/a", "Started"], ["job/a", "Ended"], ["job/b", "Started"], ["job/b", "Ended"],
    ]  # fmt: skip
    assert [line.split()[2] for line in sh("events", "job/b").lines] == ["REASON", "Started", "Ended"]
    assert "team-a/job/c" in sh("events", "-A").out


def test_documents(sh: Shell) -> None:
    items = sh("events", "job/a", "-o", "json").document["items"]
    assert [item["id"] for item in items] == ["a1", "a2"]
    assert sh("events", "-o", "name").lines == ["job/a", "job/a", "job/b", "job/b"]


def test_the_newest_and_that_there_are_more(sh: Shell) -> None:
    said = sh("events", "--limit", "1")
    assert (len(said.lines), "b ended" in said.out) == (2, True)
    assert "showing the newest 1" in said.err


def test_nothing(sh: Shell) -> None:
    assert sh("events", "-n", "empty").err == "there are no events in namespace empty\n"
    assert sh("events", "jobs").code == 2


def test_an_object_that_is_not_there_is_not_found(sh: Shell) -> None:
    said = sh("events", "job/nope")
    assert (said.code, said.out) == (3, "")
    assert "nope" in said.err
    assert sh("events", "job/nope", "-w").code == 3


def test_watching(
    sh: Shell, monkeypatch: pytest.MonkeyPatch, server: LiveServer, client: Client
) -> None:
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt
        event(server, client.create(a_job("new")), "n1", "Created", "made")

    monkeypatch.setattr(events.time, "sleep", sleep)
    said = sh("events", "-w", "-o", "json")
    assert said.code == 130
    assert [json.loads(line)["id"] for line in said.lines] == ["a1", "a2", "b1", "b2", "n1"]
