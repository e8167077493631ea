"""Paced jobs run by a policy in virtual time, and policies put in order by what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import World
from shoal.simulate.paced.jobs import PacedFile, PacedJob

__all__ = ["TIE", "Outcome", "contradictions", "mean_jct", "ranking", "run"]

TIE = 0.05
"""Who is no more than this part behind the first of a place shares it."""

_ONE = {"cpu": 1000}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One policy, one seed; times in seconds."""

    policy: str
    seed: int
    completion: dict[str, float]
    """By job, from when it came to its end."""
    makespan: float
    changes: int
    """How often jobs grew or shrank."""

    @property
    def mean(self) -> float:
        """Mean job completion time."""
        return sum(self.completion.values()) / len(self.completion)


def run(file: PacedFile, policy: str, seed: int) -> Outcome:
    """In virtual time, to the end of the last job. Raises ValueError for a policy that there is not."""
    nodes = tuple(
        Node(name=f"node{at}", amounts={"cpu": _ONE["cpu"] * file.slots}) for at in range(file.nodes)
    )
    rules = msgspec.structs.replace(file.rules, policy=policy)
    world = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), rules)
    options = Options(restart_seconds=file.restart, stop_seconds=file.stops)
    record = simulate(world, [_arrival(file, job) for job in file.jobs(seed)], options)
    return Outcome(
        policy=policy,
        seed=seed,
        completion={
            name: ran.ended - ran.submitted for name, ran in record.jobs.items() if ran.ended is not None
        },
        makespan=record.ended_at,
        changes=sum(ran.changes for ran in record.jobs.values()),
    )


def _arrival(file: PacedFile, job: PacedJob) -> Arrival:
    row = Job(
        name=job.name,
        created=job.at,
        roles=(Role(minimum=job.minimum, maximum=job.maximum, amounts=_ONE),),
        speeds=job.speeds,
        work=float(job.steps),
        restart_seconds=file.restart,
    )
    return Arrival(at=job.at, job=row, seconds=job.steps / job.speeds[job.minimum - 1])


def mean_jct(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """By policy, over its seeds."""
    found: dict[str, list[float]] = {}
    for each in outcomes:
        found.setdefault(each.policy, []).append(each.mean)
    return {policy: sum(means) / len(means) for policy, means in found.items()}


def ranking(figures: Mapping[str, float], tie: float = TIE) -> list[list[str]]:
    """The lowest first; those who share a place in one list."""
    places: list[list[str]] = []
    first = 0.0
    for name in sorted(figures, key=lambda name: (figures[name], name)):
        if places and figures[name] <= first * (1 + tie):
            places[-1].append(name)
        else:
            places.append([name])
            first = figures[name]
    return places


def contradictions(
    expected: Mapping[str, float], found: Mapping[str, float], tie: float = TIE
) -> list[str]:
    """Sentences: pairs that come in one order here and in the other there, ties apart."""
    said: list[str] = []
    names: Sequence[str] = sorted(expected, key=lambda name: (expected[name], name))
    for ahead, behind in combinations(names, 2):
        apart = expected[behind] > expected[ahead] * (1 + tie)
        if apart and found[ahead] > found[behind] * (1 + tie):
            was = f"{expected[ahead]:.2f} and {expected[behind]:.2f} s"
            now = f"{found[ahead]:.2f} and {found[behind]:.2f} s"
            said.append(f"{ahead} was to come before {behind} ({was}), and came after it ({now})")
    return said
