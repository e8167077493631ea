"""Pods with parts of GPUs: how full the published cluster gets, and how long placing them takes.

    python -m bench.schedule.packing

Published files are read from `$SHOAL_DATA`, or `shared/data` beside the checkout. Beside each figure
stand the same policies made anew, in the same run and on the same orders of arrival, and what was
published of FGD.
"""

from __future__ import annotations

import random
import statistics
import sys
import time

from bench.published import DATA
from bench.row import Row, p50, p95, table
from shoal.simulate.packing.experiment import DEMAND, SEEDS, pack
from shoal.simulate.packing.filling import fill
from shoal.simulate.packing.nodes import Nodes, read_nodes
from shoal.simulate.packing.pods import Pods, read_pods
from shoal.simulate.packing.policies import POLICIES
from shoal.simulate.packing.report import record_of
from shoal.simulate.packing.states import requests_of

__all__ = ["main", "rows"]

_OPENB = DATA / "openb"
_LISTS = {"default": (95.4, 95.39), "multigpu50": (97.2, 97.18)}
"""Goal, and what was published of FGD."""
_REPEATS = 7


def rows() -> list[Row]:
    """None where the published files are not there."""
    if not _OPENB.is_dir():
        print(f"the published openb data are not in {_OPENB}", file=sys.stderr)
        return []
    nodes = read_nodes(_OPENB / "openb_node_list_gpu_node.csv")
    lists = {name: read_pods(_OPENB / f"openb_pod_list_{name}.csv") for name in _LISTS}
    full = [_full(nodes, name, pods) for name, pods in lists.items()]
    return [*full, _speed(nodes, lists["default"])]


def _full(nodes: Nodes, name: str, pods: Pods) -> Row:
    goal, published = _LISTS[name]
    percents = {
        policy: record_of(
            policy, nodes, pods, DEMAND, [pack(nodes, pods, policy, seed) for seed in SEEDS]
        ).allocated_gpu_percent
        for policy in POLICIES
    }
    ours = percents.pop("shoal")
    made = ", ".join(f"{policy} {statistics.mean(each):.2f}" for policy, each in percents.items())
    return Row(
        f"GPUs allocated at {DEMAND:g} % demand, openb {name}, mean of {len(SEEDS)} orders",
        goal,
        statistics.mean(ours),
        "%",
        f"{statistics.mean(ours):.2f}, orders {min(ours):.2f} to {max(ours):.2f}",
        f"{made}; published FGD {published}",
        higher=True,
    )


def _speed(nodes: Nodes, pods: Pods) -> Row:
    def seconds(policy: str, seed: int) -> float:
        order = pods.shape.tolist()
        random.Random(seed).shuffle(order)
        begun = time.process_time()
        requests = requests_of(pods.shapes, nodes)
        placed = sum(1 for _ in fill(nodes, requests, POLICIES[policy](nodes, pods, seed), order))
        taken = time.process_time() - begun
        assert placed > 0.95 * len(order), "nearly all of them fit"
        return taken

    ours = [seconds("shoal", seed) for seed in range(_REPEATS)]
    theirs = [seconds("fgd", seed) for seed in range(_REPEATS)]
    return Row(
        f"all {len(pods):,} pods of openb default, rehearsal included",
        5,
        p50(ours),
        "CPU s",
        f"p95 {p95(ours):.2f}",
        f"FGD made anew {p50(theirs):.2f}",
    )


def main() -> None:
    """Print the table."""
    print(table(rows()))


if __name__ == "__main__":
    main()
