"""The stages of a decision, in their order."""

from __future__ import annotations

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Cluster, Rules
from shoal.schedule.cycle.steps import Plan

__all__ = ["plan"]


def plan(cluster: Cluster, rules: Rules, now: Stamp) -> Plan:
    """What to do now."""
    raise NotImplementedError
