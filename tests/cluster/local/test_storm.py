"""Agent and supervisors killed at random moments while tasks start, stop and end.

SHOAL_SEED and SHOAL_STORM_TASKS choose another storm; `make soak` draws a new seed, and prints it.
"""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from shoal.cluster.local import taskfiles
from shoal.cluster.local.components import component_of
from shoal.cluster.local.watchdog import Watchdog
from shoal.objects.errors import Unavailable
from shoal.testing.cluster import start_group
from shoal.testing.local import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

CLAIM = 'set -C; echo x > "$SHOAL_OUTPUT/claim-$NAME" || exit 99; '
SCRIPTS = {
    "exits": ("exit 7", 7),
    "works": ("sleep 0.4; exit 3", 3),
    "waits": ("exec sleep 600", 143),
    "stays": ("trap '' TERM; while :; do sleep 0.1; done", 137),
    "forks": ("(sleep 600 &) ; setsid sleep 600 & sleep 0.2; exit 5", 5),
}


class Storm:
    def __init__(self, local, seed):
        self.local = local
        self.random = random.Random(seed)
        self.killed = set()
        self.outcomes = {}

    def tasks(self):
        """All tasks, once every node answers."""
        found = []

        def listed():
            listing = self.local.cluster.list()
            found[:] = listing.tasks
            return not listing.unreachable_nodes

        wait_until(listed)
        return list(found)

    def attempt(self, act):
        try:
            act()
        except Unavailable:
            return

    def kill_agent(self):
        pid = self.local.pid("one")
        if pid:
            os.kill(pid, signal.SIGKILL)

    def kill_supervisor(self):
        folders = sorted(self.local.home.node("one").tasks.iterdir())
        if folders:
            folder = self.random.choice(folders)
            started = taskfiles.read(str(folder), taskfiles.STARTED, taskfiles.Started)
            if started is not None and Path(f"/proc/{started.supervisor_pid}").exists():
                self.killed.add(folder.name.partition(".")[2])
                os.kill(started.supervisor_pid, signal.SIGKILL)

    def step(self, specs):
        """What a controller would do next, and at times a kill."""
        listed = {task.spec.name: task for task in self.tasks()}
        for spec in specs:
            task = listed.get(spec.name)
            if spec.name in self.outcomes:
                if task is not None:
                    self.attempt(lambda key=spec.key: self.local.cluster.acknowledge(key))
            elif task is None:
                if len(listed) < 12:
                    self.attempt(lambda spec=spec: start_group(self.local.cluster, (spec,)))
                    listed[spec.name] = spec
            elif task.phase == "Ended":
                self.outcomes[spec.name] = task.outcome
            elif task.phase == "Admitted":
                self.attempt(lambda spec=spec: start_group(self.local.cluster, (spec,)))
            elif task.phase == "Running" and spec.env["KIND"] in ("waits", "stays"):
                grace = 20.0 if spec.env["KIND"] == "waits" else self.random.choice((0.1, 0.5))
                self.attempt(
                    lambda key=spec.key, grace=grace: self.local.cluster.stop(
                        key, grace_seconds=grace, reason="Preempted"
                    )
                )


def number(name, default):
    return int(os.environ.get(name, "") or default)


def test_a_storm(make_home, make_spec):
    play(make_home, make_spec, number("SHOAL_SEED", 1), number("SHOAL_STORM_TASKS", 15))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_another_storm(make_home, make_spec):
    seed = number("SHOAL_SEED", random.SystemRandom().randrange(1, 1 << 32))
    play(make_home, make_spec, seed, number("SHOAL_STORM_TASKS", 100))


def play(make_home, make_spec, seed, count):
    """So many tasks, and agent or supervisors killed several times a second until all have ended."""
    print(f"SHOAL_SEED={seed} SHOAL_STORM_TASKS={count}")
    local = make_home(one={"cpu": 100_000})
    storm = Storm(local, seed)
    watchdog = Watchdog(local.home, lambda: [component_of("one")])
    watchdog.open()
    try:
        kinds = sorted(SCRIPTS)
        specs = []
        for index in range(count):
            kind = kinds[index % len(kinds)]
            name = f"{kind}-{index}"
            command = ("sh", "-c", CLAIM + SCRIPTS[kind][0])
            specs.append(make_spec(command, job="storm", index=index, env={"NAME": name, "KIND": kind}))
        next_kill = time.monotonic()
        deadline = time.monotonic() + 60 + count
        while len(storm.outcomes) < count or storm.tasks():
            assert time.monotonic() < deadline, f"{len(storm.outcomes)} of {count} have ended"
            storm.step(specs)
            if time.monotonic() > next_kill and len(storm.outcomes) < count:
                storm.random.choice((storm.kill_agent, storm.kill_supervisor))()
                next_kill = time.monotonic() + storm.random.uniform(0.02, 0.5)
    finally:
        watchdog.close()
    for spec in specs:
        outcome = storm.outcomes[spec.name]
        if spec.name in storm.killed and outcome.reason == "SupervisorLost":
            continue
        expected = {SCRIPTS[spec.env["KIND"]][1]}
        if spec.env["KIND"] == "stays":
            expected |= {143}  # it was told before it ignored the signal
        assert outcome.exit_code in expected, (spec.env["NAME"], outcome)
        if spec.env["KIND"] in ("waits", "stays"):
            assert outcome.stop_reason == "Preempted"
    ran = {path.name for path in local.home.output.glob("default/*/claim-*")}
    assert len(ran) <= count
    node = local.home.node("one")
    wait_until(lambda: not any(list(p.iterdir()) for p in (node.tasks, node.work, node.trash)))
