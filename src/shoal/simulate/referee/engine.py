"""The loop: every job advances an interval, then the policy places those that are there.

Nodes have the same number of GPUs. A job is seen from the first decision after its submission; its
completion time is exact to the second. A job over several nodes that shares one with another such job
is slowed by `interference`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.schedule.allot import Allot, Contender, Outlook
from shoal.simulate.errors import BadInput, Stuck
from shoal.simulate.referee.declaring import Declaring
from shoal.simulate.referee.learner import Learner, Profile
from shoal.simulate.referee.profiles import Application
from shoal.simulate.referee.training import Training, nodes_in_order, split_batch, whole_nodes
from shoal.simulate.referee.workload import Submission

__all__ = ["Cluster", "Run", "simulate"]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What the jobs run on, and what a change costs them."""

    nodes: int = 16
    gpus_per_node: int = 4
    interval: float = 60.0
    """Seconds between decisions."""
    restart: float = 30.0
    """Seconds that a job pauses when its nodes change."""
    interference: float = 0.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.gpus_per_node < 1:
            raise BadInput("a cluster has a node with a GPU at least")
        if not (math.isfinite(self.interval) and self.interval > 0):
            raise BadInput(f"decisions cannot be {self.interval:g} seconds apart")
        if not (math.isfinite(self.restart) and self.restart >= 0):
            raise BadInput(f"a restart cannot take {self.restart:g} seconds")
        if not 0 <= self.interference < 1:
            raise BadInput("interference is a part of a job's speed, from 0 to below 1")

    @property
    def capacity(self) -> list[int]:
        """GPUs of each node."""
        return [self.gpus_per_node] * self.nodes


@dataclass
class Run:
    """What came of it."""

    cluster: Cluster
    jobs: list[Training]
    makespan: float = 0.0
    """End of the interval in which the last job ended."""
    decision_seconds: list[float] = field(default_factory=list[float])
    """Processor time of each decision."""
    busy: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    """Time, GPUs in use and jobs waiting, after each decision."""


def simulate(
    workload: Sequence[Submission],
    policy: Allot,
    cluster: Cluster,
    declaring: Declaring | None = None,
) -> Run:
    """Run the jobs to their end. Raises `Stuck` where some would wait for ever on an idle cluster."""
    jobs = [Training(each) for each in workload]
    factors = (declaring or Declaring()).factors(workload)
    observed = _Observed(policy.information, factors) if policy.elastic else None
    run = Run(cluster, jobs)
    capacity = cluster.capacity
    now = 0.0
    while any(job.completed is None for job in jobs):
        slowed = _interfered(jobs)
        for job in jobs:
            job.advance(cluster.interval, cluster.interference if job in slowed else 0.0)
        now += cluster.interval
        there = [job for job in jobs if job.completed is None and job.submission.time <= now]
        for job in jobs:
            if job.completed is not None:
                job.nodes = ()
        if not there:
            continue
        outlooks = observed.outlooks(there) if observed else {}
        contenders = [_contender(job, cluster, outlooks.get(job)) for job in there]
        before = time.process_time()
        given = policy.allot(contenders, capacity, now)
        run.decision_seconds.append(time.process_time() - before)
        for job in there:
            job.place(given.get(job.submission.name, ()), cluster.restart)
            job.waited += 0.0 if job.nodes else cluster.interval
        used = sum(job.replicas for job in there)
        run.busy.append((now, used, sum(not job.nodes for job in there)))
        if not used and all(job.submission.time <= now for job in jobs):
            names = ", ".join(job.submission.name for job in there[:3])
            raise Stuck(f"{names} of {len(there)} jobs will never start on {sum(capacity)} GPUs")
    run.makespan = now
    return run


class _Observed:
    """What elastic jobs find out about themselves."""

    def __init__(self, information: str, factors: dict[str, float]) -> None:
        """`factors`: declared over true work, by name of the job."""
        self._factors = factors if information != "none" else {}
        self._shared: dict[str, Profile] | None = {} if information == "profiles" else None
        self._learners: dict[Training, Learner] = {}

    def outlooks(self, jobs: Sequence[Training]) -> dict[Training, Outlook]:
        for job in jobs:
            if job not in self._learners:
                self._learners[job] = Learner(job, self._profile(job.application.name))
            self._learners[job].observe()
        for job in jobs:
            if job.nodes:
                job.resplit()
        return {job: self._learners[job].outlook(self._factors.get(job.submission.name)) for job in jobs}

    def _profile(self, application: str) -> Profile:
        return Profile() if self._shared is None else self._shared.setdefault(application, Profile())


def _interfered(jobs: Sequence[Training]) -> set[Training]:
    """Jobs over several nodes that share a node with another such job."""
    spread = [job for job in jobs if len(job.placement) > 1 and job.nodes]
    tenants: dict[int, list[Training]] = {}
    for job in spread:
        for node in set(job.nodes):
            tenants.setdefault(node, []).append(job)
    return {job for there in tenants.values() if len(there) > 1 for job in there}


def _contender(job: Training, cluster: Cluster, outlook: Outlook | None) -> Contender:
    gpus_per_node = cluster.gpus_per_node
    submission = job.submission
    application, batch = submission.application, submission.batch
    return Contender(
        name=submission.name,
        submitted=submission.time,
        size=submission.replicas,
        most=application.replicas_for(batch),
        nodes=job.nodes,
        service=job.service,
        run_seconds=lambda: _run_seconds(job, gpus_per_node),
        step_seconds=lambda size: _packed_step(application, batch, size, gpus_per_node),
        steps_left=lambda: _steps_left(job),
        restart=cluster.restart,
        outlook=outlook,
    )


def _packed_step(application: Application, batch: int, size: int, gpus_per_node: int) -> float:
    split = split_batch(application, batch, size, twice=True if size == 1 else None)
    step, sync = application.step_times(whole_nodes(size, gpus_per_node), split.local)
    return step + (step - sync) * split.accumulations


def _steps_left(job: Training) -> float:
    application, batch = job.application, job.submission.batch
    last = application.epochs - 1
    if job.epoch >= last:
        return 1.0
    return application.iterations(batch, last) - application.iterations(batch, job.epoch)


def _run_seconds(job: Training, gpus_per_node: int) -> float:
    return job.rest(job.nodes or nodes_in_order(job.submission.replicas, gpus_per_node))
