"""Random jobs, edits, faults and kills of the server in virtual time. Whatever is drawn: no incarnation
starts twice, no node is promised more than it has, every counter is what the rules give at every single
write, and once the weather clears every job comes to its end and nothing is left."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.cluster.simulated import Script
from shoal.objects.job import ArraySpec, Job, JobSpec, Resources, Restart, Role, Success
from shoal.objects.kinds import JOB
from shoal.objects.meta import Metadata
from shoal.objects.node import Taint
from shoal.objects.quantities import CpuMillis, Seconds
from shoal.objects.task import TaskSpec
from shoal.store.base import SYSTEM
from shoal.testing.plane import capacity
from tests.scenarios.storm.model import departures
from tests.scenarios.storm.moments import moments_of
from tests.scenarios.storm.virtual import VirtualStorm

pytestmark = pytest.mark.slow

NODES = ("a", "b", "c")
ENDED = ("Succeeded", "Failed", "Cancelled")
DRAIN = (Taint(key="shoal.dev/drain", effect="NoExecute"),)


def behave(spec: TaskSpec) -> Script:
    """Each start of each index has steps of its own, and an exit code that tells which it was."""
    chance = random.Random(spec.name.replace(spec.job_uid[:8], ""))
    code = 10 + (spec.index * 6 + spec.incarnation) % 60 if chance.random() < 0.4 else 0
    return Script(
        run_seconds=40.0 if chance.random() < 0.1 else round(chance.uniform(0.1, 6.0), 2),
        exit_code=code,
        stops_after_seconds=chance.choice((0.0, 0.0, 0.4, None)),
        stop_exit_code=chance.choice((143, 0)),
    )


class Weather:
    """Carries out what was drawn: each action is (what, which, how)."""

    def __init__(self, seed: int) -> None:
        self.storm = VirtualStorm({name: capacity(4) for name in NODES}, behave, seed)
        self.count = 0

    def act(self, what: int, which: int, how: int) -> None:
        """One thing, and a little time."""
        actions: list[Callable[[int, int], None]] = [
            self.submit, self.submit, self.submit, self.submit, self.cancel, self.suspend, self.suspend,
            self.scale, self.scale, self.delete, self.kill, self.kill, self.lose, self.lose,
            self.lose, self.forget_memory, self.silence, self.answer, self.answer, self.declare,
            self.take_back, self.take_back, self.drain, self.uncordon, self.uncordon, self.die, self.die,
            self.wait,
        ]  # fmt: skip
        actions[what % len(actions)](which, how)
        self.storm.pass_time((how % 40) / 40.0)

    def clear_up(self) -> None:
        """Every node answers, and everybody waits."""
        for number in range(len(NODES)):
            self.answer(number, 0)
            self.take_back(number, 0)
            self.uncordon(number, 0)
        for job in self.storm.jobs():
            if job.spec.suspend:
                self.edit(job, suspend=False)
        self.storm.until_over()

    def submit(self, which: int, how: int) -> None:
        self.count += 1
        chance = random.Random(f"{which}:{how}:{self.count}")
        restart = Restart(
            scope=chance.choice(("Gang", "Task")),
            limit=chance.randint(0, 4),
            infrastructure_limit=chance.choice((0, 2, 100, 100)),
            backoff=Seconds(chance.choice((0.0, 0.2))),
            policy=chance.choice(("OnFailure", "OnFailure", "OnFailure", "Never")),
        )
        cpu = Resources(cpu=CpuMillis(chance.choice((500, 1000, 2000))))
        worker = Role(command=("x",), replicas=chance.randint(1, 4), resources=cpu)
        grace = Seconds(chance.choice((0.5, 2.0)))
        spec = JobSpec(roles=(worker,), restart=restart, grace_period=grace)
        if how % 3 == 1:
            one = msgspec.structs.replace(worker, replicas=1)
            array = ArraySpec(indices=f"0-{which % 7}", parallelism=chance.choice((None, 1, 3)))
            restart = msgspec.structs.replace(restart, scope=None)
            spec = msgspec.structs.replace(spec, roles=(one,), array=array, restart=restart)
        elif how % 3 == 2:
            chief = Role(name="chief", command=("x",), resources=cpu)
            success = Success(role="chief", policy=chance.choice(("All", "First", "Any")))
            helper = msgspec.structs.replace(worker, replicas=chance.randint(1, 2))
            spec = msgspec.structs.replace(spec, roles=(chief, helper), success=success)
        self.storm.submit(Job(metadata=Metadata(name=f"j{self.count}"), spec=spec))

    def cancel(self, which: int, how: int) -> None:
        self.edit_one(which, cancelled=True)

    def suspend(self, which: int, how: int) -> None:
        self.edit_one(which, suspend=bool(how % 2))

    def scale(self, which: int, how: int) -> None:
        job = self.one(which, lambda job: job.spec.array is None)
        if job is not None:
            *others, last = job.spec.roles
            last = msgspec.structs.replace(last, replicas=1 + how % 4)
            self.edit(job, roles=(*others, last))

    def delete(self, which: int, how: int) -> None:
        job = self.one(which)
        if job is not None:
            self.storm.store.delete(JOB, "default", job.metadata.name, actor=SYSTEM)

    def kill(self, which: int, how: int) -> None:
        self.hit(which, lambda key: self.storm.cluster.kill(key, 9 if how % 2 else 15))

    def lose(self, which: int, how: int) -> None:
        self.hit(which, self.storm.cluster.lose_supervisor)

    def forget_memory(self, which: int, how: int) -> None:
        self.hit(which, self.storm.cluster.run_out_of_memory)

    def silence(self, which: int, how: int) -> None:
        self.storm.cluster.silence(NODES[which % 3])

    def answer(self, which: int, how: int) -> None:
        self.storm.cluster.silence(NODES[which % 3], False)

    def declare(self, which: int, how: int) -> None:
        self.node(which, lost=True)

    def take_back(self, which: int, how: int) -> None:
        self.node(which, lost=False)

    def drain(self, which: int, how: int) -> None:
        self.node(which, unschedulable=True, taints=DRAIN)

    def uncordon(self, which: int, how: int) -> None:
        self.node(which, unschedulable=False, taints=())

    def die(self, which: int, how: int) -> None:
        self.storm.die_after = 1 + which % 12

    def wait(self, which: int, how: int) -> None:
        self.storm.pass_time(which % 10)

    def hit(self, which: int, how: Callable[[Any], None]) -> None:
        live = [
            task for task in self.storm.cluster.every_task() if task.phase in ("Running", "Terminating")
        ]
        if live:
            how(sorted(live, key=lambda task: task.spec.name)[which % len(live)].spec.key)

    def node(self, which: int, **spec: Any) -> None:
        self.storm.settle_or_restart()
        self.storm.edit_node(NODES[which % 3], **spec)

    def edit_one(self, which: int, **spec: Any) -> None:
        job = self.one(which)
        if job is not None:
            self.edit(job, **spec)

    def edit(self, job: Job, **spec: Any) -> None:
        if job.status.phase not in ENDED and not (job.spec.cancelled or job.metadata.deleted):
            self.storm.edit(job.metadata.name, **spec)

    def one(self, which: int, fits: Callable[[Job], bool] = lambda _: True) -> Job | None:
        jobs = [job for job in self.storm.jobs() if fits(job) and job.status.phase not in ENDED]
        return jobs[which % len(jobs)] if jobs else None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1000),
    actions=st.lists(
        st.tuples(st.integers(0, 27), st.integers(0, 100), st.integers(0, 100)), min_size=5, max_size=80
    ),
)
def test_any_weather(seed: int, actions: list[tuple[int, int, int]]):
    weather = Weather(seed)
    for action in actions:
        weather.act(*action)
    check(weather)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))]
)
def test_a_long_storm(seed: int):
    chance = random.Random(seed)
    weather = Weather(seed)
    for _ in range(400):
        weather.act(chance.randrange(28), chance.randrange(100), chance.randrange(100))
    check(weather)
    assert weather.storm.deaths > 5


def check(weather: Weather) -> None:
    storm = weather.storm
    weather.clear_up()
    assert not storm.wrong, "\n".join(storm.wrong[:5])
    assert storm.runner.failures() == ()
    assert not storm.cluster.every_task()
    for job in storm.jobs():
        assert job.status.phase in ENDED, job
        assert not job.status.allocation.slots, job
    for trace in storm.traces():
        problems = departures(trace.versions[0].job.spec, moments_of(trace))
        assert not problems, f"{trace.name}: {problems}"
