"""The systems that can be harmed, and how each job of theirs is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.elastic.jobs.adaptdl import Adaptdl
from bench.elastic.jobs.floor import Floor
from bench.elastic.jobs.job import Job
from bench.elastic.jobs.shoal import Shoal
from bench.elastic.jobs.torchft import Torchft, TunedTorchft
from bench.elastic.jobs.torchrun import Nodes, StockTorchrun, Torchrun
from bench.elastic.plan import Plan
from bench.elastic.settings import Settings

__all__ = ["Subject", "subjects"]


@dataclass(frozen=True)
class Subject:
    """`make(settings, world)` gives a job that has not been started yet."""

    name: str
    make: Callable[[Settings, int], Job]
    share: float = 1.0
    """Of the harms that Shoal gets: less where each takes long."""
    deadline_seconds: float = 60.0

    def tries(self, plan: Plan) -> int:
        """How many harms, at least one."""
        return max(1, round(plan.kills * self.share))


_PEERS: dict[type[Job], tuple[float, float]] = {
    Torchrun: (0.1, 60.0),
    StockTorchrun: (0.05, 30.0),
    Nodes: (0.05, 90.0),
    Torchft: (0.15, 60.0),
    TunedTorchft: (0.15, 60.0),
    Floor: (0.15, 40.0),
    Adaptdl: (0.05, 60.0),
}


def subjects(plan: Plan, peers: Sequence[type[Job]]) -> list[Subject]:
    """Shoal first, then those of the peers that can be had; both as far as they are wanted."""
    found = [Subject(Shoal.system, lambda settings, world: Shoal(settings, world, plan.python))]
    for kind in peers:
        share, deadline = _PEERS[kind]
        python = plan.peers if issubclass(kind, Torchft | Adaptdl) else plan.python
        if python is not None:
            found.append(Subject(kind.system, _maker(kind, python), share, deadline))
    return [subject for subject in found if plan.wants(subject.name)]


def _maker(kind: type[Job], python: str) -> Callable[[Settings, int], Job]:
    return lambda settings, world: kind(settings, world, python)
