"""What has to hold of every plan, whoever made it: tried in tests, and now and then where it matters.

Said from the rows and the steps alone; nothing that the planner keeps up is believed. A few passes over
tasks and steps, so that a server can afford it for some of its plans. May import what rows, steps and
shares say; must not know how plans are made.

- `replay`: rows as they are after each step
- `order`: steps stand where it is safe to cut, one thing is done to each job, and nobody gives way for
no one
- `places`: nodes, GPUs and amounts are there when something starts, and are kept for one alone
- `wholes`: gangs are whole, or not there
- `rights`: limits, guarantees, and who may take from whom
"""

from __future__ import annotations

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.invariants import order, places, rights, wholes
from shoal.schedule.cycle.rows import Cluster
from shoal.schedule.cycle.steps import Plan

__all__ = ["broken"]


def broken(cluster: Cluster, plan: Plan, soon: Stamp) -> list[str]:
    """What is wrong with the plan for these rows, a sentence each; nothing is good. Who must have ended
    by `soon`, which is when the plan was made and its notice, is counted as going."""
    found = order.wrong(cluster, plan)
    if found:
        return found  # the others take the steps at their word
    return [
        *places.wrong(cluster, plan),
        *wholes.wrong(cluster, plan),
        *rights.wrong(cluster, plan, soon),
    ]
