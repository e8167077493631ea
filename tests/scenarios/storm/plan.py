"""What a storm is made of: jobs with their tasks' steps and what people do to them, drawn from a seed.

Tasks sleep 1 to 20 seconds, most of them few. Budgets are small, so that some jobs use them up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shoal.objects.job import (
    ArraySpec,
    JobSpec,
    Resources,
    Restart,
    RestartRule,
    Role,
    Success,
)
from shoal.objects.quantities import CpuMillis, Seconds
from tests.scenarios.storm.tasks import COMMAND, step

__all__ = ["Edit", "Planned", "draw"]

_FORGIVEN, _FATAL = 77, 78
"""Exit codes that a job with rules ignores, and fails at."""


@dataclass(frozen=True)
class Edit:
    """What a person does, so many seconds after the submission: changed fields of the spec."""

    after: float
    verb: str
    change: Callable[[JobSpec], JobSpec]


@dataclass(frozen=True)
class Planned:
    """One job: when it is submitted (seconds after the beginning), and what is done to it."""

    name: str
    at: float
    spec: JobSpec
    edits: tuple[Edit, ...] = field(default=())


def draw(seed: int, jobs: int, span_seconds: float) -> list[Planned]:
    """That many jobs, submitted within that time; equal arguments give equal plans."""
    chance = random.Random(seed)
    kinds = sorted(_KINDS)
    found: list[Planned] = []
    for number in range(jobs):
        kind = kinds[number % len(kinds)]
        spec, edits = _KINDS[kind](chance)
        at = chance.uniform(0.0, span_seconds)
        found.append(Planned(f"{kind}-{number}", at, spec, edits))
    return sorted(found, key=lambda planned: planned.at)


def _single(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """One task that fails a few times, perhaps more often than is forgiven."""
    role = _role(chance, fails=[(0, chance.randint(0, 3))])
    return JobSpec(roles=(role,), restart=_restart(chance.randint(0, 3))), ()


def _gang(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """Tasks that start and fail together."""
    size = chance.randint(2, 4)
    fails = [(index, chance.randint(0, 2)) for index in range(size)]
    role = _role(chance, replicas=size, fails=fails, fails_first=True)
    return JobSpec(roles=(role,), restart=_restart(chance.randint(1, 5), scope="Gang")), ()


def _array(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """Indices that fail each for itself, some for good."""
    size = chance.randint(3, 8)
    fails = [(index, chance.choice((0, 0, 0, 1, 2))) for index in range(size)]
    role = _role(chance, fails=fails)
    array = ArraySpec(indices=f"0-{size - 1}", parallelism=chance.choice((None, 2, 4)))
    edits = _stop_and_go(chance) if chance.random() < 0.3 else ()
    return JobSpec(roles=(role,), array=array, restart=_restart(1)), edits


def _cancelled(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """A gang or an array that is cancelled, with tasks of any manners."""
    size = chance.randint(1, 3)
    role = _role(chance, replicas=size, manners=("plain", "polite", "deaf"), longest=20.0)
    restart = _restart(2, scope=chance.choice(("Gang", "Task")))
    cancel = Edit(chance.uniform(0.2, 8.0), "cancel", lambda spec: _with(spec, cancelled=True))
    spec = JobSpec(roles=(role,), restart=restart, grace_period=_grace(chance))
    if chance.random() < 0.3:
        one = msgspec.structs.replace(role, replicas=1)
        array = ArraySpec(indices=f"0-{size}")
        spec = _with(spec, roles=(one,), array=array, restart=_restart(2))
    return spec, (cancel,)


def _suspended(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """A job that is suspended and resumed, its tasks failing at times."""
    size = chance.randint(1, 3)
    fails = [(index, chance.choice((0, 0, 1))) for index in range(size)]
    role = _role(chance, replicas=size, fails=fails, manners=("plain", "polite", "deaf"))
    restart = _restart(4, scope=chance.choice(("Gang", "Task")))
    spec = JobSpec(roles=(role,), restart=restart, grace_period=_grace(chance))
    return spec, _stop_and_go(chance)


def _scaled(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """A job that gets another number of tasks, once or twice."""
    sizes = chance.sample((1, 2, 3, 4), 3)
    role = _role(chance, replicas=sizes[0], longest=20.0)
    restart = _restart(2, scope=chance.choice(("Gang", "Task")))
    spec = JobSpec(roles=(role,), restart=restart, grace_period=_grace(chance))
    edits: list[Edit] = []
    after = 0.0
    for size in sizes[1 : chance.randint(2, 3)]:
        after += chance.uniform(0.3, 5.0)
        edits.append(Edit(after, f"scale to {size}", lambda spec, size=size: _resized(spec, size)))
    return spec, tuple(edits)


def _ruled(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """Exit codes that are ignored or final."""
    rules = (
        RestartRule(exit_codes=(_FORGIVEN,), action="Ignore"),
        RestartRule(exit_codes=(_FATAL,), action="Fail"),
    )
    steps = {"STEP": step(_seconds(chance))}
    for incarnation in range(1, chance.randint(1, 4)):
        code = chance.choice((_FORGIVEN, _FORGIVEN, _code(0, incarnation), _FATAL))
        steps[f"STEP_0_{incarnation}"] = step(_seconds(chance, 4.0), code)
    role = Role(command=COMMAND, env=steps, resources=_resources(chance))
    restart = Restart(limit=2, rules=rules, backoff=Seconds(0.3))
    return JobSpec(roles=(role,), restart=restart), ()


def _led(chance: random.Random) -> tuple[JobSpec, tuple[Edit, ...]]:
    """A chief that decides, and helpers that run on until they are told to stop."""
    chief = _role(chance, fails=[(0, chance.randint(0, 1))], name="chief")
    helper = _role(chance, replicas=chance.randint(1, 2), name="helper", manners=("plain", "deaf"))
    steps = {**helper.env, "STEP": step(600, manners=chance.choice(("plain", "deaf")))}
    helper = msgspec.structs.replace(helper, env=steps)
    success = Success(role="chief", policy=chance.choice(("All", "First")))
    restart = _restart(2, scope=chance.choice(("Gang", "Task")))
    spec = JobSpec(roles=(chief, helper), success=success, restart=restart, grace_period=_grace(chance))
    return spec, ()


_KINDS = {
    "array": _array,
    "cancelled": _cancelled,
    "gang": _gang,
    "led": _led,
    "ruled": _ruled,
    "scaled": _scaled,
    "single": _single,
    "suspended": _suspended,
}


def _role(
    chance: random.Random,
    *,
    name: str = "worker",
    replicas: int = 1,
    fails: list[tuple[int, int]] | None = None,
    fails_first: bool = False,
    manners: tuple[str, ...] = ("plain",),
    longest: float = 12.0,
) -> Role:
    """`fails`: an index, and how many of its first incarnations fail. `fails_first`: before the others
    have ended, so that these must be stopped."""
    steps = {"STEP": step(_seconds(chance, longest), manners=chance.choice(manners))}
    for index in range(replicas):
        manner = chance.choice(manners)
        steps[f"STEP_{index}_1"] = step(_seconds(chance, longest), manners=manner)
    for index, count in fails or ():
        for incarnation in range(1, count + 1):
            seconds = 1.0 if fails_first else _seconds(chance, 5.0)
            steps[f"STEP_{index}_{incarnation}"] = step(seconds, _code(index, incarnation))
    return Role(name=name, replicas=replicas, command=COMMAND, env=steps, resources=_resources(chance))


def _code(index: int, incarnation: int) -> int:
    """Another for each start of each index: what was counted can be told from the exit code."""
    return 10 + (index * 6 + incarnation) % 60


def _seconds(chance: random.Random, longest: float = 8.0) -> float:
    return round(min(longest, 1.0 + chance.expovariate(0.35)), 2)


def _resources(chance: random.Random) -> Resources:
    return Resources(cpu=CpuMillis(chance.choice((50, 100, 200))))


def _restart(limit: int, **fields: Any) -> Restart:
    return Restart(limit=limit, backoff=Seconds(0.3), **fields)


def _grace(chance: random.Random) -> Seconds:
    return Seconds(chance.choice((0.5, 1.0, 2.0)))


def _stop_and_go(chance: random.Random) -> tuple[Edit, ...]:
    first = chance.uniform(0.2, 5.0)
    return (
        Edit(first, "suspend", lambda spec: _with(spec, suspend=True)),
        Edit(first + chance.uniform(0.05, 4.0), "resume", lambda spec: _with(spec, suspend=False)),
    )


def _resized(spec: JobSpec, size: int) -> JobSpec:
    role = msgspec.structs.replace(spec.roles[0], replicas=size)
    return _with(spec, roles=(role, *spec.roles[1:]))


def _with(spec: JobSpec, **fields: Any) -> JobSpec:
    return msgspec.structs.replace(spec, **fields)
