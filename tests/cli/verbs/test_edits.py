"""The verbs that change a spec: cancel, suspend, resume, scale, and those of nodes."""

from __future__ import annotations

import msgspec
import pytest

from shoal.client import Client
from shoal.objects.job import Job, Role
from shoal.objects.meta import Metadata
from shoal.objects.node import DRAIN, Node
from tests.cli.conftest import Shell
from tests.cli.world import node_ready, status
from tests.server.harness import LiveServer, a_job


@pytest.fixture(autouse=True)
def objects(client: Client) -> None:
    client.create(a_job("train"))
    client.create(a_job("other"))
    client.create(Node(metadata=Metadata(name="n1", namespace="")))


def _job(client: Client, name: str = "train") -> Job:
    return client.get(Job, "default", name)


def _node(client: Client) -> Node:
    return client.get(Node, "", "n1")


def test_cancel(sh: Shell, client: Client) -> None:
    said = sh("cancel", "job/train", "other")
    assert (said.code, said.out) == (0, "job/train is being cancelled\njob/other is being cancelled\n")
    assert _job(client).spec.cancelled
    assert _job(client, "other").spec.cancelled
    assert sh("cancel", "train").out == "job/train has finished already\n"


def test_suspend_and_resume(sh: Shell, client: Client) -> None:
    assert sh("suspend", "train").out == "job/train is being suspended\n"
    assert _job(client).spec.suspend
    assert sh("suspend", "train").out == "job/train is suspended already\n"
    assert sh("resume", "train").out == "job/train resumed\n"
    assert not _job(client).spec.suspend


def test_documents_of_what_was_changed(sh: Shell) -> None:
    assert sh("suspend", "train", "--json").document["spec"]["suspend"] is True
    both = sh("resume", "train", "other", "--json").document
    assert [item["metadata"]["name"] for item in both["items"]] == ["train", "other"]
    assert sh("suspend", "train", "-o", "name").out == "job/train\n"


def test_one_that_fails_does_not_keep_the_others(sh: Shell, client: Client) -> None:
    said = sh("suspend", "nope", "train")
    assert (said.code, said.out) == (3, "job/train is being suspended\n")
    assert "nope" in said.err
    assert _job(client).spec.suspend
    documented = sh("resume", "nope", "train", "--json").document
    assert (documented["code"], documented["details"]["changed"]) == ("NotFound", ["job/train"])


def test_retry_submits_a_copy_of_a_finished_job(sh: Shell, server: LiveServer, client: Client) -> None:
    role = Role(command=("x",), replicas=4, min_replicas=2)
    job = client.create(a_job("elastic", runtime="elastic", roles=(role,)))
    early = sh("retry", "elastic")
    assert (early.code, "only a finished job can be retried" in early.err) == (4, True)
    assert sh("cancel", "elastic").code == 0
    status(server, job, phase="Cancelled", finished=9.0)
    assert sh("retry", "elastic").out == "job/elastic-retry1 is submitted, a copy of job/elastic\n"
    copy = _job(client, "elastic-retry1")
    assert copy.spec == msgspec.structs.replace(job.spec, cancelled=False)
    assert copy.status.phase == "Pending"
    assert sh("retry", "elastic", "-o", "name").out == "job/elastic-retry2\n"
    status(server, copy, phase="Failed", finished=9.0)
    assert sh("retry", "elastic-retry1", "-o", "name").out == "job/elastic-retry3\n"
    assert sh("retry", "nope").code == 3


def test_scale(sh: Shell, client: Client) -> None:
    assert sh("scale", "train", "--replicas", "3").out == "job/train scaled\n"
    assert _job(client).spec.roles[0].replicas == 3
    assert sh("scale", "train", "--replicas", "3").out == "job/train has that size already\n"


def test_scale_a_range(sh: Shell, client: Client) -> None:
    role = Role(command=("x",), replicas=4, min_replicas=2)
    client.create(a_job("elastic", runtime="elastic", roles=(role,)))
    assert sh("scale", "elastic", "--min", "1").code == 0
    assert sh("scale", "elastic", "--max", "6").code == 0
    role, coordinator = _job(client, "elastic").spec.roles
    assert coordinator.replicas == 1
    assert (role.min_replicas, role.replicas) == (1, 6)


def test_scale_asks_before_a_gang_restarts(sh: Shell, server: LiveServer, client: Client) -> None:
    gang = client.create(a_job("gang", runtime="torchrun", roles=(Role(command=("x",), replicas=2),)))
    assert sh("scale", "gang", "--replicas", "3").code == 0  # it does not run: nothing restarts
    status(server, gang, phase="Running")
    asked = sh("scale", "gang", "--replicas", "4")
    assert (asked.code, asked.out, "pass -y" in asked.err) == (2, "", True)
    assert "job/gang restarts all of its tasks for another size" in asked.err
    assert _job(client, "gang").spec.roles[0].replicas == 3
    assert sh("scale", "gang", "--replicas", "4", "-y").code == 0
    role = Role(command=("x",), replicas=4, min_replicas=2)
    elastic = client.create(a_job("elastic", runtime="elastic", roles=(role,)))
    status(server, elastic, phase="Running")
    assert sh("scale", "elastic", "--max", "6").code == 0


def test_scale_a_role(sh: Shell, client: Client) -> None:
    roles = (Role(name="ps", command=("x",)), Role(name="worker", command=("x",), replicas=2))
    client.create(a_job("two", roles=roles, runtime="tensorflow"))
    which = sh("scale", "two", "--replicas", "3")
    assert which.code == 2
    assert "--role ps" in which.err
    near = sh("scale", "two", "--replicas", "3", "--role", "wroker")
    assert (near.code, "did you mean worker?" in near.err) == (3, True)
    assert sh("scale", "two", "--max", "3", "--role", "worker").code == 0
    assert [role.replicas for role in _job(client, "two").spec.roles] == [1, 3]


@pytest.mark.parametrize(
    "words", [[], ["--replicas", "2", "--min", "1"], ["--min", "3", "--max", "2"], ["--replicas", "0"]]
)
def test_scale_needs_numbers_that_make_sense(sh: Shell, words: list[str]) -> None:
    assert sh("scale", "train", *words).code == 2


def test_cordon_drain_uncordon(sh: Shell, client: Client) -> None:
    assert sh("cordon", "n1").out == "node/n1 cordoned\n"
    assert _node(client).spec.unschedulable
    assert sh("drain", "node/n1").out == "node/n1 is being drained\n"
    assert DRAIN in _node(client).spec.taints
    assert sh("uncordon", "no/n1").out == "node/n1 uncordoned\n"
    assert (_node(client).spec.unschedulable, _node(client).spec.taints) == (False, ())


def test_lost_asks_for_a_terminal_or_a_yes(sh: Shell, client: Client) -> None:
    asked = sh("lost", "n1")
    assert (asked.code, asked.out) == (2, "")
    assert "hint: pass -y" in asked.err
    assert sh("lost", "n1", "-y").out == "node/n1 is declared lost\n"
    assert _node(client).spec.lost
    assert sh("lost", "n1", "--undo").out == "node/n1 is no longer declared lost\n"
    assert not _node(client).spec.lost


def test_lost_refuses_a_node_that_answers(sh: Shell, server: LiveServer, client: Client) -> None:
    node_ready(server, "n1")
    said = sh("lost", "n1", "-y")
    assert (said.code, said.out) == (4, "")
    assert "node/n1 is Ready: it answers, so its tasks would run twice" in said.err
    assert "shoal drain node/n1" in said.err
    assert not _node(client).spec.lost
    assert sh("lost", "n1", "-y", "--force").out == "node/n1 is declared lost\n"
    assert _node(client).spec.lost


@pytest.mark.slow
def test_the_nearest_name_of_a_mistyped_one(sh: Shell) -> None:
    for words in (
        ["describe", "job/trian"],
        ["cancel", "trian"],
        ["explain", "trian"],
        ["logs", "trian"],
    ):
        said = sh(*words)
        assert (said.code, "hint: did you mean job/train?" in said.err) == (3, True), words
    assert "hint: `shoal get nodes` lists them" in sh("cordon", "other").err
    assert "hint: for a job of this name write job/train" in sh("describe", "train").err


def test_a_node_is_no_job(sh: Shell) -> None:
    said = sh("cancel", "node/n1")
    assert (said.code, "nodes do not support cancel" in said.err) == (2, True)
