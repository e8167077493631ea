"""What a policy came to over all orders of arrival: one record, the same fields for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.simulate.packing.experiment import Run
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.pods import Pods
from shoal.simulate.packing.policies import KNOWS

__all__ = ["Record", "record_of"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One policy; lists have a value for each seed, in the order of `seeds`."""

    policy: str
    information: str
    """What it knew, as in `KNOWS`."""
    nodes: int
    """With GPUs."""
    pods: int
    """In the file; more or fewer arrive."""
    demand_percent: float
    seeds: list[int]
    allocated_gpu_percent: list[float]
    mean: float
    """Of `allocated_gpu_percent`."""
    placed: list[int]
    refused: list[int]
    cpu_seconds: list[float]


def record_of(policy: str, nodes: Nodes, pods: Pods, demand: float, runs: Sequence[Run]) -> Record:
    """The record of one run or more. Raises ValueError for none."""
    if not runs:
        raise ValueError("a mean needs one run at least")
    percent = [100 * run.allocated_milli / nodes.gpu_milli for run in runs]
    return Record(
        policy=policy,
        information=KNOWS[policy],
        nodes=len(nodes.names),
        pods=len(pods),
        demand_percent=demand,
        seeds=[run.seed for run in runs],
        allocated_gpu_percent=percent,
        mean=sum(percent) / len(percent),
        placed=[len(run.placed) for run in runs],
        refused=[run.refused for run in runs],
        cpu_seconds=[run.cpu_seconds for run in runs],
    )
