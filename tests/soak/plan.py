"""Which blows fall, and when: drawn from a seed alone, so that it can be drawn again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["KINDS", "Blow", "draw"]

KINDS = {
    "kill": 4,
    "stop": 3,
    "pause": 1,
    "notice": 2,
    "sidecar": 2,
    "coordinator": 2,
    "both": 1,
    "resize": 3,
}
"""How often each comes, relative to the others.

kill: SIGKILL to a worker. stop: SIGSTOP for longer than it takes to be put out; pause: for less. notice:
SIGTERM. sidecar: SIGKILL to a worker's sidecar. coordinator: SIGKILL, and back after a while; both: and
a worker is killed meanwhile. resize: the script asks for another number of workers."""


@dataclass(frozen=True)
class Blow:
    """`after` the one before (seconds); `chance`, in [0, 1), says which of those that may be hit; for
    those that last, `seconds`; `size` that a resize asks for, until it asks for all again."""

    after: float
    kind: str
    chance: float
    seconds: float
    size: int


def draw(seed: int, every: float, workers: int) -> Iterator[Blow]:
    """Blows without end, one `every` so many seconds in the mean: the time between two is uniform in
    [0, 2 `every`)."""
    chance = random.Random(seed)
    kinds, weights = list(KINDS), list(KINDS.values())
    lasts = {
        "stop": (0.8, 4.0), "pause": (0.05, 0.3), "coordinator": (0.0, 3.0), "both": (0.3, 3.0),
        "resize": (3.0, 10.0),
    }  # fmt: skip
    while True:
        kind = chance.choices(kinds, weights)[0]
        yield Blow(
            after=chance.uniform(0.0, 2.0 * every),
            kind=kind,
            chance=chance.random(),
            seconds=chance.uniform(*lasts.get(kind, (0.0, 0.0))),
            size=chance.randint(1, workers),
        )
