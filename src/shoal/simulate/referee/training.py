"""One job's way through its epochs, at whatever size it is given."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import groupby

from shoal.simulate.referee.profiles import Application, Placement
from shoal.simulate.referee.workload import Submission

__all__ = ["Split", "Training", "alone_seconds", "nodes_in_order", "split_batch", "whole_nodes"]

_ROUNDING = 1e-8
"""Keeps a quotient that is a whole number from being rounded up."""


@dataclass(frozen=True)
class Split:
    """How a batch is split: samples of one replica at a time, and passes before each agreement."""

    local: int
    accumulations: int = 0
    """Passes beyond the first."""

    def batch(self, replicas: int) -> int:
        """Samples of one step."""
        return self.local * (self.accumulations + 1) * replicas


def split_batch(
    application: Application, batch: int, replicas: int, *, twice: bool | None = None
) -> Split:
    """The fewest passes that one GPU's memory allows, two at least where `twice`. That holds by itself
    for a single replica with more than the smallest batch, so that its gradients' noise can be seen."""
    share = math.ceil(batch / replicas - _ROUNDING)
    accumulations = math.ceil(share / application.most_local - _ROUNDING) - 1
    if twice is None:
        twice = replicas == 1 and batch > application.initial_batch
    if twice:
        accumulations = max(1, accumulations)
    passes = accumulations + 1
    local = math.ceil(share / passes - _ROUNDING)
    return Split(min(local, application.most_batch // (replicas * passes)), accumulations)


class Training:
    """The job's state in virtual seconds. `nodes` names the node of each replica, as placed."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.application = submission.application
        self.now = 0.0
        self.epoch = 0
        self.progress = 0.0
        self.nodes: tuple[int, ...] = ()
        self.placement: Placement = ()
        self.split = Split(0)
        self.choose: Callable[[int, int], Split] | None = None
        """Splits a batch of its own choice over so many nodes and replicas; None: the batch is fixed."""
        self.pause = 0.0
        """Seconds of restarting that are left."""
        self.service = 0.0
        """GPU seconds that it has held, pauses included."""
        self.completed: float | None = None
        self.started: float | None = None
        self.changes = 0
        """Placements given, the first included."""
        self.history: list[tuple[float, int]] = []
        """When it was given how many replicas."""
        self.waited = 0.0
        """Seconds without a GPU, in whole intervals."""

    @property
    def lasted(self) -> float:
        """Seconds from submission to completion. Raises ValueError before it."""
        if self.completed is None:
            raise ValueError(f"{self.submission.name} is not complete")
        return self.completed - self.submission.time

    @property
    def replicas(self) -> int:
        """How many it has now."""
        return len(self.nodes)

    def place(self, nodes: tuple[int, ...], restart: float) -> None:
        """Give it these nodes; a change pauses it for `restart` seconds, unless it pauses already."""
        if nodes == self.nodes:
            return
        self.nodes = nodes
        self.placement = tuple(len(list(run)) for _, run in groupby(nodes))
        self.history.append((self.now, len(nodes)))
        if not nodes:
            return
        self.changes += 1
        if self.started is None:
            self.started = self.now
        self.pause = restart
        self.resplit()

    def resplit(self) -> None:
        """Split the batch over the replicas that it has."""
        if self.choose is not None:
            self.split = self.choose(len(self.placement), self.replicas)
        else:
            self.split = split_batch(self.application, self.submission.batch, self.replicas)

    def rest(self, nodes: tuple[int, ...]) -> float:
        """Seconds until it is complete if it has these nodes from now on, undisturbed."""
        ahead = copy(self)
        ahead.history = []
        ahead.place(nodes, 0.0)
        ahead.advance(math.inf)
        assert ahead.completed is not None
        return ahead.completed - self.now

    def goodput(self, interference: float = 0.0) -> float:
        """Progress a second as it is placed and split now."""
        step, sync = self.application.step_times(self.placement, self.split.local)
        total = step + (step - sync) * self.split.accumulations
        batch = self.split.batch(self.replicas)
        return self.application.efficiency(batch, self.epoch) / total * (1.0 - interference)

    def advance(self, seconds: float, interference: float = 0.0) -> None:
        """Let so much time pass."""
        if not self.nodes or self.completed is not None:
            self.now += seconds
            return
        waited = min(self.pause, seconds)
        self._spend(waited)
        self.pause -= waited
        left = seconds - waited
        while left > 0 and self.completed is None:
            goodput = self.goodput(interference)
            end = self.application.progress[self.epoch]
            if self.progress + goodput * left < end:
                self.progress += goodput * left
                self._spend(left)
                left = 0
            else:
                needed = float(round((end - self.progress) / goodput))
                self._spend(needed)
                left -= needed
                self.progress = end
                self.epoch += 1
                if self.epoch == self.application.epochs:
                    self.completed = self.now
                else:
                    self.resplit()
        self.now += left

    def _spend(self, seconds: float) -> None:
        self.now += seconds
        self.service += seconds * self.replicas


def whole_nodes(replicas: int, gpus_per_node: int) -> Placement:
    """As few nodes as can be: whole ones, and the rest on one more."""
    whole, rest = divmod(replicas, gpus_per_node)
    return (gpus_per_node,) * whole + ((rest,) if rest else ())


def nodes_in_order(replicas: int, gpus_per_node: int) -> tuple[int, ...]:
    """The node of each replica where nobody else is: one node filled after the other."""
    return tuple(replica // gpus_per_node for replica in range(replicas))


def alone_seconds(application: Application, replicas: int, gpus_per_node: int) -> float:
    """How long a job takes undisturbed on up to so many GPUs, at the one measured batch size and the
    number of replicas that are best for it."""
    best = math.inf
    sizes = [application.batch] if application.batch else application.sizes
    for batch in sizes:
        most = min(replicas, application.replicas_for(batch))
        for count in {1 << power for power in range(most.bit_length())} | {most}:
            job = Training(Submission("alone", 0.0, application, count, batch))
            best = min(best, job.rest(nodes_in_order(count, gpus_per_node)))
    return best
