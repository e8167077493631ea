"""Killed while a gang is refused by a node, after the scheduler had found room for it there.

The server is held up between its promise in the status and its request to the nodes; meanwhile one of
them is declared anew with less than was promised. That node refuses, the part of the gang that the other
has admitted is taken back, and the refusal is counted. Once the room is there again the gang runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cluster.local.components import ensure_up
from shoal.testing.chaos import Chaos
from shoal.testing.local import LocalHome, nodes, wait_until
from tests.scenarios.storm import leaks
from tests.scenarios.storm.people import People
from tests.scenarios.storm.tasks import COMMAND, step

pytestmark = [pytest.mark.process, pytest.mark.slow]

ENOUGH = nodes(one={}, two={})
SMALL = nodes(one={}, two={"cpu": "1"})


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHome]:
    with LocalHome(tmp_path / "home", ENOUGH, server=True) as local:
        yield local
    assert not leaks.when_down(local.home)


@pytest.mark.parametrize(
    ("who", "point"),
    [
        ("server", "cluster.ensure.refused"),
        # the agent alone is killed there in tests/cluster/local/test_agent_crashes.py
        pytest.param("one", "agent.release.recorded", marks=pytest.mark.soak),
    ],
)
def test_killed_at_a_refusal(local: LocalHome, tmp_path: Path, who: str, point: str):
    people, chaos = People(local.home.path), Chaos(local.home)
    marks = tmp_path / "marks"
    held = "server.job.status.written:delay=3"
    deadly = chaos.arm(who, point, marks, also=(held,))
    if who != "server":
        chaos.arm("server", "server.job.status.written", marks, action="delay=3")
    role = {
        "replicas": 2,
        "command": COMMAND,
        "env": {"STEP": step(0.2)},
        "resources": {"cpu": "1100m"},
    }
    people.create("gang", {"roles": [role], "restart": {"scope": "Gang"}})
    wait_until((marks / f"{held}:1").exists, what="the server is held up")
    ensure_up(local.home, SMALL, server=True)
    wait_until(deadly.exists, what=f"{point} is reached")
    people.until(lambda: people.look("gang").status.infrastructure_failures == 1, "the refusal counts")
    ensure_up(local.home, ENOUGH, server=True)
    status = people.finished("gang").status
    assert (status.phase, status.failures) == ("Succeeded", 0), status
    assert status.infrastructure_failures == 1, status
    people.delete_all()
    people.until(lambda: not leaks.of_tasks(chaos), lambda: str(leaks.of_tasks(chaos)))
    people.close()
