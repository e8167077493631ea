"""Tasks that behave badly: each is contained, and what became of it is told plainly."""

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from shoal.testing.local import wait_until
from tests.scenarios.standing import PATIENCE_SECONDS, Standing, python, role
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]

JOB_CANCELLED = 103


def test_a_command_that_is_nowhere_is_said_before_anything_starts(guarded: Standing) -> None:
    assert "nosuch: command not found" in guarded.cli("run", "--", "nosuch").refused(127)
    script = guarded.home.path.parent / "plain.py"
    script.write_text("print('hello')")
    told = guarded.cli("run", "--", "./plain.py").refused(126)
    assert "python ./plain.py" in told


def test_a_command_that_the_node_does_not_find_fails_the_job_at_once(guarded: Standing) -> None:
    job = guarded.job(role(command=["nosuch", "--flag"]), restart={"limit": 5})
    ended = guarded.finished(job)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "CommandNotFound")
    assert (ended.status.exit_code, ended.status.failures) == (127, 1)
    assert b"command not found in PATH: nosuch" in guarded.log(job)
    nowhere = guarded.finished(guarded.job(role("true", workingDirectory="/nowhere")))
    assert (nowhere.status.exit_code, nowhere.status.reason) == (126, "CommandNotFound")
    assert "the working directory /nowhere cannot be used" in nowhere.status.message


def test_a_port_that_a_stranger_has_taken_is_passed_over(guarded: Standing) -> None:
    script = """
import os, socket, sys
port = int(os.environ["SHOAL_PORT_WEB"])
with open(os.environ["SHOAL_OUTPUT"] + "/notes", "a") as file:
    print(port, file=file)
while not os.path.exists(os.environ["SHOAL_OUTPUT"] + "/taken"):
    pass
socket.create_server(("127.0.0.1", port)).close()
sys.exit(0 if int(os.environ["SHOAL_INCARNATION"]) > 1 else 1)
"""
    worker = role(command=python(script), ports=[{"name": "web"}])
    job = guarded.job(worker, restart={"limit": 1, "backoff": "50ms"})
    wait_until(lambda: bool(guarded.notes(job)), PATIENCE_SECONDS, "the port that was leased")
    with socket.create_server(("127.0.0.1", int(guarded.notes(job)[0]))):
        (guarded.output(job) / "taken").touch()
        ended = guarded.finished(job)
    first, second = guarded.notes(job)
    assert first != second
    assert ended.status.phase == "Succeeded"
    assert b"Address already in use" in guarded.log(job, previous=True), (
        "the task itself says what is wrong"
    )


def test_logs_that_are_not_text_come_out_as_they_went_in(guarded: Standing) -> None:
    expected = bytes(range(256)) * 40 + b"\xff\xfe\n\xc3\x28 end without a newline"
    source = "import os, sys; os.write(1, bytes.fromhex(sys.argv[1]))"
    ran = guarded.cli("run", "--no-prefix", "--name", "noise", "--", *python(source, expected.hex()))
    job = guarded.adopt(JOB, "noise")
    assert ran.code == 0, ran.err
    assert guarded.log(job) == expected
    assert ran.out.rstrip(b"\n") == expected
    again = guarded.cli("logs", "--no-prefix", "noise", environment={"LC_ALL": "C", "PYTHONUTF8": "0"})
    assert again.out.rstrip(b"\n") == expected
    for words in (
        ["logs", "noise"],
        ["describe", "job/noise"],
        ["events"],
        ["get", "jobs", "-o", "json"],
    ):
        told = guarded.cli(*words)
        assert told.code == 0, told.err


DEAF = """
import os, signal, subprocess, sys, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for _ in range(3):
    if os.fork() == 0:
        break
while True:
    with open(os.environ["SHOAL_OUTPUT"] + "/notes", "a") as file:
        print("alive", file=file)
    time.sleep(0.05)
"""


def test_a_task_that_ignores_every_signal_is_killed_with_its_children(guarded: Standing) -> None:
    job = guarded.job(role(command=python(DEAF)), gracePeriod="500ms")
    guarded.until_noted(job, "alive", 8)
    begin = time.monotonic()
    assert guarded.cli("cancel", f"job/{job.metadata.name}").code == 0
    assert guarded.cli("wait", f"job/{job.metadata.name}").code == JOB_CANCELLED
    wait_until(lambda: not guarded.tasks(job), PATIENCE_SECONDS, "its task has ended")
    assert time.monotonic() - begin < 20.0
    nothing_goes_on(guarded, job)


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3 if sys.argv[1] == "quiet" else 0)
        os.chdir("/")
        os.environ.clear()
        while True:
            with open(sys.argv[2] + "/notes", "a") as file:
                print("alive", file=file)
            time.sleep(0.02)
    os._exit(0)
while not os.path.exists(sys.argv[2] + "/notes"):
    time.sleep(0.01)
sys.exit(7)
"""


@pytest.mark.parametrize("how", ["quiet", "holding its output"])
def test_a_daemon_ends_with_its_task(guarded: Standing, how: str) -> None:
    command = ["sh", "-c", 'exec "$0" -I -S -c "$1" "$2" "$SHOAL_OUTPUT"', sys.executable, DAEMON, how]
    begin = time.monotonic()
    ended = guarded.finished(guarded.job(role(command=command)))
    assert (ended.status.phase, ended.status.exit_code) == ("Failed", 7)
    assert time.monotonic() - begin < 20.0
    nothing_goes_on(guarded, ended)


def nothing_goes_on(guarded: Standing, job: Job) -> None:
    """No process of the job is left that could write another note."""
    lines = len(guarded.notes(job))
    marks = job.metadata.uid.encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and marks in _environment(pid)]  # noqa: PTH208
    time.sleep(0.3)
    assert len(guarded.notes(job)) == lines


def _environment(pid: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


FLOOD = """
import os
line = b"x" * 99 + b"\\n"
block = line * 10_000
for _ in range(1000):
    view = memoryview(block)
    while view:
        view = view[os.write(1, view):]
print("the very last line")
"""


def test_a_gigabyte_of_log_is_bounded_and_its_end_is_kept(guarded: Standing) -> None:
    begin = time.monotonic()
    job = guarded.job(role(command=python(FLOOD)))
    ended = guarded.finished(job)
    assert ended.status.phase == "Succeeded"
    assert time.monotonic() - begin < PATIENCE_SECONDS
    folder = guarded.home.logs / "default" / job.metadata.uid
    kept = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert 100 << 20 < kept < 160 << 20
    tail = guarded.cli("logs", "--tail", "2", "--no-prefix", job.metadata.name)
    assert tail.out == b"x" * 99 + b"\nthe very last line\n"
    whole = guarded.cli("logs", "--no-prefix", job.metadata.name)
    assert whole.code == 0, whole.err
    assert whole.out.endswith(b"\nthe very last line\n")
    assert whole.peak_bytes < 200 << 20
    missing = next(iter(guarded.client.logs("default", job.metadata.name))).missing_bytes
    assert missing + kept > 1_000_000_000, "and what is gone is said"


ASK = """
import os, socket, sys
sys.path[:0] = sys.argv[1].split(":")
from shoal.client import Client
from shoal.objects.errors import ShoalError
from shoal.objects.job import Job
from shoal.objects.kinds import JOB, NODE

def attempt(name, call):
    try:
        call()
    except ShoalError as error:
        print(f"{name}: {error.code} {error.message}")
    else:
        print(f"{name}: DONE")

admin = Client.connect(sys.argv[2])
attempt("admin list", lambda: admin.list(JOB))
attempt("admin cancel", lambda: admin.cancel("default", "bystander"))
own = Client.connect()
attempt("own get", lambda: own.get(Job, "default", os.environ["SHOAL_JOB"]))
attempt("own cancel", lambda: own.cancel("default", os.environ["SHOAL_JOB"]))
attempt("other get", lambda: own.get(Job, "default", "bystander"))
attempt("other cancel", lambda: own.cancel("default", "bystander"))
attempt("other exec", lambda: own.exec("default", "bystander", ["true"]))
attempt("list", lambda: own.list(JOB))
attempt("create", lambda: own.run(["true"]))
attempt("cordon", lambda: own.cordon("one"))
attempt("nodes", lambda: own.list(NODE))
attempt("token", lambda: own.create_token())
attempt("lease", lambda: own.acquire("scheduler", "me", 60.0))
attempt("status", lambda: own.patch_status(JOB, "default", os.environ["SHOAL_JOB"], writer="job",
        uid=os.environ["SHOAL_JOB_UID"], counter=0, fields={"phase": "Succeeded"}))
own.transport._headers.pop("Authorization")
attempt("no token", lambda: own.get(Job, "default", os.environ["SHOAL_JOB"]))
"""  # fmt: skip


@pytest.mark.parametrize("isolation", ["default", "strict"])
def test_a_task_cannot_drive_the_server(guarded: Standing, isolation: str) -> None:
    command = [sys.executable, "-c", ASK, ":".join(filter(None, sys.path)), str(guarded.home.path)]
    job = guarded.job(role(command=command), isolation=isolation)
    if guarded.finished(job).status.reason == "IsolationUnavailable":
        require("strict", "strict isolation cannot be had here")
    assert guarded.look(job).status.phase == "Succeeded", guarded.log(job)
    lines = guarded.log(job).decode().splitlines()
    said = {name: answer for name, _, answer in (line.partition(": ") for line in lines)}
    assert len(said) == ASK.count("\nattempt("), lines
    assert said.pop("own get") == "DONE"
    for name in ("admin list", "admin cancel"):
        assert said.pop(name).split()[0] in ("Unavailable", "Forbidden")
    assert said.pop("no token").startswith("Unauthenticated")
    for name, answer in said.items():
        assert answer.split()[0] in ("Forbidden", "NotFound"), (name, answer)


def test_shoal_inside_a_task_says_that_it_may_not(guarded: Standing) -> None:
    shoal = f"{sys.executable} -m shoal.cli"
    script = f"{shoal} get jobs; echo code $?; {shoal} cancel job/bystander; echo code $?"
    job = guarded.job(role(script, env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}))
    guarded.finished(job)
    told = guarded.log(job).decode()
    assert told.count("error: ") == 2, told
    assert "Traceback" not in told
    assert "code 0" not in told
