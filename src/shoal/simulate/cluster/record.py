"""What came of a simulation of a whole cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from shoal.objects.meta import Stamp

__all__ = ["Ran", "Record", "Sample"]


@dataclass
class Ran:
    """What became of one job."""

    submitted: Stamp
    started: Stamp | None = None
    """When it first had its gang."""
    ended: Stamp | None = None
    """When it was done, or was ended at its wall time; None: it never was."""
    timed_out: bool = False
    preemptions: int = 0
    changes: int = 0
    """How often it grew or shrank."""
    lost_seconds: float = 0.0
    """Work that had to be done again."""

    @property
    def wait(self) -> float:
        """Seconds to its first start; infinite if there was none."""
        return float("inf") if self.started is None else self.started - self.submitted


@dataclass(frozen=True)
class Sample:
    """The cluster after a decision."""

    at: Stamp
    used: dict[str, float]
    """By resource, as a part of what the nodes have; GPUs as `gpu`."""
    waiting: int


@dataclass
class Record:
    """Of one run."""

    jobs: dict[str, Ran] = field(default_factory=dict[str, Ran])
    samples: list[Sample] = field(default_factory=list[Sample])
    decision_seconds: list[float] = field(default_factory=list[float])
    """Processor time of each decision, the planner alone."""
    steps: Counter[str] = field(default_factory=Counter[str])
    """How many of each kind were done."""
    ended_at: Stamp = 0.0
    """When the last job ended, or the run was given up."""
    areas: dict[str, float] = field(default_factory=dict[str, float])
    """By resource: use over time, as seconds of the whole cluster."""

    def utilisation(self, resource: str, until: Stamp | None = None) -> float:
        """Mean use of a resource from 0 to the end, as a part of all there is."""
        length = self.ended_at if until is None else until
        return self.areas.get(resource, 0.0) / length if length > 0 else 0.0

    @property
    def unfinished(self) -> list[str]:
        """Jobs that were there to the end, in the order in which they came."""
        return [name for name, ran in self.jobs.items() if ran.ended is None]

    @property
    def preemptions(self) -> int:
        """Of all jobs."""
        return sum(ran.preemptions for ran in self.jobs.values())
