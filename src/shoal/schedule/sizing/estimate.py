"""What is left of a job, as far as its user can be trusted, and weights where nobody said.

Who has done little so far is likely to be done soon.
Completion times of training jobs are heavy-tailed: the more a job has done, the longer it will go on.
Work done counts in classes, each twice as long as the one before, so that jobs of like age do not take
turns. Of those that have shown to be long no more can be told: among them who came first is first, or
else the one that has waited longest would wait for each that comes after it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["attained_weights", "expected"]

Floats = NDArray[np.float64]

_SHORT_SECONDS = 300.0
"""Below this nothing can be told from what a job has done."""
_CLASS = 2.0
_POWER = 0.3
_LONG_SECONDS = 16 * 3600.0
"""A job that has done so much is a long one; what it has done beyond that does not count."""


def expected(left: Floats, done: Floats) -> Floats:
    """Progress still to make; nan where nothing was declared. `left`: declared less done. A job that has
    done all that it declared, and goes on, has as much before it as behind it: what is over is over by
    any factor alike."""
    return np.where(left <= 0, np.maximum(done, 1.0), left)


def attained_weights(done: Floats, submitted: Floats) -> Floats:
    """From the work done, (m,), in seconds at the smallest size, and when each came; their mean is 1.
    The weights of long jobs fall in equal steps from the oldest to the youngest, around what they would
    all have."""
    classes = np.floor(np.log(_SHORT_SECONDS + np.minimum(done, _LONG_SECONDS)) / np.log(_CLASS))
    weight = _CLASS ** (-_POWER * classes)
    long = done >= _LONG_SECONDS
    came = np.sort(submitted[long])
    earlier = np.searchsorted(came, submitted[long], side="left")
    later = len(came) - np.searchsorted(came, submitted[long], side="right")
    weight[long] *= 1.0 + (later - earlier) / (len(came) + 1)
    return weight / weight.mean()
