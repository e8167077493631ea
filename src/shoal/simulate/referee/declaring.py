"""What users say about how much work their jobs are: the truth, by guess, or less than it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.simulate.errors import BadInput
from shoal.simulate.referee.workload import Submission

__all__ = ["Declaring"]

_LIE = 0.1


@dataclass(frozen=True)
class Declaring:
    """Declared work over true work: log-normal, the median 1, most of it within `error` up or down;
    and of `liars` (a part of all jobs) a tenth of that."""

    error: float = 1.0
    liars: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.error) and self.error >= 1):
            raise BadInput(f"declared work cannot be off by a factor of {self.error:g}")
        if not 0 <= self.liars <= 1:
            raise BadInput(f"{self.liars:g} is no part of the jobs")

    def factors(self, workload: Sequence[Submission]) -> dict[str, float]:
        """By name of the job."""
        random = np.random.default_rng(self.seed)
        off = np.exp(random.normal(0.0, math.log(self.error), len(workload)))
        lies = random.random(len(workload)) < self.liars
        factors = np.where(lies, _LIE * off, off).tolist()
        return {job.name: factor for job, factor in zip(workload, factors, strict=True)}
