"""Killed where options are kept, where a lease is taken, and in the middle of shutting down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shoal.testing.chaos import Chaos
from shoal.testing.local import LocalHome, nodes
from tests.scenarios.storm import leaks
from tests.scenarios.storm.people import People
from tests.scenarios.storm.tasks import COMMAND, step

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHome]:
    with LocalHome(tmp_path / "home", nodes(one={}), server=True) as local:
        yield local
    assert not leaks.when_down(local.home)


def run(local: LocalHome, *words: str, fault: str = "") -> int:
    """Run Python with these words for this home, with a fault armed; its exit status."""
    environment = {**os.environ, "SHOAL_HOME": str(local.home.path), "SHOAL_FAULTS": fault}
    log = local.home.path / "log" / "by-hand.log"
    with log.open("ab") as output:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=output, timeout=60, check=False
        )
    return done.returncode


def a_job_runs(local: LocalHome) -> None:
    people = People(local.home.path)
    role = {"command": COMMAND, "env": {"STEP": step(0.1)}, "resources": {"cpu": "100m"}}
    people.create("job", {"roles": [role]})
    assert people.finished("job").status.phase == "Succeeded"
    people.delete_all()
    people.close()


@pytest.mark.parametrize("point", ["server.options.written", "lease.acquire.done"])
def test_a_server_with_options_of_its_own(local: LocalHome, tmp_path: Path, point: str):
    """What was said once is remembered by the server that an agent starts in its place."""
    store = f"sqlite:///{tmp_path / 'shared.db'}"
    options = ("--home", str(local.home.path), "--listen", "127.0.0.1:0", "--store", store)
    people, chaos = People(local.home.path), Chaos(local.home)
    with chaos.stopped("one"):  # it would start a server of its own
        local.kill("server")
        assert run(local, "shoal.server", *options, fault=f"{point}:kill") == -signal.SIGKILL

    def listens() -> bool:
        if not local.home.server_json.exists():
            return False
        announced = msgspec.json.decode(local.home.server_json.read_bytes())
        return announced["pid"] == local.pid("server") and bool(announced["addresses"])

    people.until(listens, "a server listens where it was told to")
    people.close()
    assert (tmp_path / "shared.db").exists()
    a_job_runs(local)


@pytest.mark.parametrize("point", ["shutdown.marked", "shutdown.server.ended"])
def test_shutting_down_is_taken_up_again(local: LocalHome, point: str):
    people = People(local.home.path)
    role = {"command": COMMAND, "env": {"STEP": step(600)}, "resources": {"cpu": "100m"}}
    people.create("job", {"roles": [role]})
    people.phase("job", "Running")
    assert run(local, "shoal.cli", "down", "-y", fault=f"{point}:kill") == -signal.SIGKILL
    assert run(local, "shoal.cli", "down", "-y") == 0
    assert not local.pid("server")
    assert not local.pid("one")
    assert not leaks.when_down(local.home)
    local.up()
    people.phase("job", "Running")  # it was the machine that went down, not the job
    people.edit("job", cancelled=True)
    people.finished("job")
    people.delete_all()
    people.close()
