"""Experiments on the control plane in virtual time, with jobs that report a curve of known shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shoal.cluster.simulated import Script, run_for
from shoal.history.base import JobKey, Point
from shoal.objects import codec
from shoal.objects.admit import admit
from shoal.objects.experiment import Experiment
from shoal.objects.job import Job
from shoal.objects.kinds import EXPERIMENT, JOB, TRIAL, Kind
from shoal.objects.meta import Metadata, OwnerReference
from shoal.objects.task import TaskSpec
from shoal.objects.trial import Trial, TrialSpec
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock
from shoal.testing.plane import Plane, capacity
from tests.support.memory_history import MemoryHistory

__all__ = ["WRITTEN", "Curves", "Killed", "SearchPlane", "add_ended", "document"]

WRITTEN: list[tuple[Kind, Any]] = []
"""The documents that the running test has written."""

X = {"name": "x", "type": "float", "min": -5, "max": 5}
Y = {"name": "y", "type": "float", "min": -5, "max": 5}


def document(name: str = "search", **spec: Any) -> dict[str, Any]:
    """An experiment that minimizes `loss` over x and y, with trials of ten seconds."""
    least = {
        "objectives": [{"metric": "loss", "direction": "minimize"}],
        "parameters": [X, Y],
        "algorithm": {"name": "random", "seed": 3},
        "maxTrials": 12,
        "parallel": 3,
        "template": {"spec": {"roles": [{"command": ["train", "${x}", "${y}"]}]}},
    }
    kind = {"apiVersion": "shoal.dev/v1alpha1", "kind": "Experiment"}
    return {**kind, "metadata": {"name": name}, "spec": {**least, **spec}}


class Curves(MemoryHistory):
    """Each second a job reports `loss`, which falls towards (x-1)^2 + (y+2)^2.

    A function of the job's command and of how long it has run: the same whatever happened to servers.
    """

    def __init__(self, store: Any, clock: VirtualClock, seconds: int) -> None:
        super().__init__()
        self._store, self._clock, self._seconds = store, clock, seconds
        self.silent: set[int] = set()
        """Trial numbers that report nothing."""
        self.loss: Callable[[dict[str, float], int], float] = _loss
        """(parameters, step) to the value of the report."""
        self.size: Callable[[dict[str, float]], float] | None = None
        """Parameters to the value of a second metric, `size`, reported once."""
        self._steps: dict[str, int] = {}
        self._jobs: dict[str, Job] = {}
        """Those that may have something to report, by uid."""
        self._watch = store.watch(JOB, actor=SYSTEM, version=store.list(JOB, actor=SYSTEM).version)
        self._reported = -1.0

    def jobs_with_points(self, after: int) -> tuple[int, tuple[JobKey, ...]]:
        """Also reports what was due since the last call, in the order of its time."""
        self._report()
        return super().jobs_with_points(after)

    def points(self, namespace: str, **given: Any) -> tuple[Point, ...]:
        self._report()
        return super().points(namespace, **given)

    def _report(self) -> None:
        now, due = self._clock.now(), list[Point]()
        for event in self._watch.poll():
            if event.record is not None:
                job: Job = event.record.object
                if "shoal.dev/trial-number" in job.metadata.labels:
                    self._jobs[job.metadata.uid] = job
                self._reported = -1.0
        if now == self._reported:
            return
        self._reported = now
        for uid, job in list(self._jobs.items()):
            number = int(job.metadata.labels["shoal.dev/trial-number"])
            if job.status.finished:
                del self._jobs[uid]
            if number in self.silent or not job.status.started:
                continue
            until = job.status.finished or now
            steps = min(self._seconds, math.floor(until - job.status.started + 1e-6))
            x, y = map(float, job.spec.roles[0].command[1:3])
            key = JobKey(namespace="default", name=job.metadata.name, uid=uid)
            due += [
                Point(
                    job=key, name="loss", value=self.loss({"x": x, "y": y}, step), step=step,
                    at=job.status.started + step, writer="worker-0", sequence=step,
                )
                for step in range(self._steps.get(uid, 0) + 1, steps + 1)
            ]  # fmt: skip
            if self.size is not None and steps and not self._steps.get(uid):
                size = self.size({"x": x, "y": y})
                at = job.status.started + 1
                due.append(Point(job=key, name="size", value=size, at=at, writer="size", sequence=1))
            self._steps[uid] = max(steps, self._steps.get(uid, 0))
        if due:
            self.append_points(sorted(due, key=lambda point: (point.at, point.job.name)))


def add_ended(
    plane: SearchPlane, experiment: Experiment, number: int, point: dict[str, float], value: float
) -> None:
    """Store a trial that has succeeded."""
    owner = OwnerReference(kind="Experiment", name="search", uid=experiment.metadata.uid)
    trial = Trial(
        metadata=Metadata(name=f"early-{number}", owners=(owner,)),
        spec=TrialSpec(experiment="search", number=number, parameters=point, after=number),
    )
    made = plane.store.create(trial, actor=SYSTEM)
    plane.store.patch_status(
        TRIAL, "default", made.metadata.name, actor=SYSTEM, writer="experiment", uid=made.metadata.uid,
        counter=0, fields={"phase": "Succeeded", "values": (value,), "order": number + 1},
    )  # fmt: skip


def _loss(point: dict[str, float], step: int) -> float:
    return ((point["x"] - 1) ** 2 + (point["y"] + 2) ** 2) * (1 + 4 / step)


class Killed(BaseException):
    """The server was killed."""


class SearchPlane(Plane):
    """`die_after`: the server is killed right after so many more writes to the store."""

    def __init__(
        self,
        cpus: float = 3,
        seconds: int = 10,
        behave: Callable[[TaskSpec], Script] | None = None,
        seed: int = 0,
    ) -> None:
        self.die_after: int | None = None
        self.deaths = 0
        self._seconds = seconds
        self.curves: Curves | None = None
        self.outputs: Path | None = None
        """Where jobs have output folders, by uid."""
        super().__init__({"n0": capacity(cpus)}, behave or run_for(seconds), seed)

    def make_store(self) -> MemoryStore:
        return _Store(self)

    def make_context(self, **parts: Any) -> Any:
        if self.curves is None:
            self.curves = Curves(self.store, self.clock, self._seconds)
        return super().make_context(**parts, history=self.curves, outputs=self._output)

    def _output(self, _namespace: str, job_uid: str) -> Path | None:
        return None if self.outputs is None else self.outputs / job_uid

    def apply(self, name: str = "search", **spec: Any) -> Experiment:
        """Create an experiment."""
        return self.create(EXPERIMENT, document(name, **spec))

    def create(self, kind: Kind, made: dict[str, Any]) -> Any:
        """Create an object of that document."""
        WRITTEN.append((kind, made))
        return self.store.create(admit(made, kind), actor=SYSTEM)

    def edit(self, **fields: Any) -> Experiment:
        """Change fields of the spec of the experiment `search`."""
        experiment = self.experiment()
        spec = msgspec.structs.replace(experiment.spec, **fields)
        WRITTEN.append((EXPERIMENT, {"spec": codec.builtins(spec)}))
        return self.store.update(msgspec.structs.replace(experiment, spec=spec), actor=SYSTEM)

    def experiment(self, name: str = "search") -> Experiment:
        return self.store.get(Experiment, "default", name, actor=SYSTEM)

    def trials(self, name: str = "search") -> list[Trial]:
        """By number."""
        found = [record.object for record in self.store.list(TRIAL, actor=SYSTEM).records]
        return sorted(
            (each for each in found if each.spec.experiment == name), key=lambda t: t.spec.number
        )

    def jobs(self) -> list[Job]:
        return [record.object for record in self.store.list(JOB, actor=SYSTEM).records]

    def pass_time(self, seconds: float) -> None:
        """Let time pass; a server that is killed is replaced at once."""
        end = self.clock.monotonic() + seconds
        while True:
            try:
                return self.advance(max(0.0, end - self.clock.monotonic()))
            except Killed:
                self.deaths += 1
                self.restart()

    def finish(self, name: str = "search", most_seconds: float = 3000.0) -> Experiment:
        """Let time pass until the experiment has ended and its jobs with it."""
        end = self.clock.monotonic() + most_seconds
        ended = ("Succeeded", "Failed", "Cancelled")
        while self.clock.monotonic() < end:
            self.pass_time(1.0)
            done = self.experiment(name).status.phase in ended
            if done and all(job.status.phase in ended for job in self.jobs()):
                return self.experiment(name)
        raise TimeoutError(f"{self.runner.failures()} {self.experiment(name).status}")

    def wrote(self) -> None:
        if self.die_after is not None:
            self.die_after -= 1
            if self.die_after <= 0:
                self.die_after = None
                raise Killed


class _Store(MemoryStore):
    def __init__(self, plane: SearchPlane) -> None:
        super().__init__(clock=plane.clock)
        self._plane = plane

    def create(self, obj: Any, **arguments: Any) -> Any:
        made = super().create(obj, **arguments)
        self._plane.wrote()
        return made

    def update(self, obj: Any, **arguments: Any) -> Any:
        made = super().update(obj, **arguments)
        self._plane.wrote()
        return made

    def patch_status(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        record = super().patch_status(kind, *arguments, **more)
        self._plane.wrote()
        return record
