from __future__ import annotations

import pytest

from shoal.client import Client
from shoal.objects.errors import NotFound
from shoal.objects.job import Job
from shoal.objects.meta import Metadata
from shoal.objects.queue import Queue
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer, a_job


@pytest.mark.slow
def test_with_a_yes(sh: Shell, client: Client) -> None:
    client.create(a_job("a"))
    client.create(a_job("b"))
    assert sh("delete", "-y", "job/a", "job/b").out == "job/a deleted\njob/b deleted\n"
    with pytest.raises(NotFound):
        client.get(Job, "default", "a")


def test_it_asks_first(sh: Shell, client: Client) -> None:
    client.create(a_job("a"))
    said = sh("delete", "job/a")
    assert (said.code, said.out) == (2, "")
    assert "hint: pass -y" in said.err
    assert client.get(Job, "default", "a")


def test_a_dry_run(sh: Shell, client: Client) -> None:
    client.create(a_job("a"))
    assert sh("delete", "jobs", "a", "--dry-run").out == "job/a would be deleted\n"
    assert client.get(Job, "default", "a")


def test_by_labels(sh: Shell, client: Client) -> None:
    for name, labels in (("x", {"old": "yes"}), ("y", {})):
        client.create(Queue(metadata=Metadata(name=name, namespace="", labels=labels)))
    assert sh("delete", "queues", "-l", "old=yes", "-y").out == "queue/x deleted\n"
    again = sh("delete", "queues", "-l", "old=yes", "-y")
    assert (again.code, again.out, again.err) == (0, "", "nothing is labelled old=yes\n")
    assert sh("delete", "queues", "-l", "old=yes", "-y", "-o", "json").document == {"items": []}
    assert sh("delete", "queue/y", "-l", "old=yes", "-y").code == 2


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code"), [(["jobs"], 2), (["job/nope"], 3), (["queue/default"], 5)])
def test_what_cannot_be_deleted(sh: Shell, server: LiveServer, words: list[str], code: int) -> None:
    assert sh("delete", "-y", *words).code == code
