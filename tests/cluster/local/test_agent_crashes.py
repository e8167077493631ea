"""SIGKILL at every named point of the agent, and of supervisors: nothing is lost, doubled or left.

A run kills at many points, one after the other: each point once, and each new process is armed with the
points that are left. `make soak` also kills at each point alone.
"""

import os
import re
import signal
from pathlib import Path

import pytest

import shoal.cluster.local
from shoal.cluster.base import Refused
from shoal.cluster.local.components import component_of
from shoal.cluster.local.watchdog import Watchdog
from shoal.objects.errors import Unavailable
from shoal.testing.cluster import render_nothing, start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCES = sorted(Path(shoal.cluster.local.__file__).parent.rglob("*.py"))
POINTS = sorted(
    {name for path in SOURCES for name in re.findall(r'faults\.point\("([^"]+)"\)', path.read_text())}
)
AGENT_POINTS = [name for name in POINTS if name.startswith("agent.")]
SUPERVISOR_POINTS = [name for name in POINTS if name.startswith("supervisor.")]


def runs(points, count):
    """The points dealt out to so many runs, neighbours to different ones; in a soak also each alone."""
    groups = [tuple(points[first::count]) for first in range(count)]
    return [
        *(pytest.param(group, id=f"run-{number}") for number, group in enumerate(groups)),
        *(pytest.param((point,), id=point, marks=pytest.mark.soak) for point in points),
    ]


CLAIM = 'set -C; echo x > "$SHOAL_OUTPUT/claim-$NAME" || exit 99; '
"""Run by every task: a second run of the same incarnation would exit with 99."""


class Controller:
    """What a controller does: says again what it wants until it is so."""

    def __init__(self, local, render):
        self.local = local
        self.cluster = local.cluster
        self.render = render

    def insist(self, act):
        def done():
            try:
                act()
            except Unavailable:
                return False
            return True

        wait_until(done, what="an answer")

    def start(self, *group):
        self.insist(lambda: start_group(self.cluster, group, self.render))

    def stop(self, spec, grace=10.0):
        def asked():  # again and again: one request is lost with the agent that it was sent to
            self.insist(lambda: self.cluster.stop(spec.key, grace_seconds=grace, reason="Cancelled"))
            return self.phase(spec) in ("Terminating", "Ended", "")

        wait_until(asked, what=f"{spec.name} terminates")

    def phase(self, spec):
        listing = self.cluster.list()
        if listing.unreachable_nodes:
            return None
        return next((t.phase for t in listing.tasks if t.spec.key == spec.key), "")

    def until(self, spec, *phases):
        wait_until(lambda: self.phase(spec) in phases, what=f"{spec.name} is {' or '.join(phases)}")

    def outcome(self, spec):
        """Wait for the end, record it, acknowledge it until it is forgotten."""
        self.until(spec, "Ended")
        outcome = self.local.task(spec.key).outcome

        def gone():
            self.insist(lambda: self.cluster.acknowledge(spec.key))
            return self.phase(spec) == ""

        wait_until(gone, what=f"{spec.name} is forgotten")
        return outcome


@pytest.fixture
def dying(make_home, tmp_path, monkeypatch):
    """Makes a controller of a home whose agents (or supervisors) die at each of the points, once, and
    are started again by a watchdog."""
    watchdogs = []

    def make(points, render=render_nothing):
        local = make_home()
        controller = Controller(local, render)

        def arm():
            marks = tmp_path / "fired"
            marks.mkdir()
            monkeypatch.setenv("SHOAL_FAULTS", ",".join(f"{point}:kill" for point in points))
            monkeypatch.setenv("SHOAL_FAULTS_ONCE", str(marks))
            local.kill("one")
            watchdog = Watchdog(local.home, lambda: [component_of("one")])
            watchdogs.append(watchdog)
            watchdog.open()
            return marks

        return controller, arm

    yield make
    for watchdog in watchdogs:
        watchdog.close()


def never_reached(points, marks):
    """The points of which no process has left a mark."""
    fired = {path.name.partition(":")[0] for path in marks.iterdir()}
    return sorted(set(points) - fired)


def command(script):
    return ("sh", "-c", CLAIM + script)


@pytest.mark.parametrize("points", runs(AGENT_POINTS, 3))
def test_an_agent_that_dies_loses_nothing(dying, make_spec, points):
    controller, arm = dying(points)
    before = make_spec(command("sleep 0.3; exit 5"), env={"NAME": "before"}, job="before")
    waits = make_spec(command("exec sleep 600"), env={"NAME": "waits"}, job="waits")
    controller.start(before, waits)
    controller.until(waits, "Running")
    controller.until(before, "Running", "Ended")
    output = controller.local.home.output / "default"
    wait_until(lambda: list(output.glob("*/claim-waits")))
    marks = arm()

    gang = tuple(
        make_spec(command(script), job="gang", index=index, env={"NAME": f"gang-{index}"})
        for index, script in enumerate(("exit 7", "exec sleep 600"))
    )
    # a group that is refused after part of it was admitted, and one taken back before it ran
    too_large = make_spec(("true",), job="large", cpu=9000)

    def refused():
        with pytest.raises(Refused):
            start_group(controller.cluster, (gang[0], too_large), controller.render)

    controller.insist(refused)
    _admit_and_release(controller, make_spec)
    controller.start(*gang)
    controller.stop(waits)
    controller.until(gang[1], "Running")
    wait_until(lambda: list(output.glob("*/claim-gang-1")))
    controller.stop(gang[1], grace=600)
    controller.stop(gang[1], grace=10)
    outcomes = {spec.env["NAME"]: controller.outcome(spec) for spec in (before, waits, *gang)}
    assert [outcomes[name].exit_code for name in ("before", "waits", "gang-0", "gang-1")] == [
        5, 143, 7, 143,
    ], outcomes  # fmt: skip
    assert outcomes["waits"].stop_reason == outcomes["gang-1"].stop_reason == "Cancelled"
    assert outcomes["before"].stop_reason is None
    claims = sorted(path.name for path in output.glob("*/claim-*"))
    assert claims == ["claim-before", "claim-gang-0", "claim-gang-1", "claim-waits"]
    for spec in (before, waits, gang[0]):
        controller.insist(
            lambda uid=spec.job_uid: controller.cluster.cleanup_job("default", uid, outputs=True)
        )
    wait_until(lambda: not list(output.iterdir()), what="outputs are gone")
    node = controller.local.home.node("one")
    wait_until(
        lambda: not any(list(folder.iterdir()) for folder in (node.tasks, node.work, node.trash)),
        what="nothing is left of the tasks",
    )
    assert not never_reached(points, marks)


def _admit_and_release(controller, make_spec):
    """A start whose caller dies between its two phases, and that is then refused."""
    group = (make_spec(("true",), job="half"),)

    def render(specs, endpoints):
        raise LookupError("dies here")

    def half():
        with pytest.raises(LookupError):
            start_group(controller.cluster, group, render)

    controller.insist(half)

    def refused():
        with pytest.raises(Refused):
            start_group(
                controller.cluster,
                (*group, make_spec(("true",), job="half", index=1, node="nowhere")),
                render,
            )

    controller.insist(refused)
    with_large = (*group, make_spec(("true",), job="half", index=1, cpu=9000))

    def released():
        with pytest.raises(Refused):
            start_group(controller.cluster, with_large, render)

    controller.insist(released)
    controller.insist(lambda: controller.cluster.acknowledge(group[0].key))


@pytest.mark.parametrize("points", runs(SUPERVISOR_POINTS, 1))
def test_a_supervisor_that_dies_ends_its_task(dying, make_spec, points):
    controller, arm = dying(points)
    marks = arm()
    seen_inside = {"working_directory": str(marks)}  # the init leaves its mark from in there
    lost = 0
    for number in range(2 + 2 * len(points)):  # a task dies at one point, and half of them get to it
        exits = number % 2 == 0
        name = f"{'exits' if exits else 'waits'}-{number}"
        script = "exit 7" if exits else "sleep 600 & exec sleep 600"
        spec = make_spec(command(script), env={"NAME": name}, job=name, **seen_inside)
        controller.start(spec)
        controller.until(spec, "Running", "Ended")
        if not exits:
            controller.stop(spec)
        outcome = controller.outcome(spec)
        if outcome.reason == "SupervisorLost":
            lost += 1
        else:  # a second run of the same incarnation would have exited with 99
            assert outcome.exit_code == (7 if exits else 143), (name, outcome)
        if number and not never_reached(points, marks):
            break
    assert not never_reached(points, marks)
    assert lost <= len(points)


def test_a_killed_supervisor_takes_its_task_along(make_home, make_spec):
    local = make_home()
    spec = make_spec(("sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    os.kill(started.supervisor_pid, signal.SIGKILL)
    wait_until(lambda: local.phase(spec.key) == "Ended")
    outcome = local.task(spec.key).outcome
    assert (outcome.reason, outcome.exit_code, outcome.stop_reason) == ("SupervisorLost", -1, None)


def test_agent_and_supervisor_killed_together(make_home, make_spec):
    local = make_home()
    spec = make_spec(("sh", "-c", "sleep 600 & setsid sleep 600 & sleep 600"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    local.kill("one")
    os.kill(started.supervisor_pid, signal.SIGKILL)
    local.up()
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert local.task(spec.key).outcome.reason == "SupervisorLost"


def test_an_exit_while_no_agent_was_there_keeps_its_code(make_home, make_spec):
    local = make_home()
    spec = make_spec(("sh", "-c", "sleep 0.5; exit 9"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    local.kill("one")
    wait_until(lambda: not Path(f"/proc/{started.supervisor_pid}").exists())
    local.up()
    wait_until(lambda: local.phase(spec.key) == "Ended")
    assert local.task(spec.key).outcome.exit_code == 9


def test_folders_that_the_ledger_does_not_know_go_and_what_runs_there(make_home, make_spec):
    local = make_home()
    spec = make_spec(("sleep", "600"))
    start_group(local.cluster, (spec,))
    wait_until(lambda: local.phase(spec.key) == "Running")
    started = local.started(local.task(spec.key))
    node = local.home.node("one")
    local.kill("one")
    for path in [*node.path.glob("ledger.db*"), *node.tasks.glob("*/record.json")]:
        path.unlink()
    local.up()
    wait_until(lambda: not any(list(p.iterdir()) for p in (node.tasks, node.work, node.trash)))
    wait_until(lambda: not Path(f"/proc/{started.command_pid}").exists())
    assert not local.cluster.list().tasks
