"""Who waits long comes first: priority that grows with age, and a threshold beyond which a job starves.

Inside a class a job's score is

    priority + weight * min(age / full_seconds, 1),

the age factor of Slurm's multifactor priority. Beyond `threshold_seconds` it starves, and comes
before all of its class that are not, the one that has waited longest first. Age never lifts a job over
a higher class: that is for classes to say.

So a wait is bounded. Before a starving job stand only those of its class that starved before it, and
those who come later never will. What it asks for has a date, or is kept aside as it comes free; nobody
behind it takes of that. It starts at the latest when the work that ran when it began to starve, and the
finitely many before it, have ended; where nobody knows when that is, `turns` sees to it that they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ageing", "order", "scores", "starved"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ageing:
    """How much age counts, and when a job starves."""

    weight: float = 1.0
    """What a job gains in priority once it has waited `full_seconds`."""
    full_seconds: float = 86_400.0
    threshold_seconds: float = 1800.0

    def __post_init__(self) -> None:
        """Raises ValueError for a number that is none, a negative one, or no time to grow in."""
        if not (0 <= self.weight < math.inf and 0 < self.full_seconds < math.inf):
            raise ValueError("age counts for a finite weight of 0 or more, in full after more than 0 s")
        if not self.threshold_seconds >= 0:
            raise ValueError("a job starves after 0 or more seconds")


def scores(priority: Floats, since: Floats, ageing: Ageing, now: float) -> Floats:
    """(m,): priority with age, of jobs that have waited `since`, both (m,)."""
    age = np.maximum(now - since, 0.0)
    return priority + ageing.weight * np.minimum(age / ageing.full_seconds, 1.0)


def starved(since: Floats, ageing: Ageing, now: float) -> NDArray[np.bool_]:
    """(m,): has waited for the threshold or longer."""
    return now - since >= ageing.threshold_seconds


def order(rank: Ints, priority: Floats, since: Floats, key: Ints, ageing: Ageing, now: float) -> Ints:
    """The order in which jobs are served, (m,) indices: class `rank` falling; who starves, by how long
    they have waited; then the score falling, who waits longest, and the lowest key. All (m,)."""
    starving = starved(since, ageing, now)
    score = np.where(starving, 0.0, scores(priority, since, ageing, now))
    return np.lexsort((key, since, -score, ~starving, -rank))
