"""One policy, and one order in which pods arrive: place what fits, refuse the rest."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.arrivals import arrivals
from shoal.simulate.packing.filling import Placed, fill
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.pods import Pods
from shoal.simulate.packing.policies import POLICIES
from shoal.simulate.packing.states import requests_of

__all__ = ["DEMAND", "SEEDS", "Run", "pack"]

DEMAND = 130.0
"""Percent of the nodes' GPUs that are asked for in the published experiment."""

SEEDS = tuple(range(42, 52))
"""Of the published experiment."""

_MOST_DEMAND = 1000.0


@dataclass(frozen=True)
class Run:
    """What came of it."""

    seed: int
    placed: tuple[Placed, ...]
    refused: int
    allocated_milli: int
    """Milli-GPUs in use at the end."""
    cpu_seconds: float
    """Processor time of the policy and of keeping account, its preparation included."""


def pack(nodes: Nodes, pods: Pods, policy: str, seed: int, demand: float = DEMAND) -> Run:
    """Place arrivals that ask for `demand` percent of the nodes' GPUs. Raises `BadInput` for a policy
    that is not there, a demand that makes no sense, and pods that never ask for so much."""
    if policy not in POLICIES:
        raise BadInput(f"there is no policy {policy!r}; there are {', '.join(POLICIES)}")
    if not 0 < demand <= _MOST_DEMAND:
        raise BadInput(f"pods can ask for 0 to {_MOST_DEMAND:g} % of the GPUs, not for {demand:g} %")
    order = arrivals(pods, demand / 100 * nodes.gpu_milli, seed).tolist()
    begun = time.process_time()
    requests = requests_of(pods.shapes, nodes)
    chooser = POLICIES[policy](nodes, pods, seed)
    placed = tuple(fill(nodes, requests, chooser, order))
    return Run(
        seed=seed,
        placed=placed,
        refused=len(order) - len(placed),
        allocated_milli=sum(requests[each.shape].gpu_milli for each in placed),
        cpu_seconds=time.process_time() - begun,
    )
