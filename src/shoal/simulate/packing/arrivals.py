"""Which pods come, in which order: a list is shuffled, then grown or cut until it asks for so many."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from shoal.simulate.errors import BadInput
from shoal.simulate.packing.pods import Pods

__all__ = ["arrivals"]


def arrivals(pods: Pods, gpu_milli: float, seed: int | str) -> NDArray[np.int64]:
    """The shapes (a,) that arrive, in order, until they ask for `gpu_milli`.

    All pods are shuffled. If they ask for less, random ones of the list come after them, any pod any
    number of times; if for more, random ones are taken out; the last pod added or taken out crosses the
    mark. Raises `BadInput` where no pod asks for a GPU."""
    asked = pods.shapes.gpu_milli[pods.shape].tolist()
    if not any(asked):
        raise BadInput("none of the pods asks for a GPU, so they never fill one")
    chance = random.Random(seed)
    order = list(range(len(pods)))
    chance.shuffle(order)
    total = sum(asked)
    if total > gpu_milli:
        while total > gpu_milli:
            total -= asked[order.pop(chance.randrange(len(order)))]
    else:
        while total < gpu_milli:
            pod = chance.randrange(len(pods))
            order.append(pod)
            total += asked[pod]
    return pods.shape[order]
