"""The policies that can be compared, by name."""

from __future__ import annotations

from collections.abc import Callable

from shoal.simulate.packing.at_random import Random
from shoal.simulate.packing.best_fit import BestFit
from shoal.simulate.packing.filling import Policy
from shoal.simulate.packing.fitting import typical
from shoal.simulate.packing.fragments import Fragments
from shoal.simulate.packing.holes import hole_worth
from shoal.simulate.packing.nodes import Nodes
from shoal.simulate.packing.outlook import Outlook
from shoal.simulate.packing.pods import Pods
from shoal.simulate.packing.rehearsal import rehearse
from shoal.simulate.packing.states import requests_of
from shoal.simulate.packing.where import Where

__all__ = ["KNOWS", "POLICIES"]

_COVER = 0.95
"""Typical pods are the most frequent ones until they are so much of all, as published with FGD."""
_PATIENCE = 30
"""Of pods, for how many a hole is watched."""


def _random(nodes: Nodes, pods: Pods, seed: int) -> Policy:
    return Random(requests_of(pods.shapes, nodes), seed)


def _best_fit(nodes: Nodes, pods: Pods, seed: int) -> Policy:
    return Where(requests_of(pods.shapes, nodes), BestFit(nodes))


def _fgd(nodes: Nodes, pods: Pods, seed: int) -> Policy:
    return Where(requests_of(pods.shapes, nodes), Fragments(typical(pods, nodes, _COVER, idle=True)))


def _shoal(nodes: Nodes, pods: Pods, seed: int) -> Policy:
    mix = typical(pods, nodes, _COVER, idle=False)
    holes = hole_worth(mix, _PATIENCE)
    weight = rehearse(nodes, pods, mix, holes)
    return Where(requests_of(pods.shapes, nodes), Outlook(mix, weight, holes))


POLICIES: dict[str, Callable[[Nodes, Pods, int], Policy]] = {
    "random": _random,
    "best-fit": _best_fit,
    "fgd": _fgd,
    "shoal": _shoal,
}
"""Name to what makes it, given the cluster, the list that pods come from, and a seed."""

KNOWS = {"random": "none", "best-fit": "none", "fgd": "mix", "shoal": "mix"}
"""Name to what the policy knows: nothing, or the list that pods come from (which shapes, how often), but
not their order."""
