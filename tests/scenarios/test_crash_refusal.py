"""Killed while a gang is refused by a node, after the scheduler had found room for it there.

The server is held up between its promise in the status and its request to the nodes; meanwhile
somebody else takes the room on one of them. That node refuses, the part of the gang that the other has
admitted is taken back, and the refusal is counted. Once the room is there again the gang runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.objects.errors import Unavailable
from shoal.objects.quantities import CpuMillis
from shoal.objects.task import Placement, TaskSpec, Told, task_name
from shoal.testing.chaos import Chaos
from shoal.testing.local import LocalHome, nodes, wait_until
from tests.scenarios.storm import leaks
from tests.scenarios.storm.people import People
from tests.scenarios.storm.tasks import COMMAND, step

pytestmark = [pytest.mark.process, pytest.mark.slow]

STRANGER_UID = "5a5a5a5a-0000"
STRANGER = TaskSpec(
    namespace="default",
    name=task_name("stranger", STRANGER_UID, "worker", 0, 1),
    job="stranger",
    job_uid=STRANGER_UID,
    role="worker",
    index=0,
    attempt=1,
    incarnation=1,
    placement=Placement(node="two"),
    command=("sleep", "600"),
    cpu=CpuMillis(1500),
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHome]:
    with LocalHome(tmp_path / "home", nodes(one={}, two={}), server=True) as local:
        yield local
    assert not leaks.when_down(local.home)


@pytest.mark.skip(reason="its refusal is no longer reached since a later change; to be mended")
@pytest.mark.parametrize(
    ("who", "point"), [("server", "server.job.refusal.written"), ("one", "agent.release.recorded")]
)
def test_killed_at_a_refusal(local: LocalHome, tmp_path: Path, who: str, point: str):
    people, chaos = People(local.home.path), Chaos(local.home)
    marks = tmp_path / "marks"
    held = "server.job.status.written:delay=1.5"
    deadly = chaos.arm(who, point, marks, also=(held,))
    if who != "server":
        chaos.arm("server", "server.job.status.written", marks, action="delay=1.5")
    role = {
        "replicas": 2,
        "command": COMMAND,
        "env": {"STEP": step(0.2)},
        "resources": {"cpu": "1100m"},
    }
    people.create("gang", {"roles": [role], "restart": {"scope": "Gang"}})
    wait_until((marks / f"{held}:1").exists, what="the server is held up")
    local.cluster.start((STRANGER,), lambda specs, _: {spec.name: Told() for spec in specs})
    wait_until(deadly.exists, what=f"{point} is reached")
    people.until(lambda: people.look("gang").status.infrastructure_failures == 1, "the refusal counts")

    def gone() -> bool:
        try:
            local.cluster.stop(STRANGER.key, grace_seconds=0.0, reason="Deleted")
            local.cluster.acknowledge(STRANGER.key)
            local.cluster.forget_job("default", STRANGER_UID, outputs=True)
        except Unavailable:
            return False
        return local.phase(STRANGER.key) == "" and not local.cluster.list().silent_nodes

    wait_until(gone, what="the stranger is gone")
    status = people.finished("gang").status
    assert (status.phase, status.failures) == ("Succeeded", 0), status
    assert status.infrastructure_failures == 1, status
    people.delete_all()
    people.until(lambda: not leaks.of_tasks(chaos), lambda: str(leaks.of_tasks(chaos)))
    people.close()
