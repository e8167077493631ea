"""The process around a server: one per home, up early, ended cleanly, killed anywhere."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shoal import __version__
from shoal.client import Client
from shoal.cluster.local import components, nodes
from shoal.cluster.local.home import Home
from shoal.cluster.local.shutdown import shut_down
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.server.listeners import server_tls
from tests.server.harness import a_job, eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Process:
    """A server started as its command line says."""

    def __init__(
        self,
        home: Path,
        log: Path,
        *words: str,
        environment: dict[str, str] | None = None,
        inherits: tuple[int, ...] = (),
    ) -> None:
        self.home = home
        self.log = log
        command = [sys.executable, "-P", "-m", "shoal.server", "--home", str(home), *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=inherits,
            )

    def client(self) -> Client:
        """Connected to this very process."""
        eventually(lambda: self._answers() or self.process.poll() is not None, 60)
        assert self.process.poll() is None, self.log.read_text()
        return Client.connect(self.home)

    def ended(self) -> int:
        return self.process.wait(60)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def _answers(self) -> bool:
        try:
            with Client.connect(self.home) as client:
                return client.version().pid == self.process.pid
        except Unavailable:
            return False


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait()


@pytest.fixture
def start(started: list[Process], tmp_path: Path) -> object:
    def run(*words: str, home: Path = tmp_path / "home", **environment: str) -> Process:
        log = tmp_path / f"{len(started)}.log"
        started.append(Process(home, log, *words, environment=environment))
        return started[-1]

    return run


def test_it_ends_cleanly_and_keeps_what_it_was_told(start) -> None:
    first = start()
    with first.client() as client:
        made = client.create(a_job())
        watch = client.watch(JOB, version=client.list(JOB).version)
        told = msgspec.json.decode((first.home / "server.json").read_bytes())
        assert (told["pid"], told["version"]) == (first.process.pid, __version__)
        assert first.stop() == 0
        assert not (first.home / "server.json").exists()
        assert "Traceback" not in first.log.read_text()
        second = start()
        second.client().close()
        there = client.get(Job, "default", "train")
        assert (there.metadata.uid, there.spec) == (made.metadata.uid, made.spec)
        client.suspend("default", "train")
        seen: list[bool] = []
        while True not in seen:
            seen += [event.record.object.spec.suspend for event in watch.wait(30) if event.record]
        watch.close()
    assert second.stop() == 0


def test_files_that_a_shell_had_open_do_not_reach_the_agents(tmp_path: Path) -> None:
    """Nor then the tasks and the commands beside them, which agents start."""
    home = Home(tmp_path / "home").create()
    nodes.save(home, nodes.declare())
    secret = tmp_path / "secret"
    with secret.open("w") as file:
        process = Process(home.path, tmp_path / "0.log", inherits=(file.fileno(),))
    agent = home.component_lock(components.component_of("local"))
    try:
        eventually(lambda: bool(agent.holder()), 60)
        assert str(secret) in open_files(process.process.pid)
        assert str(secret) not in open_files(agent.holder() or 0)
    finally:
        shut_down(home)
        process.ended()


def open_files(pid: int) -> set[str]:
    return {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}


def test_there_is_never_a_second_one(start) -> None:
    first = start()
    first.client().close()
    second = start()
    assert second.ended() == 4
    assert f"process {first.process.pid}" in second.log.read_text()
    first.client().close()
    assert first.stop() == 0


def test_a_wrong_command_line_is_answered_with_the_right_one(start) -> None:
    wrong = start("--hoem", "/x")
    assert wrong.ended() == 2
    assert "usage: python -m shoal.server" in wrong.log.read_text()


def test_a_store_that_cannot_be_opened_is_said(start, tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    home.store_db.write_bytes(b"this is no database" * 1000)
    broken = start()
    assert broken.ended() != 0
    last = broken.log.read_text().splitlines()[-1]
    assert "ERROR" in last
    assert str(home.store_db) in last
    assert "Traceback" not in broken.log.read_text()


@pytest.mark.parametrize("file", ["run/server-options.json"])
def test_a_broken_file_is_named(start, tmp_path: Path, file: str) -> None:
    home = Home(tmp_path / "home").create()
    (home.path / file).write_text("{")
    broken = start()
    assert broken.ended() == 2
    assert str(home.path / file) in broken.log.read_text()
    assert "Traceback" not in broken.log.read_text()


def test_a_damaged_file_of_the_server_does_not_change_its_store(start, tmp_path: Path) -> None:
    first = start("--store", f"sqlite:///{tmp_path}/elsewhere.db")
    with first.client() as client:
        client.create(a_job())
    assert first.stop() == 0
    run = first.home / "run"
    for damaged in ("server-options.json", "server-options.copy.json"):
        (run / damaged).write_bytes(b"\x00\xff{garbage")
        (first.home / "server.json").write_bytes(b"\x00\xff{garbage")
        again = start()
        with again.client() as client:
            assert client.get(Job, "default", "train").metadata.name == "train"
            announced = json.loads((first.home / "server.json").read_text())
            assert announced["pid"] == again.process.pid
        assert again.stop() == 0
        assert "Traceback" not in again.log.read_text()
    assert list(run.glob("server-options.json.damaged-*"))


def test_a_home_that_cannot_be_made_is_said(start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    broken = start(home=tmp_path / "file" / "home")
    assert broken.ended() == 1
    assert "cannot be used as Shoal's home" in broken.log.read_text()


def test_a_home_may_be_far_down(start, tmp_path: Path) -> None:
    home = tmp_path / ("deep" * 20) / ("down" * 20) / "home"
    process = start(home=home)
    with process.client() as client:
        client.create(a_job())
        assert len(client.list(JOB).records) == 1
    assert process.stop() == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_an_address_once_said_is_kept(start) -> None:
    """Whoever restarts a server knows only its home."""
    port = free_port()
    first = start("--listen", f"127.0.0.1:{port}")
    with first.client() as owner:
        owner.create_user("alice", [("admin", "")])
        token = owner.create_token("alice").token
    pin = json.loads((first.home / "server.json").read_text())["fingerprint"]
    first.process.kill()
    first.ended()
    second = start()
    second.client().close()
    with Client.connect(url=f"https://127.0.0.1:{port}", token=token, fingerprint=pin) as alice:
        assert alice.version().pid == second.process.pid
    assert second.stop() == 0
    third = start("--listen=")
    third.client().close()
    gone = Client.connect(url=f"https://127.0.0.1:{port}", token=token, fingerprint=pin)
    with gone, pytest.raises(Unavailable):
        gone.version()
    assert third.stop() == 0


def test_a_given_certificate_is_shown_and_kept_for_the_next_start(start, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    made = server_tls(folder)
    port = free_port()
    first = start(
        "--listen", f"127.0.0.1:{port}",
        "--tls-cert", str(folder / "tls.crt"),
        "--tls-key", str(folder / "tls.key"),
    )  # fmt: skip
    with first.client() as owner:
        owner.create_user("alice", [("admin", "")])
        token = owner.create_token("alice").token
    assert first.stop() == 0
    second = start()  # as an agent starts it again
    second.client().close()
    assert json.loads((second.home / "server.json").read_text())["fingerprint"] == made.fingerprint
    assert not (second.home / "keys" / "tls.crt").exists()
    url = f"https://127.0.0.1:{port}"
    with Client.connect(url=url, token=token, fingerprint=made.fingerprint) as alice:
        assert alice.version().pid == second.process.pid
    assert second.stop() == 0
    halves = start("--listen", f"127.0.0.1:{port}", "--tls-cert", str(folder / "tls.crt"), "--tls-key=")
    assert halves.ended() != 0
    assert "go together" in halves.log.read_text()


def test_a_port_in_use_is_said(start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broken = start("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert broken.ended() == Unavailable.exit_code
    assert "nothing can listen at" in broken.log.read_text()


STARTING = (
    "server.sockets.listening",
    "server.store.open",
    "server.key.written",
    "server.announced",
    "server.components.started",
)
"""The durable acts of a start, in their order: the key is made by a home's first server alone."""


def test_killed_anywhere_it_starts_again(start, tmp_path: Path) -> None:
    """Each start is killed one act later than the one before, and the next finds what that one left."""
    marks = tmp_path / "marks"
    marks.mkdir()
    faults = ",".join(f"{point}:kill" for point in STARTING)
    for point in STARTING:
        dying = start(SHOAL_FAULTS=faults, SHOAL_FAULTS_ONCE=str(marks))
        assert dying.ended() == -signal.SIGKILL
        assert (marks / f"{point}:kill:1").exists()
    again = start()
    with again.client() as client:
        client.create(a_job())
        eventually(lambda: client.readiness().ready)
    assert again.stop() == 0


def test_a_create_whose_answer_is_lost_happens_once(start) -> None:
    """Killed between the commit and the answer: the client sends it again, to the next server."""
    first = start()
    first.client().close()
    assert first.stop() == 0
    # the first write of a start finds that the queue `default` is there
    dying = start(SHOAL_FAULTS="store.write.committed:kill:2")
    with dying.client() as client:

        def replace() -> None:
            assert dying.ended() == -signal.SIGKILL
            start()

        replacing = threading.Thread(target=replace)
        replacing.start()
        made = client.create(a_job())
        replacing.join(60)
        assert client.get(Job, "default", "train").metadata.uid == made.metadata.uid
        assert len(client.list(JOB).records) == 1


def test_a_store_elsewhere_is_led_by_one(start, tmp_path: Path) -> None:
    """Other servers may have it too, so the controllers run under a lease."""
    url = f"sqlite:///{tmp_path}/elsewhere.db"
    first = start("--store", url)
    with first.client() as client:
        client.create(a_job(suspend=True))
        eventually(lambda: client.get(Job, "default", "train").status.phase == "Suspended")
        assert not (first.home / "store.db").exists()
        first.process.kill()
        first.ended()
        second = start()  # of the same home: it need not wait for the lease to run out
        second.client().close()
        client.create(a_job("second", suspend=True))
        eventually(lambda: client.get(Job, "default", "second").status.phase == "Suspended", 60)
    assert second.stop() == 0
