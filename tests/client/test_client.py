from __future__ import annotations

import doctest
import inspect
import threading
import time

import msgspec
import pytest

from shoal.client import Client
from shoal.client import client as client_module
from shoal.client.submit import job_of
from shoal.objects.errors import Conflict, Exists, Invalid, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, KINDS, NODE, QUEUE
from shoal.objects.meta import Metadata
from shoal.objects.node import DRAIN, Node
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job


def set_phase(server: LiveServer, phase: str) -> None:
    job = server.store.get(Job, "default", "train", actor=SYSTEM)
    server.store.patch_status(
        JOB, "default", "train", actor=SYSTEM, writer="job", uid=job.metadata.uid,
        counter=job.status.writers.get("job", 0), fields={"phase": phase},
    )  # fmt: skip


def test_every_verb_is_an_edit_of_spec(client: Client) -> None:
    client.create(a_job())
    assert client.suspend("default", "train").spec.suspend
    assert not client.resume("default", "train").spec.suspend
    assert client.scale("default", "train", 3).spec.roles[0].replicas == 3
    assert client.cancel("default", "train").spec.cancelled
    assert client.get(Job, "default", "train").metadata.generation == 5


@pytest.mark.slow
def test_the_nodes_verbs(client: Client) -> None:
    client.create(Node(metadata=Metadata(name="n", namespace="")))
    assert client.cordon("n").spec.unschedulable
    assert DRAIN in client.drain("n").spec.taints
    assert client.lost("n").spec.lost
    assert not client.lost("n", False).spec.lost
    spec = client.uncordon("n").spec
    assert (spec.unschedulable, spec.taints) == (False, ())


@pytest.mark.slow
def test_an_edit_goes_around_the_writes_of_others(client: Client) -> None:
    client.create(a_job())
    others = iter(range(1, 6))

    def change(job: Job) -> Job:
        priority = next(others, None)
        if priority is not None:  # somebody else writes between our read and our write
            client.edit(Job, "default", "train", lambda j: _spec(j, priority=priority))
        return _spec(job, suspend=True)

    done = client.edit(Job, "default", "train", change)
    assert (done.spec.suspend, done.spec.priority) == (True, 5)


@pytest.mark.slow
def test_an_edit_gives_up_against_one_who_never_stops(client: Client) -> None:
    client.create(a_job())
    count = iter(range(1, 1000))

    def change(job: Job) -> Job:
        client.edit(Job, "default", "train", lambda j: _spec(j, priority=next(count)))
        return _spec(job, suspend=True)

    with pytest.raises(Conflict):
        client.edit(Job, "default", "train", change)


def test_an_edit_that_changes_nothing_writes_nothing(client: Client) -> None:
    before = client.create(a_job())
    assert client.resume("default", "train") == before
    with pytest.raises(NotFound):
        client.resume("default", "other")


def _spec(job: Job, **fields: object) -> Job:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **fields))


def test_waiting_for_the_end(server: LiveServer, client: Client) -> None:
    client.create(a_job())
    results: list[Job] = []
    waiting = threading.Thread(target=lambda: results.append(client.wait_finished("default", "train")))
    waiting.start()
    set_phase(server, "Running")
    set_phase(server, "Failed")
    waiting.join(20)
    assert [job.status.phase for job in results] == ["Failed"]
    assert client.wait_finished("default", "train").status.phase == "Failed"


@pytest.mark.slow
def test_waiting_ends_in_time(client: Client) -> None:
    client.create(a_job())
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        client.wait_finished("default", "train", 0.1)
    assert time.monotonic() - begun < 10


@pytest.mark.slow
def test_waiting_for_what_is_not_there(client: Client) -> None:
    with pytest.raises(NotFound, match="no job other"):
        client.wait_finished("default", "other", 10)
    timer = threading.Timer(0.1, lambda: client.create(a_job()))
    timer.start()
    made = client.wait(Job, "default", "train", lambda job: job is not None, 20)
    assert made is not None
    timer.join()
    client.delete(JOB, "default", "train")
    assert client.wait(Job, "default", "train", lambda job: job is None, 20) is None


@pytest.mark.slow
def test_waiting_goes_on_when_the_server_restarts(server: LiveServer, client: Client) -> None:
    client.create(a_job())
    waiting = threading.Thread(target=client.wait_finished, args=("default", "train"))
    waiting.start()
    server.stop()
    set_phase(server, "Succeeded")
    server.start()
    waiting.join(20)
    assert not waiting.is_alive()


def test_runs_are_jobs(client: Client) -> None:
    job = client.run(["python", "train.py"], workers=2, cpu="500m", name="mine")
    assert client.get(Job, "default", "mine") == job
    assert job.spec.roles[0].command == ("python", "train.py")


def test_leases_are_taken_in_turns(client: Client, server: LiveServer) -> None:
    with server.client() as rival:
        lease = client.acquire("leader", "a", 30)
        assert lease is not None
        assert rival.acquire("leader", "b", 30) is None
        client.release(lease)
        taken = rival.acquire("leader", "b", 30)
        assert taken is not None
        assert taken.token > lease.token


def test_events_are_asked_for_in_many_ways(client: Client) -> None:
    client.create(a_job("a"))
    client.create(a_job("b", namespace="team"))
    client.suspend("team", "b")
    assert [e.about.name for e in client.events()] == ["a", "b", "b"]
    assert [e.reason for e in client.events(namespace="team")] == ["Created", "Changed"]
    assert [e.reason for e in client.events(kind=JOB, namespace="team", name="b", limit=1)] == [
        "Changed"
    ]
    first = client.events()[0]
    assert [e.about.name for e in client.events(after=first.id)] == ["b", "b"]
    assert client.events(since=time.time() + 100) == ()
    assert client.events(kind=QUEUE) == ()


@pytest.fixture(autouse=True)
def _audit(server: LiveServer) -> None:
    from shoal.history.recorder import Recorder

    server.services.audit.attach(Recorder(server.history, server.services.clock))


@pytest.mark.slow
def test_every_kind_has_a_schema(client: Client) -> None:
    for kind in KINDS.values():
        assert client.schema(kind)["properties"]["spec"]


def test_users_and_their_tokens(client: Client) -> None:
    client.create_user("alice", [("user", "team")])
    with pytest.raises(Exists):
        client.create_user("alice")
    with pytest.raises(Invalid, match="cannot name a user"):
        client.create_user("not a name")
    made = client.create_token("alice", description="laptop", lifetime_seconds=3600)
    assert made.token.startswith("shoal-user-")
    (listed,) = client.tokens()
    assert (listed.id, listed.user, listed.token) == (made.id, "alice", "")
    client.grant("alice", "viewer", "other")
    client.revoke("alice", "team")
    (alice,) = client.users()
    assert alice.bindings == ({"namespace": "other", "role": "viewer"},)
    client.revoke_token(made.id)
    with pytest.raises(NotFound):
        client.revoke_token(made.id)
    client.delete_user("alice")
    assert client.users() == ()


def test_what_has_no_name_is_nowhere(client: Client) -> None:
    with pytest.raises(NotFound, match="its name is empty"):
        client.get(Job, "default", "")
    with pytest.raises(NotFound, match="its name is empty"):
        client.get(Job, "", "train")
    with pytest.raises(NotFound):
        client.record(NODE, "", "none")


def test_names_cannot_lead_elsewhere(client: Client) -> None:
    client.create(a_job())
    for name in ("../default/jobs/train", "train/status", "train?watch=true", "train#x", "..", "%2e"):
        with pytest.raises(NotFound):
            client.get(Job, "default", name)


def test_a_kind_may_be_its_class_its_name_or_itself(client: Client) -> None:
    client.run("python train.py", name="mine", cpu="500m")
    for kind in (JOB, Job, "job", "Jobs", "j"):
        assert [record.object.metadata.name for record in client.list(kind).records] == ["mine"]
        assert client.get(kind, "default", "mine").metadata.name == "mine"
        assert client.explain(kind, "default", "mine").phase == "Pending"
        assert client.events(kind=kind, name="nope") == ()
        assert client.schema(kind)
    with pytest.raises(NotFound, match="there is no kind called 'jbo'") as caught:
        client.list("jbo")
    assert "did you mean Job" in caught.value.hint
    with pytest.raises(NotFound, match="42 is not a kind"):
        client.list(42)  # pyright: ignore[reportArgumentType]
    assert client.delete("job", "default", "mine").object.metadata.name == "mine"


def test_run_has_the_signature_of_job_of(client: Client) -> None:
    build, run = (inspect.signature(each).parameters for each in (job_of, Client.run))
    assert [(p.name, p.default, p.annotation) for p in build.values()] == [
        (p.name, p.default, p.annotation) for p in run.values() if p.name != "self"
    ]
    with pytest.raises(TypeError, match="worker"):
        client.run("true", worker=2)  # pyright: ignore[reportCallIssue]


@pytest.mark.slow
def test_the_examples_of_the_docstrings_are_true(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(server.home.path))
    monkeypatch.delenv("SHOAL_API", raising=False)
    failed, tried = doctest.testmod(client_module)
    assert (failed, tried > 5) == (0, True)
