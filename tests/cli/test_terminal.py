"""The whole thing as a person meets it: real processes, a real terminal, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.objects.job import Job
from shoal.objects.kinds import JOB
from tests.cli.terminal import Terminal
from tests.server.harness import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Machine:
    """One home, and the command lines typed for it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {
            "HOME": str(home.parent),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOAL_HOME": str(home),
            "TERM": "xterm",
            "LANG": "C.UTF-8",
        }

    def sh(self, *words: str, code: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one command line without a terminal; it must end with the code."""
        ran = subprocess.run(
            ["shoal", *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        assert code is None or ran.returncode == code, (
            f"{words}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        )
        return ran

    def terminal(self, *words: str, **env: str) -> Terminal:
        return Terminal(["shoal", *words], {**self.env, **env})

    def job(self, name: str) -> Job:
        with Client.connect(self.home) as client:
            return client.get(Job, "default", name)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("t") / "home")
    made.sh("up")
    yield made
    made.sh("down", "-y", "--grace", "1s")


@pytest.fixture(autouse=True)
def rest_cancelled(machine: Machine) -> Iterator[None]:
    """What a test leaves running takes no processors from the next."""
    yield
    with Client.connect(machine.home) as client:
        for record in client.list(JOB).records:
            client.delete(JOB, *record.object.key)
        eventually(lambda: not client.list(JOB).records, 60)


def test_every_ranks_lines_bear_its_name_in_colour(machine: Machine) -> None:
    words = ["run", "--workers", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
    with machine.terminal(*words) as terminal:
        assert terminal.leave() == 0
    assert re.search(r"\x1b\[\d+m\[worker 0\]\x1b\[0m rank 0 of 2", terminal.shown)
    assert re.search(r"\x1b\[\d+m\[worker 1\]\x1b\[0m rank 1 of 2", terminal.shown)
    plain = machine.sh(*words)
    assert sorted(plain.stdout.splitlines()) == ["[worker 0] rank 0 of 2", "[worker 1] rank 1 of 2"]
    with machine.terminal(*words, NO_COLOR="1") as terminal:
        assert terminal.leave() == 0
    assert "\x1b" not in terminal.shown


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nosuchprogram", 127), ("true", 0)],
)
def test_the_exit_code_is_the_tasks(machine: Machine, command: str, code: int) -> None:
    assert machine.sh("run", "--", "sh", "-c", command, code=code)


def test_the_callers_directory_programs_and_environment(machine: Machine, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mine"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho $PWD $VIRTUAL_ENV ${TOKEN-none} $SAID\n")
    program.chmod(0o755)
    env = {
        **machine.env, "PATH": f"{program.parent}:{machine.env['PATH']}", "VIRTUAL_ENV": "/venv",
        "TOKEN": "secret", "SAID": "yes",
    }  # fmt: skip
    ran = subprocess.run(
        ["shoal", "run", "--no-prefix", "--env", "SAID", "--", "mine"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == f"{tmp_path} /venv none yes\n"


def test_the_first_ctrl_c_cancels_gracefully(machine: Machine) -> None:
    script = "trap 'echo saving; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with machine.terminal("run", "--name", "one", "--", "sh", "-c", script) as terminal:
        terminal.until("ready")
        terminal.press(b"\x03")
        assert terminal.leave() == 103
    assert "cancelling job/one" in terminal.shown
    assert "saving" in terminal.shown
    assert "was cancelled" in terminal.shown
    assert machine.job("one").status.phase == "Cancelled"


def test_the_second_ctrl_c_leaves_while_the_cancel_goes_on(machine: Machine) -> None:
    script = "trap 'sleep 2; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with machine.terminal("run", "--name", "two", "--", "sh", "-c", script) as terminal:
        terminal.until("ready")
        terminal.press(b"\x03")
        terminal.until("cancelling job/two")
        terminal.press(b"\x03")
        assert terminal.leave() == 130
    machine.sh("wait", "job/two", "--timeout", "60s", code=103)


def test_ctrl_c_in_logs_and_wait_only_leaves(machine: Machine) -> None:
    name = machine.sh("run", "-d", "--", "sh", "-c", "echo ready; sleep 600").stdout.strip()
    with machine.terminal("logs", "-f", name) as terminal:
        terminal.until("ready")
        terminal.press(b"\x03")
        assert terminal.leave() == 130
    assert f"shoal logs -f {name}" in terminal.shown
    with machine.terminal("wait", name) as terminal:
        eventually(lambda: _sleeps(terminal.process.pid))
        terminal.press(b"\x03")
        assert terminal.leave() == 130
    assert "wait again with" in terminal.shown
    assert json.loads(machine.sh("get", name, "--json").stdout)["status"]["phase"] == "Running"


def test_a_shell_beside_a_task(machine: Machine) -> None:
    name = machine.sh("run", "-d", "--env", "MARK=x1", "--", "sleep", "600").stdout.strip()
    machine.sh("wait", name, "--for", "phase=Running", "--timeout", "60s")
    with machine.terminal("exec", name, "-t", "--", "sh") as terminal:
        terminal.press(b"stty size; echo $MARK$MARK\n")
        terminal.until(r"40 120\s")
        terminal.until("x1x1")
        terminal.press(b"exit 7\n")
        assert terminal.leave() == 7
    fed = machine.sh("exec", name, "--", "sh", "-c", "cat; echo no >&2", stdin=None, input="fed")
    assert (fed.stdout, fed.stderr) == ("fed", "no\n")
    assert "--rank" not in machine.sh("exec", name, "--rank", "5", "--", "true", code=3).stdout


def test_questions_are_asked_on_a_terminal(machine: Machine, tmp_path: Path) -> None:
    manifest = tmp_path / "queue.yaml"
    manifest.write_text(
        "apiVersion: shoal.dev/v1alpha1\nkind: Queue\nmetadata: {name: asked}\nspec: {quota: {cpu: 1}}\n"
    )
    with machine.terminal("apply", "-f", str(manifest)) as terminal:
        terminal.until(r"1 to create. Go on\? \[y/N\] ")
        terminal.press(b"n\n")
        assert terminal.leave() == 1
    assert "nothing was changed" in terminal.shown
    with machine.terminal("apply", "-f", str(manifest)) as terminal:
        terminal.until(r"\[y/N\] ")
        terminal.press(b"y\n")
        assert terminal.leave() == 0
    assert "queue/asked created" in terminal.shown
    with machine.terminal("delete", "queue/asked") as terminal:
        terminal.until(r"Delete queue/asked\? \[y/N\] ")
        terminal.press(b"y\n")
        assert terminal.leave() == 0


def test_a_reader_who_leaves_ends_the_job(machine: Machine) -> None:
    endless = "while echo y; do sleep 0.01; done"  # slow enough that who reads late finds the first line
    ran = subprocess.run(
        ["bash", "-c", f"shoal run --name loud -- sh -c '{endless}' | head -1; exit ${{PIPESTATUS[0]}}"],
        env=machine.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.returncode) == ("[worker 0] y\n", 141)
    machine.sh("wait", "job/loud", "--timeout", "60s", code=103)


def test_a_table_fits_the_terminal(machine: Machine) -> None:
    machine.sh("run", "-d", "--name", "n" * 60, "--", "true")
    with machine.terminal("get", "jobs", "-o", "wide") as terminal:
        assert terminal.leave() == 0
    assert max(len(line) for line in terminal.shown.splitlines()) <= 120


def _sleeps(pid: int) -> bool:
    """True once the process waits, with its watch thread beside it."""
    return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208
