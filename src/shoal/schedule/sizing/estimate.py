"""What is left of a job, as far as its user can be trusted, and weights where nobody said.

Who has done little so far is likely to be done soon.
Completion times of training jobs are heavy-tailed: the more a job has done, the longer it will go on.
Work done counts in classes, each twice as long as the one before, so that jobs of like age do not take
turns.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shoal.schedule.allot import Outlook

__all__ = ["attained_weights", "expected"]

Floats = NDArray[np.float64]

_SHORT_SECONDS = 300.0
"""Below this nothing can be told from what a job has done."""
_CLASS = 2.0
_POWER = 0.3


def expected(outlook: Outlook) -> float:
    """Progress still to make; nan where nothing was declared. A job that has done all that it declared,
    and goes on, has as much before it as behind it: what is over is over by any factor alike."""
    if outlook.remaining is None:
        return math.nan
    return outlook.remaining if outlook.remaining > 0 else max(outlook.done, 1.0)


def attained_weights(done: Floats) -> Floats:
    """From the work done, (m,), in seconds at the smallest size; their mean is 1."""
    classes = np.floor(np.log(_SHORT_SECONDS + done) / np.log(_CLASS))
    weight = _CLASS ** (-_POWER * classes)
    return weight / weight.mean()
