"""The small vector that rides with the last bucket: everybody acts on its sum at the same step.

So a change of members, a stop, and a check for divergence cost no message of their own. Elements are
small whole numbers: sums over a few hundred ranks are exact in fp32.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["FIXED", "Said", "Sum", "pieces_of", "read", "write"]

_PIECES = 6
_HASH = 6
_PLACE = _HASH + 2 * _PIECES
_PLACE_PIECES = 2
_NOISE = _PLACE + 2 * _PLACE_PIECES
_WEIGHT = _NOISE + 2
FIXED = _WEIGHT + 1
"""Elements before those that tell which parameters were used."""

_EPOCHS = 255


@dataclass(frozen=True)
class Said:
    """What one rank says.

    `samples` of this step here; `ready` the epoch whose group is built here (0: none is wanted),
    `leaving`: it wants to go; `digest`: 48 bits over its parameters, or None when nothing is checked in
    this step; `place`: 16 bits over where in the training it is. `noise` and `noisy`: its part of what
    AdaScale is estimated from (`adascale.contribution`), and whether it has one. `weight`: by how much
    its samples count, where that is not their number.
    """

    samples: int
    ready: int = 0
    leaving: bool = False
    stop: bool = False
    digest: int | None = None
    place: int = 0
    noise: float = 0.0
    noisy: bool = False
    weight: float | None = None

    @property
    def counts(self) -> float:
        """By how much the gradient counts."""
        return self.samples if self.weight is None else self.weight


@dataclass(frozen=True)
class Sum:
    """What all said. `ready`: everybody has built the same next epoch, and it is the one asked for.
    `same`: None when nobody checked, else whether all digests that were said are equal. `used[i]`: some
    rank has a gradient for parameter i. `level`: all are at the same place. `noise` of `parts` ranks.
    `weight`: by how much the samples count together."""

    samples: int
    ready: bool
    leaving: int
    stop: bool
    same: bool | None
    used: tuple[bool, ...]
    level: bool = True
    noise: float = 0.0
    parts: int = 0
    weight: float = 0.0


def pieces_of(digest: int, count: int = _PIECES) -> list[int]:
    """A digest as six numbers below 256."""
    return [(digest >> (8 * i)) & 0xFF for i in range(count)]


def write(control: torch.Tensor, said: Said, used: Sequence[bool]) -> None:
    """Fill the vector: shape (FIXED + parameters,), fp32."""
    epoch = said.ready % _EPOCHS + 1 if said.ready else 0
    head = [said.samples, epoch, epoch * epoch, int(said.leaving), int(said.stop)]
    head.append(int(said.digest is not None))
    pieces = pieces_of(said.digest) if said.digest is not None else [0] * _PIECES
    head += pieces + [piece * piece for piece in pieces]
    place = pieces_of(said.place, _PLACE_PIECES)
    head += place + [piece * piece for piece in place]
    head += [said.noise, int(said.noisy), said.counts]
    control[:FIXED] = torch.tensor(head, dtype=torch.float32)
    if all(used):
        control[FIXED:] = 1.0
    else:
        control[FIXED:] = torch.tensor(used, dtype=torch.float32)


def read(control: torch.Tensor, ranks: int, ready: int) -> Sum:
    """Understand the sum over `ranks`. `ready` is what this rank itself said."""
    values: list[float] = control.tolist()
    epoch = ready % _EPOCHS + 1 if ready else 0
    all_ready = bool(epoch) and values[1] == ranks * epoch and values[2] == ranks * epoch * epoch
    same: bool | None = None
    if values[5]:  # those for whom others stand in say nothing
        same = _equal(values[_HASH:_PLACE], round(values[5]))
    level = _equal(values[_PLACE:_NOISE], ranks)
    noise, parts = values[_NOISE], round(values[_NOISE + 1])
    used = tuple(value > 0 for value in values[FIXED:])
    leaving, stop = round(values[3]), values[4] > 0
    weight = values[_WEIGHT]
    return Sum(round(values[0]), all_ready, leaving, stop, same, used, level, noise, parts, weight)


def _equal(values: Sequence[float], ranks: int) -> bool:
    """Of sums over the ranks, and as many of squares: whether all ranks had the same numbers."""
    half = len(values) // 2
    return all(ranks * b == a * a for a, b in zip(values[:half], values[half:], strict=True))
