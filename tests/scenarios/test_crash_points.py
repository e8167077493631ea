"""Server, agent and supervisor, each killed with SIGKILL right after each of their durable acts.

The acts are the literals of `faults.point` in the source. For every one of them a component is started
that dies there, once; people's wishes and their tasks go on meanwhile. The others of the home start it
again, every job comes to the end that it would have come to, no incarnation runs twice, and nothing of
any task is left on the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import shoal
from shoal.cluster.local import nodes as local_nodes
from shoal.objects.errors import NotFound
from shoal.objects.kinds import NODE
from shoal.objects.task import Placement, TaskSpec, task_name
from shoal.testing.chaos import Chaos
from shoal.testing.cluster import start_group
from shoal.testing.local import LocalHome, nodes
from tests.scenarios.storm import leaks
from tests.scenarios.storm.crossing import Crossing
from tests.scenarios.storm.people import People

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCES = sorted(
    path
    for path in Path(shoal.__file__).parent.rglob("*.py")
    if "elastic" not in path.parts  # inside jobs, no component of the home: tests/elastic
)
POINTS = sorted(
    {name for path in SOURCES for name in re.findall(r'faults\.point\(\s*f?"([^"]+)"', path.read_text())}
)

ELSEWHERE = {
    "agent.release.recorded": "a refused gang; test_crash_refusal.py",
    "history.entries.trimmed": "every ten minutes; tests/history",
    "history.segment.dropped": "once a task has written 128 MiB; tests/history/test_segments.py",
    "lease.acquire.done": "servers that share a store; test_crash_options.py",
    "cluster.ensure.refused": "a refused gang; test_crash_refusal.py",
    **dict.fromkeys(
        (point for point in POINTS if point.startswith("server.experiment.")),
        "experiments, after every single write; tests/search/test_experiments.py",
    ),
    **dict.fromkeys(
        (point for point in POINTS if point.startswith("server.secrets.")),
        "the rotation of the key; tests/server/test_secrets.py",
    ),
    "server.key.written": "the first start of a home; tests/server/test_process.py",
    "server.options.written": "servers with options; test_crash_options.py",
    "shutdown.marked": "shoal down; test_crash_options.py",
    "shutdown.server.ended": "shoal down; test_crash_options.py",
    "store.events.trimmed": "after ten thousand writes; tests/store/sql/test_failures.py",
}
"""Points that the scenario does not come by, and where they are tested."""

OWNERS = {
    "agent": ("one",),
    "cluster": ("server",),
    "history.entries": ("server",),
    "history.segment": ("supervisor",),
    "watchdog": ("server", "one"),
    "server": ("server",),
    "store": ("server",),
    "supervisor": ("supervisor",),
}
"""By the beginning of a point's name, who passes there. The agent of node `one` stands for agents."""

HERE = [
    (who, point)
    for point in POINTS
    if point not in ELSEWHERE
    for start, owners in OWNERS.items()
    if point.startswith(f"{start}.")
    for who in owners
]


SUITE = (
    "agent.launch.spawned",
    "cluster.ensure.sent",
    "server.job.status.written",
    "server.scheduling.allocation",
    "supervisor.exit.recorded",
)
"""Points tried on each run, where one component has acted and another does not know it yet; the rest are
tried by `make soak`. Agents and supervisors are killed at each of their points in
tests/cluster/local/test_agent_crashes.py, servers that start in tests/server/test_process.py, and
controllers are cut off after each single write in virtual time in tests/control/test_cut_off.py."""


NOBODYS_UID = "5a5a5a5a-0000"
ORPHAN = TaskSpec(
    namespace="default",
    name=task_name("nobodys", NOBODYS_UID, "worker", 0, 1),
    job="nobodys",
    job_uid=NOBODYS_UID,
    role="worker",
    index=0,
    attempt=1,
    incarnation=1,
    placement=Placement(node="two"),
    command=("sleep", "600"),
)
"""A task that is left of a job that is no more."""


class Stage:
    """A home that stays up from test to test, and who asks things of it."""

    def __init__(self, local: LocalHome) -> None:
        self.local = local
        self.people = People(local.home.path)
        self.chaos = Chaos(local.home)

    def provoke(self, who: str, point: str, mark: Path) -> int:
        """Have come about what the scenario alone does not; how many supervisors were killed by it."""
        if point == "watchdog.component.started" and who == "server":
            self.chaos.kill("two")
        elif point == "watchdog.component.started":
            with self.chaos.stopped("two"):  # it would be as quick to start a server
                self.chaos.kill("server")
                self.people.until(mark.exists, point)
        elif point == "server.node.status.written":
            with self.chaos.stopped("two"):
                self.people.until(mark.exists, point)
        elif point == "server.node.spec.followed":
            home = self.local.home
            one, two = local_nodes.load(home)
            labels = {**two.labels, "followed": "yes"}
            local_nodes.save(home, [one, msgspec.structs.replace(two, labels=labels)])
        elif point == "server.node.created":
            with suppress(NotFound):  # it has been done, only the answer was lost
                self.people.insist(lambda: self.people.client.delete(NODE, "", "two"))
        elif point == "server.job.orphan.ended":
            start_group(self.local.cluster, (ORPHAN,))
        elif point == "agent.supervisor.settled":
            (victim,) = self.chaos.supervisors()
            return int(self.chaos.kill_supervisor(victim))
        return 0

    def all_up(self) -> bool:
        """Every component is."""
        return all(self.local.pid(name) for name in ("server", "one", "two"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    declared = nodes(one={"labels": {"at": "one"}}, two={"labels": {"at": "two"}})
    home = tmp_path_factory.mktemp("crash") / "home"
    with LocalHome(home, declared, server=True) as local:
        stage = Stage(local)
        yield stage
        stage.people.close()
    assert not leaks.when_down(local.home)


def test_every_point_has_its_test():
    names = "\n".join(POINTS)
    assert "{" not in names, "a point's name is a literal, for people and tests to find"
    assert not [
        point for point in POINTS if point not in ELSEWHERE and point not in dict(map(reversed, HERE))
    ]
    assert set(SUITE) <= {point for _, point in HERE}, "a point of the suite that is no more"
    assert sorted(ELSEWHERE) == sorted(point for point in POINTS if point in ELSEWHERE), (
        "one that is no more"
    )


@pytest.mark.parametrize(
    ("who", "point"),
    [pytest.param(*each, marks=() if each[1] in SUITE else pytest.mark.soak) for each in HERE],
)
def test_killed_after(stage: Stage, tmp_path: Path, who: str, point: str):
    people, marks = stage.people, tmp_path / "marks"
    marks.mkdir()
    crossing = Crossing(people, stage.local.home.output, marks)
    people.until(stage.all_up, "all components are up")
    crossing.begin()
    mark = stage.chaos.arm("server" if who == "server" else "one", point, marks)
    lost = int(who == "supervisor") + stage.provoke(who, point, mark)
    crossing.go_on()
    problems = crossing.problems(lost)
    people.delete_all()
    assert mark.exists(), f"{point} was never reached"
    assert not problems, "\n".join(problems)
    people.until(stage.all_up, "all components are up again")
    people.until(lambda: not leaks.of_tasks(stage.chaos), lambda: leaks.of_tasks(stage.chaos))
