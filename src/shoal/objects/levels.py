"""Levels of the topology: labels of nodes that say what is near what, the widest first.

A cluster is told which labels they are (`shoal up --topology block,rack`); below them all is the node
itself, which needs no label. A job names levels, and only the cluster knows whether there are such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.objects.job import JobSpec, RoleTopology, Topology
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path
from shoal.objects.selectors import label_key_problem

__all__ = ["NODE_LEVEL", "levels_problem", "named_levels", "unknown_levels"]

NODE_LEVEL = "node"
"""The narrowest level, which is always there."""


def levels_problem(levels: Sequence[str]) -> str:
    """What is wrong with the levels of a cluster, in words; empty when nothing is."""
    for at, level in enumerate(levels):
        if level == NODE_LEVEL:
            return f"{NODE_LEVEL} is always the last level: leave it out"
        if level in levels[:at]:
            return f"the level {level} is named twice"
        if problem := label_key_problem(level):
            return problem
    return ""


def named_levels(topology: Topology | RoleTopology) -> dict[str, str]:
    """Field to the level that it names; those that name none are left out."""
    names = {"required": topology.required, "preferred": topology.preferred}
    if isinstance(topology, Topology):
        names["spread"] = topology.spread
    return {field: level for field, level in names.items() if level}


def unknown_levels(spec: JobSpec, levels: Sequence[str]) -> list[Finding]:
    """Each level that the job names and that a cluster with these does not have."""
    known = (*levels, NODE_LEVEL)
    return [
        Finding(
            path,
            f"the topology has no level {level}: there {'are' if levels else 'is'} {', '.join(known)}"
            f"{did_you_mean(level, known)}",
        )
        for path, level in _named(spec)
        if level not in known
    ]


def _named(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    if spec.topology is not None:
        for field, level in named_levels(spec.topology).items():
            yield ("spec", "topology", field), level
    for at, role in enumerate(spec.roles):
        if role.topology is not None:
            for field, level in named_levels(role.topology).items():
                yield ("spec", "roles", at, "topology", field), level
