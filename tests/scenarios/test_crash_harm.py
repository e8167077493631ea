"""Harm that kills nobody: components that stand still, crawl, or cannot be reached. Nothing is
started a second time meanwhile, and afterwards all goes on as if nothing had been."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.objects.errors import Unavailable
from shoal.objects.job import Job
from shoal.objects.meta import Metadata
from shoal.testing.chaos import Chaos, full_disk
from shoal.testing.local import LocalHome, nodes
from tests.scenarios.storm import leaks
from tests.scenarios.storm.people import People
from tests.scenarios.storm.tasks import COMMAND, claims, ran_twice, step
from tests.support.require import require

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHome]:
    home = tmp_path_factory.mktemp("harm") / "home"
    with LocalHome(home, nodes(one={}, two={}), server=True) as local:
        yield local
    assert not leaks.when_down(local.home)


@pytest.fixture
def people(local: LocalHome) -> Iterator[People]:
    people = People(local.home.path)
    yield people
    people.delete_all()
    chaos = Chaos(local.home)
    people.until(lambda: not leaks.of_tasks(chaos), lambda: str(leaks.of_tasks(chaos)))
    people.close()


def gang(people: People, seconds: float) -> None:
    """One task on each node."""
    role = {
        "replicas": 2,
        "command": COMMAND,
        "env": {"STEP": step(seconds)},
        "resources": {"cpu": "1100m"},
    }
    people.create("gang", {"roles": [role], "restart": {"scope": "Gang"}})


def ran_once(local: LocalHome, people: People) -> None:
    """The gang has ended well, in its first attempt."""
    job = people.finished("gang")
    status = job.status
    counters = (status.attempt, status.failures, status.infrastructure_failures)
    assert (status.phase, *counters) == ("Succeeded", 1, 0, 0), status
    output = local.home.output / "default" / job.metadata.uid
    assert claims(output) == {("worker", 0, 1), ("worker", 1, 1)}
    assert not ran_twice(output)


def waits_for_two(people: People) -> bool:
    status = people.look("gang").status
    return status.reason == "WaitingForNode" and "two" in status.message


@pytest.mark.parametrize("harm", ["stopped", "partitioned"])
def test_a_node_that_does_not_answer(local: LocalHome, people: People, harm: str):
    chaos = Chaos(local.home)
    pid = local.pid("two")
    gang(people, 1.0)
    people.phase("gang", "Running")
    try:
        with getattr(chaos, harm)("two"):
            people.until(lambda: waits_for_two(people), lambda: people.describe("gang"))
            time.sleep(
                1.5
            )  # the tasks' time, and not what is waited for: they end while nobody can tell
            assert waits_for_two(people), people.describe("gang")
    except PermissionError as error:
        require("ptrace", f"another process' descriptors cannot be had: {error}")
    ran_once(local, people)
    assert local.pid("two") == pid


@pytest.mark.parametrize("component", ["server", "one"])
def test_one_that_crawls(local: LocalHome, people: People, component: str):
    chaos = Chaos(local.home)
    pid = local.pid(component)
    with chaos.slowed(component, 0.8):
        gang(people, 0.2)
        ran_once(local, people)
    assert local.pid(component) == pid


def test_a_server_that_stands_still(local: LocalHome, people: People):
    """Tasks start, end and keep their exits without it."""
    chaos = Chaos(local.home)
    gang(people, 0.5)
    people.phase("gang", "Running")
    with chaos.stopped("server"):
        people.until(lambda: not chaos.supervisors(), "the tasks have ended")
    ran_once(local, people)


def test_random_blows_are_drawn_from_a_seed_that_is_said(local: LocalHome):
    said: list[str] = []
    first, second = (Chaos(local.home, seed=seed, say=said.append) for seed in (0, 7))
    assert said == [f"chaos: seed {first.seed}", "chaos: seed 7"]
    again = Chaos(local.home, seed=first.seed, say=said.append)
    assert [first.random.random() for _ in range(5)] == [again.random.random() for _ in range(5)]
    pid = local.pid("server")
    blow = second.strike(("server",))
    assert blow is not None
    assert (blow.what, blow.whom) == ("kill", "server")
    assert second.blows == [blow]
    people = People(local.home.path)
    people.until(lambda: local.pid("server") not in (0, pid), "another server")
    people.insist(people.client.version)
    people.close()


def test_a_full_disk_says_so_and_what_was_written_can_be_read(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        require("mount", f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        with LocalHome(disk / "home", nodes(one={}), server=True) as local:
            people = People(local.home.path)
            role = {"command": COMMAND, "env": {"STEP": step(0.05)}, "resources": {"cpu": "100m"}}
            spec = people.create("before", {"roles": [role]}).spec
            people.finished("before")
            with full_disk(disk):
                assert people.look("before").status.phase == "Succeeded"
                with pytest.raises(Unavailable, match="full"):
                    for number in range(1000):  # some room may have been kept
                        people.client.create(Job(metadata=Metadata(name=f"more-{number}"), spec=spec))
            people.create("after", spec)
            assert people.finished("after").status.phase == "Succeeded"
            people.close()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
