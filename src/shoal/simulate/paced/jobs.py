"""The file, and the jobs of one seed.

    description: what it is about
    nodes: 4
    slots: 4                  # tasks that a node takes
    step: 0.1s                # of one task
    restart: 0.5s             # what a change of size costs; and
    stops: 0.2s               # from being told to go to being gone
    jitter: {at: 1s, seconds: 0.2}
    rules: {patience: 2s}     # as in scenarios; the policy is not said here
    jobs:
      - {name: a, at: 0s, minimum: 1, maximum: 8, seconds: 30s, loss: 0.1}

With n tasks a job is n / (1 + loss (n - 1)) times as fast as with one, which takes it `seconds`. A seed
moves each job by up to `at`, and makes it longer or shorter by up to that part of `seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.schedule.cycle.rows import Rules
from shoal.simulate.scenario.rules import read_rules
from shoal.simulate.scenario.spot import Spot
from shoal.simulate.scenario.whole import open_file

__all__ = ["PacedFile", "PacedJob", "read_paced"]

_KEYS = ("description", "nodes", "slots", "step", "restart", "stops", "jitter", "rules", "jobs")
_JOB = ("name", "at", "minimum", "maximum", "seconds", "loss")


@dataclass(frozen=True, kw_only=True)
class PacedJob:
    """One job, as it really is."""

    name: str
    at: float
    """When it comes."""
    minimum: int
    maximum: int
    seconds: float
    """With one task."""
    loss: float
    step: float
    """Seconds of a step with one task."""

    @property
    def steps(self) -> int:
        """In all."""
        return max(1, round(self.seconds / self.step))

    def step_seconds(self, tasks: int) -> float:
        """How long a step takes, with so many tasks."""
        return self.step * (1.0 + self.loss * (tasks - 1)) / tasks

    @property
    def speeds(self) -> tuple[float, ...]:
        """Steps per second with 1, 2, ... tasks."""
        return tuple(1.0 / self.step_seconds(tasks) for tasks in range(1, self.maximum + 1))


@dataclass(frozen=True, kw_only=True)
class PacedFile:
    """What stands in one file."""

    name: str
    description: str
    nodes: int
    slots: int
    restart: float
    stops: float
    rules: Rules
    listed: tuple[PacedJob, ...]
    """Before any seed."""
    at_jitter: float
    seconds_jitter: float

    def jobs(self, seed: int) -> list[PacedJob]:
        """In the order in which they come; the same for a seed."""
        chance = np.random.default_rng(seed)
        later = chance.uniform(0.0, self.at_jitter, len(self.listed)).tolist()
        factor = chance.uniform(1 - self.seconds_jitter, 1 + self.seconds_jitter, len(self.listed))
        found = [
            PacedJob(
                name=job.name,
                at=round(job.at + more, 3),
                minimum=job.minimum,
                maximum=job.maximum,
                seconds=round(job.seconds * by, 3),
                loss=job.loss,
                step=job.step,
            )
            for job, more, by in zip(self.listed, later, factor.tolist(), strict=True)
        ]
        return sorted(found, key=lambda job: (job.at, job.name))


def read_paced(path: Path) -> PacedFile:
    """Raises `BadInput` with one sentence and the line for whatever cannot be used."""
    fields = open_file(path).fields(_KEYS)
    nodes, slots = fields.need("nodes").whole(1), fields.need("slots").whole(1)
    step = fields.need("step").seconds()
    if step <= 0:
        raise fields.parts["step"].wrong("a step takes some time")
    jitter = fields.get("jitter")
    shaken = None if jitter is None else jitter.fields(("at", "seconds"))
    part = None if shaken is None else shaken.get("seconds")
    spread = 0.0 if part is None else part.number()
    if part is not None and spread >= 1:
        raise part.wrong("a job cannot be shorter by all of itself")
    jobs = [_job(each, step, nodes * slots) for each in fields.need("jobs").items()]
    names = [job.name for job in jobs]
    if not jobs or len(set(names)) < len(names):
        raise fields.parts["jobs"].wrong("jobs are one or more, each of its own name")
    return PacedFile(
        name=path.stem,
        description=fields.text("description"),
        nodes=nodes,
        slots=slots,
        restart=fields.seconds("restart"),
        stops=fields.seconds("stops"),
        rules=read_rules(fields.get("rules")),
        listed=tuple(jobs),
        at_jitter=0.0 if shaken is None else shaken.seconds("at"),
        seconds_jitter=spread,
    )


def _job(spot: Spot, step: float, most: int) -> PacedJob:
    fields = spot.fields(_JOB)
    least = fields.whole_number("minimum", 1, least=1)
    maximum = fields.whole_number("maximum", least, least=least)
    if least > most:
        raise spot.wrong(f"at least {least} tasks, and there are {most} slots")
    seconds = fields.need("seconds").seconds()
    if seconds <= 0:
        raise spot.wrong("a job takes some time")
    loss = fields.get("loss")
    return PacedJob(
        name=fields.need("name").text(),
        at=fields.seconds("at"),
        minimum=least,
        maximum=maximum,
        seconds=seconds,
        loss=0.0 if loss is None else loss.number(),
        step=step,
    )
