"""Who comes in through which door, over real sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.cluster.local.launch import SUPERVISOR
from shoal.objects.account import RoleBinding
from shoal.objects.errors import Forbidden, Unauthenticated
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.server.peer import Peer
from shoal.store.base import SYSTEM
from tests.server.harness import LiveServer, a_job


@pytest.fixture
def tcp_server(tmp_path: Path) -> Iterator[LiveServer]:
    live = LiveServer(tmp_path / "home", tcp=True)
    yield live
    live.close()


def tasks_client(server: LiveServer, token: str = "") -> Client:
    return Client.connect(url=f"unix://{server.home.tasks_socket}", token=token)


def finish(server: LiveServer, job: Job) -> None:
    server.store.patch_status(
        JOB,
        job.metadata.namespace,
        job.metadata.name,
        actor=SYSTEM,
        writer="job",
        uid=job.metadata.uid,
        counter=0,
        fields={"phase": "Succeeded"},
    )


@pytest.mark.slow
def test_the_owner_is_known_by_name(server: LiveServer, client: Client) -> None:
    import pwd

    made = client.create(a_job())
    assert made.metadata.submitter == pwd.getpwuid(os.getuid()).pw_name


def test_another_user_is_sent_away(server: LiveServer) -> None:
    stranger = {"listener": "api", "peer": Peer(pid=1, uid=os.getuid() + 1)}
    assert server.services.authenticator is not None
    with pytest.raises(Forbidden, match="belongs to"):
        asyncio.run(server.services.authenticator.actor(stranger, ""))


def test_the_sockets_are_the_owners(server: LiveServer) -> None:
    for path in (server.home.api_socket, server.home.tasks_socket):
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_tasks_door_wants_a_jobs_token(server: LiveServer) -> None:
    server.accounts.create_user("alice", (RoleBinding(role="admin"),), actor=SYSTEM)
    person = server.accounts.create_token("alice", "", 0.0, actor=SYSTEM)[1]
    for token in ("", "nonsense", person):
        with tasks_client(server, token) as client, pytest.raises(Unauthenticated, match="for tasks"):
            client.list(JOB)


@pytest.mark.slow
def test_a_task_reads_its_own_job_and_no_other(server: LiveServer, client: Client) -> None:
    made = client.create(a_job("mine"))
    client.create(a_job("other"))
    with tasks_client(server, server.token_of("default", "mine")) as task:
        assert task.get(Job, "default", "mine") == made
        for call in (
            lambda: task.get(Job, "default", "other"),
            lambda: task.list(JOB),
            lambda: task.cancel("default", "mine"),
            lambda: task.create(a_job("new")),
            lambda: task.delete(JOB, "default", "other"),
            lambda: task.apply(a_job("other", priority=5)),
            lambda: list(task.logs("default", "other")),
            lambda: task.audit(),
            lambda: task.users(),
            lambda: task.create_user("eve"),
            lambda: task.tokens(),
            lambda: task.transport.request("GET", "/metrics"),
            lambda: task.exec("default", "other", ["true"]),
            lambda: task.tasks("default", "other"),
            lambda: task.events(),
            lambda: task.usage(),
            lambda: task.explain(JOB, "default", "other"),
            lambda: task.create_token(),
            lambda: task.watch_object(JOB, "default", "mine"),
        ):
            with pytest.raises(Forbidden):
                call()
        assert task.version().home == ""


def test_a_jobs_token_ends_with_its_job(server: LiveServer, client: Client) -> None:
    first = client.create(a_job("mine"))
    token = server.token_of("default", "mine")
    with tasks_client(server, token) as task:
        task.get(Job, "default", "mine")
        finish(server, first)
        with pytest.raises(Unauthenticated, match="has finished"):
            task.get(Job, "default", "mine")
        client.delete(JOB, "default", "mine")
        with pytest.raises(Unauthenticated, match="is gone"):
            task.get(Job, "default", "mine")
        client.create(a_job("mine"))  # of the same name, and another one
        with pytest.raises(Unauthenticated, match="is gone"):
            task.get(Job, "default", "mine")


@pytest.mark.slow
def test_a_jobs_token_limits_its_bearer_at_every_door(tcp_server: LiveServer) -> None:
    with tcp_server.client() as owner:
        owner.create(a_job("mine"))
    token = tcp_server.token_of("default", "mine")
    for client in (
        tcp_server.client(token=token),
        Client.connect(url=tcp_server.url, token=token, **tcp_server.trust),
    ):
        with client, pytest.raises(Forbidden):
            client.list(JOB)


@pytest.mark.slow
def test_tcp_wants_a_persons_token(tcp_server: LiveServer) -> None:
    url, trust = tcp_server.url, tcp_server.trust
    with tcp_server.client() as owner:
        owner.create_user("alice", [("user", "default")])
        made = owner.create_token("alice")
        token = made.token
        with Client.connect(url=url, token=token, **trust) as alice:
            assert alice.create(a_job()).metadata.submitter == "alice"
        with (
            Client.connect(url=url, **trust) as nobody,
            pytest.raises(Unauthenticated, match="needs a token"),
        ):
            nobody.list(JOB)
        owner.revoke_token(made.id)
        with Client.connect(url=url, token=token, **trust) as alice, pytest.raises(Unauthenticated):
            alice.list(JOB)


def test_health_needs_no_right(tcp_server: LiveServer) -> None:
    with Client.connect(url=tcp_server.url, **tcp_server.trust) as nobody:
        assert nobody.transport.request("GET", "/healthz").body == b"ok\n"
        assert nobody.readiness().ready


CALL = """
    import sys
    from shoal.client import Client
    from shoal.objects.errors import ShoalError
    from shoal.objects.kinds import JOB
    try:
        with Client.connect({home!r}) as client:
            client.list(JOB)
    except ShoalError as error:
        print(error.code, error.message)
    else:
        print("let in")
"""


@pytest.mark.process
@pytest.mark.slow
def test_a_process_of_a_task_is_sent_away(server: LiveServer, tmp_path: Path) -> None:
    """A script that is called as supervisors are is one, as far as anybody can tell."""
    call = textwrap.dedent(CALL.format(home=str(server.home.path)))
    plain = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)
    assert plain.stdout == "let in\n"
    runner = tmp_path / "elsewhere" / Path(*Path(SUPERVISOR).parts[-4:])
    runner.parent.mkdir(parents=True)
    runner.write_text("import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])")
    below = subprocess.run(
        [sys.executable, str(runner), call], capture_output=True, text=True, check=True
    )
    assert below.stdout.startswith("Forbidden the calling process was started by a task")
