"""What a run came to: one record with the same fields for every policy, and tables of them.

- `wait`: mean seconds a job held no GPU between its submission and its end, in whole intervals
- `restarts_per_job`: changes of its nodes after the first start
- `gpu_hours`: GPUs held, restarts included
- finish-time fairness (Mahajan et al., NSDI 2020): a job's completion time over that of the same job
  alone on its fair share, which is the cluster divided by the mean number of jobs that were there with
  it, at the one batch size that suits that share best
- percentile q is `sorted[int(q * n)]`, as in the published results that these are held against
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from shoal.simulate.referee.engine import Run
from shoal.simulate.referee.profiles import Application
from shoal.simulate.referee.training import alone_seconds

__all__ = ["Record", "percentile", "record_of"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One policy on one workload; times in seconds."""

    policy: str
    workload: str
    avg_jct: float
    p50: float
    p90: float
    p99: float
    makespan: float
    wait: float
    restarts_per_job: float
    gpu_hours: float
    ftf_p95: float
    ftf_max: float
    ms_per_decision: float
    information: str


def record_of(run: Run, policy: str, workload: str, information: str) -> Record:
    """The record of a finished run."""
    jobs = run.jobs
    times = [job.lasted for job in jobs]
    ratios = _fairness(run)
    decisions = run.decision_seconds
    return Record(
        policy=policy,
        workload=workload,
        avg_jct=sum(times) / len(times),
        p50=percentile(times, 0.5),
        p90=percentile(times, 0.9),
        p99=percentile(times, 0.99),
        makespan=run.makespan,
        wait=sum(job.waited for job in jobs) / len(jobs),
        restarts_per_job=sum(job.changes - 1 for job in jobs) / len(jobs),
        gpu_hours=sum(job.service for job in jobs) / 3600,
        ftf_p95=percentile(ratios, 0.95),
        ftf_max=max(ratios),
        ms_per_decision=1000 * sum(decisions) / len(decisions),
        information=information,
    )


def percentile(values: Sequence[float], part: float) -> float:
    """`part` from 0 up to, but without, 1. Raises IndexError for no values."""
    return sorted(values)[int(part * len(values))]


def _fairness(run: Run) -> list[float]:
    total = sum(run.cluster.capacity)
    spans = [(job.submission.time, job.submission.time + job.lasted) for job in run.jobs]

    @cache
    def alone(application: Application, share: int) -> float:
        return alone_seconds(application, share, run.cluster.gpus_per_node)

    ratios: list[float] = []
    for job, (begun, ended) in zip(run.jobs, spans, strict=True):
        together = sum(max(0.0, min(end, ended) - max(begin, begun)) for begin, end in spans)
        share = max(1, int(total * job.lasted / together))
        ratios.append(job.lasted / alone(job.application, share))
    return ratios
