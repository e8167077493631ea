"""Who decides, by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shoal.schedule.allot import Allot
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.baselines.easy import Easy
from shoal.schedule.baselines.fifo import Fifo
from shoal.schedule.baselines.optimus import Optimus
from shoal.schedule.baselines.tiresias import Tiresias
from shoal.schedule.cycle.rows import Cluster, Job, Role, Rules

__all__ = ["POLICIES", "SHOAL", "STRICT", "as_asked", "peer"]

SHOAL = "shoal"
"""Shoal's own decisions."""
STRICT = "fifo"
"""Nobody overtakes who does not fit."""

_RIGID = frozenset({"fifo", "fifo-skip", "easy", "tiresias"})
_PEERS: dict[str, Callable[[Cluster, Rules], Allot]] = {
    "fifo": lambda _, __: Fifo(skip=False),
    "fifo-skip": lambda _, __: Fifo(skip=True),
    "easy": lambda _, __: Easy(),
    "tiresias": lambda _, __: Tiresias(),
    "optimus": lambda _, __: Optimus(),
    "dragon": lambda cluster, rules: Dragon(
        patience=rules.patience_seconds, quiet=rules.quiet_seconds, acted=_acted(cluster)
    ),
}

POLICIES = (SHOAL, *_PEERS)
"""What `Rules.policy` may be: the first decides by queues, shares, dates and sizes, the others are other
people's. FIFO, EASY and Tiresias run every job at its maximum, DRAGON and Optimus size them."""


def peer(cluster: Cluster, rules: Rules) -> Allot | None:
    """Whom to follow; None: nobody, Shoal decides by itself. Raises ValueError for a name that means
    nothing."""
    if rules.policy == SHOAL:
        return None
    if rules.policy not in _PEERS:
        raise ValueError(f"there is no policy {rules.policy}; there are {', '.join(POLICIES)}")
    return _PEERS[rules.policy](cluster, rules)


def as_asked(cluster: Cluster, rules: Rules) -> Cluster:
    """The rows as the policy takes them: for who knows no elastic jobs each asks for its maximum."""
    if rules.policy not in _RIGID:
        return cluster

    def whole(role: Role) -> Role:
        if role.minimum == role.maximum:
            return role
        return msgspec.structs.replace(role, minimum=role.maximum)

    def fixed(job: Job) -> Job:
        roles = tuple(map(whole, job.roles))
        if all(mine is role for mine, role in zip(roles, job.roles, strict=True)):
            return job
        return msgspec.structs.replace(job, roles=roles)

    return msgspec.structs.replace(cluster, jobs=tuple(map(fixed, cluster.jobs)))


def _acted(cluster: Cluster) -> float:
    if cluster.acted is not None:
        return cluster.acted
    return max((job.since for job in cluster.jobs if job.tasks), default=0.0)
