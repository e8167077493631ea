"""What an elastic job's own tasks ask of the platform, over the socket that tasks see."""

from __future__ import annotations

import http.client
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.client import Client
from shoal.cluster.local import home as homes
from shoal.history.base import Entry
from shoal.objects.account import RoleBinding
from shoal.objects.elastic import with_coordinator
from shoal.objects.errors import Invalid
from shoal.objects.job import Job, Role
from shoal.objects.job_kind import scaled
from shoal.objects.kinds import JOB
from shoal.objects.membership import LARGEST_RECORD
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM
from shoal.store.sql import open_sql
from tests.server.harness import LiveServer, a_job
from tests.support.postgres import PostgresServer, postgres_server


class Task:
    """A task of a job, started in some attempt, with nothing but the standard library."""

    def __init__(self, server: LiveServer, job: Job, attempt: int = 1, token: str = "") -> None:
        self._path = server.home.tasks_socket
        self.token = token or server.job_tokens.mint(job, attempt)

    def ask(self, method: str, path: str = "", body: Any = None) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("shoal", timeout=20)
        connection.sock = homes.connect(self._path, 20.0)
        try:
            text = None if body is None else msgspec.json.encode(body)
            headers = {"Authorization": f"Bearer {self.token}"}
            connection.request(method, f"/api/v1/elastic{path}", text, headers)
            answer = connection.getresponse()
            return answer.status, msgspec.json.decode(answer.read())
        finally:
            connection.close()

    def record(self) -> tuple[str, str | None]:
        status, said = self.ask("GET")
        assert status == 200, said
        return said["version"], said["record"]

    def put(self, version: str, record: str) -> tuple[int, dict[str, Any]]:
        return self.ask("PUT", body={"version": version, "record": record})


def elastic(server: LiveServer, name: str = "train", least: int = 1, most: int = 4) -> Job:
    roles = (Role(command=("true",), replicas=most, min_replicas=least),)
    job = a_job(name, roles=roles, runtime="elastic")
    spec = with_coordinator(job.spec, "python")
    return server.store.create(msgspec.structs.replace(job, spec=spec), actor=SYSTEM)


def status(server: LiveServer, job: Job, **fields: Any) -> Job:
    """Play the job controller."""
    meta = job.metadata
    now = server.store.get(Job, meta.namespace, meta.name, actor=SYSTEM)
    return server.store.patch_status(
        JOB, meta.namespace, meta.name, actor=SYSTEM, writer="job", uid=meta.uid,
        counter=now.status.writers.get("job", 0), fields=fields,
    ).object  # fmt: skip


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.slow])]
)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LiveServer]:
    """A server on each kind of store."""
    if request.param == "memory":
        kept = None
    elif request.param == "sqlite":
        kept = open_sql(tmp_path / "store.db", authorise=authorise)
    else:
        database: PostgresServer = request.getfixturevalue("postgres")
        kept = open_sql(database.database(), authorise=authorise)
    live = LiveServer(tmp_path / "home", store=kept)
    yield live
    live.close()


def test_a_record_is_kept_by_compare_and_set(either: LiveServer) -> None:
    task = Task(either, elastic(either))
    assert task.ask("GET") == (
        200,
        {"version": "", "record": None, "target": None, "minimum": 1, "maximum": 4},
    )
    code, said = task.put("", "one")
    assert code == 200
    assert task.record() == (said["version"], "one")
    code, again = task.put(said["version"], "two")
    assert code == 200
    assert task.record() == (again["version"], "two")
    for stale in ("", said["version"], "nonsense"):
        code, refusal = task.put(stale, "three")
        assert (code, refusal["code"]) == (409, "Conflict")
    assert task.record() == (again["version"], "two")


@pytest.mark.slow
def test_of_many_that_write_at_once_one_does(either: LiveServer) -> None:
    job = elastic(either)
    for version in ("", None):
        known = Task(either, job).record()[0] if version is None else version
        with ThreadPoolExecutor(8) as pool:
            writes = [pool.submit(Task(either, job).put, known, f"{known} {n}") for n in range(8)]
        assert sorted(write.result()[0] for write in writes) == [200] + [409] * 7


@pytest.mark.slow
def test_it_survives_the_server(either: LiveServer) -> None:
    task = Task(either, elastic(either))
    task.put("", "kept")
    before = task.record()
    either.stop()
    either.start()
    assert task.record() == before


def test_a_record_may_be_large_but_not_larger(server: LiveServer) -> None:
    task = Task(server, elastic(server))
    code, said = task.put("", "x" * LARGEST_RECORD)
    assert code == 200
    code, refusal = task.put(said["version"], "é" * (LARGEST_RECORD // 2 + 1))
    assert (code, refusal["code"]) == (422, "Invalid")
    assert str(LARGEST_RECORD) in refusal["message"]
    assert task.record()[1] == "x" * LARGEST_RECORD


def test_each_jobs_tasks_have_their_own(server: LiveServer) -> None:
    one, two = Task(server, elastic(server, "one")), Task(server, elastic(server, "two"))
    version = one.put("", "of one")[1]["version"]
    assert two.record() == ("", None)
    assert two.put(version, "of two")[0] == 409
    assert two.put("", "of two")[0] == 200
    assert one.record() == (version, "of one")


def test_a_later_job_of_the_name_starts_afresh(server: LiveServer) -> None:
    job = elastic(server)
    before = Task(server, job)
    before.put("", "old")
    server.store.delete(JOB, "default", "train", actor=SYSTEM)
    after = Task(server, elastic(server))
    assert after.record() == ("", None)
    code, refusal = before.ask("GET")
    assert (code, refusal["code"]) == (401, "Unauthenticated")


def test_a_task_of_an_earlier_attempt_is_refused_everything(either: LiveServer) -> None:
    """training-N12: what an older attempt still says changes nothing."""
    job = elastic(either)
    first = Task(either, job, attempt=1)
    version = first.put("", "of attempt 1")[1]["version"]
    status(either, job, attempt=2)
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {"version": version, "record": "late"}),
        ("POST", "/report", {"world": 1, "step": 1}),
        ("POST", "/resize", {"replicas": 3}),
    ):
        code, refusal = first.ask(method, path, body)
        assert (code, refusal["code"]) == (409, "Conflict"), path
        assert "attempt 1" in refusal["message"]
        assert "attempt 2" in refusal["message"]
    second = Task(either, job, attempt=2)
    assert second.record() == (version, "of attempt 1"), "what the one before knew is not lost"
    assert second.put(version, "of attempt 2")[0] == 200


def test_who_wrote_last_fences_too(server: LiveServer) -> None:
    """The record itself says its attempt, should the job's status be behind."""
    job = elastic(server)
    later = Task(server, job, attempt=2)
    later.put("", "of attempt 2")
    assert Task(server, job, attempt=1).ask("GET")[0] == 409


@pytest.mark.parametrize("path", ["", "/report", "/resize"])
def test_only_a_jobs_own_tasks_are_answered(server: LiveServer, path: str) -> None:
    job = elastic(server)
    method = "POST" if path else "GET"
    server.accounts.create_user("alice", (RoleBinding(role="admin"),), actor=SYSTEM)
    users = server.accounts.create_token("alice", "", 0.0, actor=SYSTEM)[1]
    for token in ("nonsense", users, "shoal-job-AAAA.BBBB"):
        code, refusal = Task(server, job, token=token).ask(method, path, {} if path else None)
        assert (code, refusal["code"]) == (401, "Unauthenticated")


def test_the_owner_is_not_a_task(server: LiveServer) -> None:
    elastic(server)
    with homes.connect(server.home.api_socket, 20.0) as sock:
        assert _plain_get(sock, "/api/v1/elastic") == 401


def test_nobody_reads_records_as_objects(server: LiveServer) -> None:
    """Its key would let whoever reads it join the job."""
    Task(server, elastic(server)).put("", "secret")
    for path in ("/api/v1/memberships", "/api/v1/namespaces/default/memberships/train"):
        with homes.connect(server.home.api_socket, 20.0) as sock:
            assert _plain_get(sock, path) == 404


def test_a_job_that_is_not_elastic_has_none(server: LiveServer) -> None:
    job = server.store.create(a_job("plain"), actor=SYSTEM)
    code, refusal = Task(server, job).ask("GET")
    assert (code, refusal["code"]) == (404, "NotFound")
    assert "not elastic" in refusal["message"]


def test_a_finished_jobs_token_is_worthless(server: LiveServer) -> None:
    job = elastic(server)
    status(server, job, phase="Succeeded")
    assert Task(server, job).ask("GET")[0] == 401


def test_it_says_how_many_members_to_expect(server: LiveServer) -> None:
    """Slots, and tasks on their way out: who loses a slot is told by its notice and by nobody else."""
    job = elastic(server, least=2, most=6)
    server.store.patch_status(
        JOB, "default", "train", actor=SYSTEM, writer="scheduler", uid=job.metadata.uid, counter=0,
        fields={"allocation": {"id": 1, "slots": [
            {"role": "worker", "indices": "0-2", "node": "n0"},
            {"role": "coordinator", "indices": "0", "node": "n0"},
        ]}},
    )  # fmt: skip
    task = Task(server, job)
    _, said = task.ask("GET")
    assert (said["target"], said["minimum"], said["maximum"]) == (3, 2, 6)
    status(server, job, roles=[{"name": "worker", "running": 5}])
    assert task.ask("GET")[1]["target"] == 5


def test_bad_bodies(server: LiveServer) -> None:
    task = Task(server, elastic(server))
    for method, path, body in (
        ("PUT", "", {"version": "", "record": 5}),
        ("PUT", "", {"record": "x"}),
        ("PUT", "", []),
        ("POST", "/report", {"world": -1}),
        ("POST", "/report", {"world": 1, "recoveries": [{"seconds": -0.1}]}),
        ("POST", "/report", {"world": 1, "state": "x" * 65}),
        ("POST", "/resize", {"replicas": 0}),
    ):
        code, refusal = task.ask(method, path, body)
        assert (code, refusal["code"]) == (422, "Invalid"), body


def test_a_report_is_in_the_status_and_in_history(server: LiveServer) -> None:
    job = elastic(server)
    task = Task(server, job)
    recovery = {"epoch": 3, "seconds": 0.12, "how": "rerun", "lostSteps": 0, "world": 1}
    first = {"world": 2, "step": 10, "goodput": 0.99, "stepSeconds": 0.02, "state": "running"}
    assert task.ask("POST", "/report", first) == (200, {})
    for _ in range(2):  # told twice, as after an answer that was lost
        told = {**first, "world": 1, "step": 12, "recoveries": [recovery], "newer": True}
        assert task.ask("POST", "/report", told)[0] == 200
    said = server.store.get(Job, "default", "train", actor=SYSTEM).status.elastic
    assert said is not None
    assert (said.world, said.step, said.state, said.recoveries) == (1, 12, "running", 1)
    assert said.recovery_seconds == pytest.approx(0.12)
    assert [each.size for each in said.sizes] == [2, 1]
    assert said.last_recoveries[0].how == "rerun"
    metrics = _metrics(server)
    assert [each.value for each in metrics["world_size"]] == [2, 1]
    assert [each.value for each in metrics["recovery_seconds"]] == [0.12]
    assert metrics["recovery_seconds"][0].data == {"how": "rerun", "epoch": "3"}
    assert {"goodput_ratio", "step_seconds", "lost_steps_total"} <= metrics.keys()
    events = server.history.entries(types=("event",))
    assert [each.reason for each in events] == ["TrainingRunning", "Recovered"]


def test_reports_share_one_recorder_so_events_that_repeat_are_counted(server: LiveServer) -> None:
    task = Task(server, elastic(server))
    for message in ("worker 1 left", "worker 1 is back", "worker 1 left"):
        assert task.ask("POST", "/report", {"world": 2, "message": message}) == (200, {})
    events = server.history.entries(types=("event",))
    assert {each.message: each.count for each in events} == {"worker 1 left": 2, "worker 1 is back": 1}


def test_reports_leave_the_job_controllers_fields_alone(server: LiveServer) -> None:
    job = elastic(server)
    Task(server, job).ask("POST", "/report", {"world": 1, "step": 1})
    after = status(server, job, phase="Running")
    assert after.status.elastic is not None
    assert after.status.phase == "Running"


def test_a_script_asks_for_another_size(server: LiveServer) -> None:
    job = elastic(server, least=2, most=4)
    task = Task(server, job)
    assert task.ask("POST", "/resize", {"replicas": 3}) == (200, {})
    assert task.ask("GET")[1]["maximum"] == 3
    code, refusal = task.ask("POST", "/resize", {"replicas": 1})
    assert (code, refusal["code"]) == (422, "Invalid")


@pytest.mark.slow
def test_a_job_never_asks_for_more_than_users_did(server: LiveServer) -> None:
    """The token is in the hands of the job's code, which the platform does not trust."""
    job = elastic(server, least=2, most=4)
    task = Task(server, job)
    for size, code in ((5, 422), (2, 200), (4, 200), (50, 422), (3, 200), (4, 200)):
        assert task.ask("POST", "/resize", {"replicas": size})[0] == code, size
    _, refusal = task.ask("POST", "/resize", {"replicas": 50})
    assert (
        refusal["message"] == "the job may have at most 4 tasks of role worker, as its submitter asked"
    )
    assert "shoal scale" in refusal["hint"]
    for most in (6, 3):  # a user raises, then lowers it
        with server.client() as owner:
            owner.edit(
                Job, job.metadata.namespace, job.metadata.name, lambda now, n=most: scaled(now, n)
            )
        assert task.ask("POST", "/resize", {"replicas": most + 1})[0] == 422
        assert task.ask("POST", "/resize", {"replicas": 2})[0] == 200
        assert task.ask("POST", "/resize", {"replicas": most})[0] == 200


def test_a_resize_is_audited(server: LiveServer) -> None:
    job = elastic(server, least=2, most=4)
    Task(server, job).ask("POST", "/resize", {"replicas": 3})
    server.services.audit.attach(server.services.recorder)
    (entry,) = server.history.entries(types=("audit",))
    assert (entry.reason, entry.data["actor"]) == ("resize", "job:default/train")
    assert entry.data["before"] != entry.data["after"]


@pytest.mark.slow
def test_a_poll_is_cheap(either: LiveServer) -> None:
    """One every half second from each job: a hundred jobs must not be felt."""
    task = Task(either, elastic(either))
    task.put("", "x" * 8192)
    task.ask("GET")
    threads = time.process_time()
    for _ in range(100):
        task.ask("GET")
    each = (time.process_time() - threads) / 100
    print(f"{each * 1e3:.2f} ms of processor a poll, client included")
    assert each < 0.02


def _metrics(server: LiveServer) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in server.history.entries(types=("metric",)):
        found.setdefault(entry.reason, []).append(entry)
    return found


def _plain_get(sock: socket.socket, path: str) -> int:
    connection = http.client.HTTPConnection("shoal", timeout=20)
    connection.sock = sock
    connection.request("GET", path)
    return connection.getresponse().status


def test_admission_adds_the_coordinator(server: LiveServer, client: Client) -> None:
    role = Role(command=("python3", "x.py"), replicas=4, min_replicas=1)
    wanted = a_job(roles=(role,), runtime="elastic")
    made = client.create(wanted)
    assert [each.name for each in made.spec.roles] == ["worker", "coordinator"]
    assert made.spec.roles[1].command[0] == "python3"
    assert client.apply(wanted).result == "unchanged", "a file without it says the same"
    larger = a_job(roles=(msgspec.structs.replace(role, replicas=6),), runtime="elastic")
    assert client.apply(larger).result == "changed"
    assert client.get(Job, "default", "train").spec.roles[1] == made.spec.roles[1]
    with pytest.raises(Invalid, match="platform adds the role coordinator"):
        client.create(
            a_job("mine", roles=(role, Role(name="coordinator", command=("x",))), runtime="elastic")
        )


def test_where_the_command_is_not_python_the_servers_serves(client: Client) -> None:
    made = client.create(
        a_job(roles=(Role(command=("bash", "x.sh"), min_replicas=1),), runtime="elastic")
    )
    assert made.spec.roles[1].command[0] == sys.executable
