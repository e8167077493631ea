"""The policies that can be simulated on nodes of equal GPUs, by name."""

from __future__ import annotations

from collections.abc import Callable

from shoal.schedule.allot import Allot, most_free_first
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.baselines.easy import Easy
from shoal.schedule.baselines.fifo import Fifo
from shoal.schedule.baselines.optimus import Optimus
from shoal.schedule.baselines.tiresias import Tiresias
from shoal.schedule.sizing.policy import Elastic

__all__ = ["INFORMATION", "POLICIES"]

INFORMATION = ("none", "declared", "profiles")
"""What Shoal is told: nothing; how much work a job is; that, and what earlier jobs of the application
have shown."""

POLICIES: dict[str, Callable[[str], Allot]] = {
    "fifo": lambda _: Fifo(skip=False),
    "fifo-skip": lambda _: Fifo(skip=True),
    "fifo-skip-spread": lambda _: Fifo(skip=True, placing=most_free_first),
    "easy": lambda _: Easy(),
    "tiresias": lambda _: Tiresias(),
    "optimus": lambda _: Optimus(),
    "dragon": lambda _: Dragon(),
    "shoal": Elastic,
}
"""Name to what makes it, given what Shoal is told. FIFO and EASY place packed; `-spread`: on the nodes
with the most free, as the re-created Tiresias, Optimus and DRAGON do."""
