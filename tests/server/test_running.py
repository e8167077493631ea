"""Real jobs through the client, the server's process, an agent and supervisors."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shoal.client import Client
from shoal.client.session import RemoteSession
from shoal.objects.errors import Invalid, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.testing.local import LocalHome, nodes
from tests.server.harness import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECONDS = 60.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHome]:
    home = tmp_path_factory.mktemp("running") / "home"
    with LocalHome(home, nodes(one={"cpu": 4000}, two={"cpu": 4000}), server=True) as up:
        yield up


@pytest.fixture
def client(local: LocalHome) -> Iterator[Client]:
    with Client.connect(local.home.path) as connected:
        yield connected


def sh(client: Client, script: str, **options: object) -> Job:
    return client.run(["sh", "-c", textwrap.dedent(script)], cpu="100m", restarts=0, **options)


def python(client: Client, script: str, **options: object) -> Job:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return client.run(command, cpu="100m", restarts=0, **options)


def output(client: Client, job: Job) -> str:
    """All that the job writes until it has finished."""
    meta = job.metadata
    return b"".join(r.data for r in client.logs(meta.namespace, meta.name, follow=True)).decode()


def finished(client: Client, job: Job) -> Job:
    return client.wait_finished(job.metadata.namespace, job.metadata.name, SECONDS)


def running(client: Client, job: Job) -> None:
    eventually(
        lambda: (
            [t.phase for t in client.tasks(job.metadata.namespace, job.metadata.name)]
            == ["Running"] * job.spec.roles[0].replicas
        ),
        SECONDS,
    )


@pytest.fixture
def holding(client: Client) -> Iterator[Job]:
    """A job of two tasks that run until the test ends."""
    job = sh(client, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done", workers=2)
    running(client, job)
    yield job
    client.cancel("default", job.metadata.name)
    finished(client, job)


def collected(session: RemoteSession) -> tuple[str, str, int]:
    """Output, errors and exit code."""
    parts = {"out": b"", "err": b""}
    while True:
        what, data = session.receive()
        if what == "exit":
            session.close()
            return parts["out"].decode(), parts["err"].decode(), int(data)
        parts[what] += data


def test_a_job_runs_and_is_told_of(client: Client) -> None:
    job = sh(client, "echo hello; exit 3")
    name = job.metadata.name
    assert output(client, job) == "hello\n"
    done = finished(client, job)
    assert (done.status.phase, done.status.exit_code) == ("Failed", 3)
    (attempt,) = client.attempts("default", name)
    assert (attempt.data["exitCode"], attempt.severity) == (3, "Warning")
    reasons = [entry.reason for entry in client.events(kind=JOB, namespace="default", name=name)]
    assert reasons[0] == "Created"
    told = client.explain(JOB, "default", name)
    assert (told.phase, told.kind) == ("Failed", "Job")
    assert told.events


def test_what_a_task_is_told_of_the_platform(client: Client, local: LocalHome) -> None:
    job = sh(client, 'echo "$SHOAL_API"; stat -c %a "$SHOAL_TOKEN_FILE"; cat "$SHOAL_TOKEN_FILE"')
    api, mode, token = output(client, job).splitlines()
    assert (api, mode) == (f"unix://{local.home.tasks_socket}", "600")
    assert token.startswith("shoal-job-")


def test_a_task_may_look_at_itself_and_do_no_more(client: Client, local: LocalHome) -> None:
    other = sh(client, "true")
    job = python(
        client,
        f"""
        from shoal.client import Client
        from shoal.objects.errors import ShoalError
        from shoal.objects.job import Job
        from shoal.objects.kinds import JOB, NODE
        import os

        def said(action):
            try:
                return action()
            except (ShoalError, OSError) as error:
                return getattr(error, "code", type(error).__name__)

        me = os.environ["SHOAL_JOB"]
        with Client.connect() as platform:
            print(said(lambda: platform.get(Job, "default", me).metadata.name))
            print(said(lambda: len(platform.tasks("default", me))))
            print(said(lambda: platform.get(Job, "default", {other.metadata.name!r})))
            print(said(lambda: platform.list(JOB)))
            print(said(lambda: platform.cancel("default", me)))
        with Client.connect({str(local.home.path)!r}) as owners:
            print(said(lambda: owners.list(JOB)))
        """,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    name, tasks, *refused, door = output(client, job).splitlines()
    assert (name, tasks) == (job.metadata.name, "1")
    assert refused == ["Forbidden"] * 3
    assert door in ("Forbidden", "Unavailable")  # refused, or, isolated, not even seen


def test_exec_carries_input_output_and_exit_code(client: Client, holding: Job) -> None:
    session = client.exec("default", holding.metadata.name, ["sh", "-c", "cat; echo no >&2; exit 7"])
    raw = "two\nlines\x00\n"
    session.send(raw.encode())
    session.send(b"")
    assert collected(session) == (raw, "no\n", 7)


def test_exec_carries_much_both_ways(client: Client, holding: Job) -> None:
    session = client.exec("default", holding.metadata.name, ["cat"])
    data = bytes(range(256)) * 8192  # 2 MB

    def send() -> None:
        session.send(data)
        session.send(b"")

    sender = threading.Thread(target=send)
    sender.start()
    out = b""
    while True:
        what, piece = session.receive()
        if what == "exit":
            break
        out += piece
    sender.join(20)
    session.close()
    assert out == data


def test_exec_chooses_the_task(client: Client, holding: Job) -> None:
    name = holding.metadata.name
    for index in (0, 1):
        session = client.exec("default", name, ["sh", "-c", "echo $SHOAL_INDEX"], index=index)
        assert collected(session)[0] == f"{index}\n"
    for wrong in ({"index": 2}, {"role": "ps"}):
        with pytest.raises(NotFound, match="does not run now"):
            client.exec("default", name, ["true"], **wrong)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        client.exec("default", "no-such-job", ["true"])
    with pytest.raises(Invalid, match="no command"):
        client.exec("default", name, [])


def test_exec_says_that_a_command_is_not_there(client: Client, holding: Job) -> None:
    session = client.exec("default", holding.metadata.name, ["no-such-command"])
    assert collected(session)[2] in (126, 127)


def test_exec_with_a_terminal(client: Client, holding: Job) -> None:
    session = client.exec(
        "default", holding.metadata.name, ["sh", "-c", "test -t 0 && sleep 0.2 && stty size"], tty=True
    )
    session.resize(33, 101)
    out, _, code = collected(session)
    assert (out.strip(), code) == ("33 101", 0)


def test_a_command_ends_with_its_client(client: Client, holding: Job, tmp_path: Path) -> None:
    name = holding.metadata.name
    mark = f"9{os.getpid()}"  # found in no other command line
    session = client.exec("default", name, ["sh", "-c", f"echo there; exec sleep {mark}"])
    assert session.receive() == ("out", b"there\n")
    session.close()

    def gone() -> bool:
        look = client.exec("default", name, ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        return f"sleep {mark}" not in collected(look)[0]

    eventually(gone, SECONDS)


def test_mpis_remote_shell_reaches_its_own_jobs_tasks(client: Client) -> None:
    other = sh(client, "sleep 60")
    job = sh(
        client,
        f"""
        if [ "$SHOAL_INDEX" = 1 ]; then exec sleep 60; fi
        rsh() {{ {sys.executable} -P -m shoal.client.rsh "$@" </dev/null; echo "code $?"; }}
        until rsh worker-1 true | grep -q 'code 0'; do sleep 0.1; done
        rsh worker-1 'echo "at $SHOAL_INDEX";' exit 5
        SHOAL_JOB={other.metadata.name} rsh worker-0 true 2>/dev/null
        rsh nonsense 2>/dev/null
        """,
        workers=2,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    text = ""
    with closing(client.logs("default", job.metadata.name, follow=True, index=0)) as reader:
        while text.count("code") < 3:
            text += next(reader).data.decode()
    client.cancel("default", other.metadata.name)
    client.cancel("default", job.metadata.name)
    assert text.splitlines() == ["at 1", "code 5", "code 255", "code 255"]
    finished(client, job)
    finished(client, other)


def test_usage_and_nodes(client: Client, holding: Job) -> None:
    report = client.usage()
    assert [node.name for node in report.nodes] == ["one", "two"]
    assert sum(node.requested_cpu for node in report.nodes) == 200
    mine = [task for task in report.tasks if task.job == holding.metadata.name]
    assert [task.index for task in mine] == [0, 1]
    assert all(task.memory_bytes > 0 for task in mine)
    assert client.usage("elsewhere").tasks == ()
    eventually(lambda: client.explain(NODE, "", "one").phase == "Ready")
    assert "1 running, 0 pending" in client.explain(QUEUE, "", "default").message


def test_a_waiting_job_is_explained(client: Client, holding: Job) -> None:
    large = client.run(["true"], cpu="4", workers=2)
    small = client.run(["true"], cpu="4", workers=2, priority="experiment")
    name = small.metadata.name
    eventually(lambda: client.explain(JOB, "default", name).code == "NoRoom", SECONDS)
    told = client.explain(JOB, "default", name)
    assert "for lack of CPU" in told.message
    assert told.remedy
    assert told.evidence
    assert told.ahead == (f"default/{large.metadata.name}",)
    for job in (large, small):
        client.cancel("default", job.metadata.name)
        finished(client, job)


def test_what_fits_on_no_node_is_accepted_with_a_warning_and_waits(client: Client) -> None:
    def sizes() -> list[int]:
        return [record.object.status.capacity.cpu for record in client.list(NODE).records]

    eventually(lambda: bool(sizes()) and all(sizes()), SECONDS)
    told: list[str] = []
    client.transport.on_warning = told.append
    name = client.run(["true"], cpu="5").metadata.name
    assert [sentence.partition(": ")[2] for sentence in told] == [
        "a worker asks for 5 cpu, and the largest node has 4"
    ]
    eventually(lambda: client.explain(JOB, "default", name).code == "TooLarge", SECONDS)
    client.cancel("default", name)


def test_the_server_is_killed_and_nothing_is_lost(client: Client, local: LocalHome) -> None:
    job = sh(client, "echo before; while [ ! -e $SHOAL_OUTPUT/go ]; do sleep 0.05; done; echo after")
    name = job.metadata.name
    running(client, job)
    reader = client.logs("default", name, follow=True)
    assert next(reader).data == b"before\n"
    watch = client.watch_object(JOB, "default", name)
    local.kill("server")
    begun = time.monotonic()
    again = client.create(job_named(f"{name}-2"))  # waits for the server, which the agents restart
    assert time.monotonic() - begun < 20
    (local.home.output / "default" / job.metadata.uid / "go").touch()
    assert b"".join(record.data for record in reader) == b"after\n"
    done = finished(client, job)
    assert (done.status.phase, done.status.attempt) == ("Succeeded", 1)
    phases: list[str] = []
    while "Succeeded" not in phases:
        phases += [event.record.object.status.phase for event in watch.wait(SECONDS) if event.record]
    watch.close()
    assert finished(client, again).status.phase == "Succeeded"


def test_a_deleted_job_leaves_its_history(client: Client) -> None:
    job = sh(client, "echo words")
    finished(client, job)
    client.delete(JOB, "default", job.metadata.name)
    eventually(lambda: not there(client, job))
    assert client.attempts("default", job.metadata.name, uid=job.metadata.uid)
    with pytest.raises(NotFound):
        client.logs("default", job.metadata.name)


def there(client: Client, job: Job) -> bool:
    try:
        client.get(Job, "default", job.metadata.name)
    except NotFound:
        return False
    return True


def job_named(name: str) -> Job:
    from shoal.client.submit import job_of

    return job_of(["true"], name=name, cpu="100m")


def test_readiness_and_version(client: Client, local: LocalHome) -> None:
    eventually(lambda: client.readiness().ready, SECONDS)  # it answers before all of it has started
    told = client.version()
    assert (told.pid, told.home) == (local.pid("server"), str(local.home.path))
