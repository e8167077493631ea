"""The small vector that is summed with the last bucket: all ranks act on its sum at the same step.

So a change of members, a stop, and a check for divergence cost no message of their own. Numbers that are
compared or counted travel as digits below 16 with their squares, or below 256, so every sum over up to
65,000 ranks is a whole number below 2**24, which fp32 holds exactly.
"""

# torch's own types are partial
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["FIXED", "Said", "Sum", "digits_of", "read", "write"]

_SAMPLES_BASE = 256
_DIGEST_DIGITS = 12
_SHORT_DIGITS = 4
_EPOCH = 5
_DIGEST = _EPOCH + 2 * _SHORT_DIGITS
_PLACE = _DIGEST + 2 * _DIGEST_DIGITS
_WEIGHT = _PLACE + 2 * _SHORT_DIGITS
FIXED = _WEIGHT + 1
"""Elements before those for the parameters that were used."""

_EPOCHS = (1 << 16) - 1


@dataclass(frozen=True)
class Said:
    """The part of one rank.

    `samples` of this step here; `ready` the epoch with a group that is built here (0: none is wanted),
    `leaving`: it wants to go; `digest`: 48 bits over its parameters, or None when nothing is checked in
    this step; `place`: 16 bits over its position in the training. `weight`: by how much its samples
    count, where that is not their number.
    """

    samples: int
    ready: int = 0
    leaving: bool = False
    stop: bool = False
    digest: int | None = None
    place: int = 0
    weight: float | None = None

    @property
    def counts(self) -> float:
        """By how much the gradient counts."""
        return self.samples if self.weight is None else self.weight


@dataclass(frozen=True)
class Sum:
    """The sum over all ranks. `ready`: every rank has built the same next epoch, and it is the one asked
    for. `same`: None when no rank sent a digest, else whether all digests are equal. `used[i]`: some
    rank has a gradient for parameter i. `level`: all ranks are at the same position. `weight`: by how
    much the samples count together."""

    samples: int
    ready: bool
    leaving: int
    stop: bool
    same: bool | None
    used: tuple[bool, ...]
    level: bool = True
    weight: float = 0.0


def digits_of(number: int, count: int) -> list[int]:
    """A number as `count` digits below 16, the lowest first."""
    return [(number >> (4 * i)) & 0xF for i in range(count)]


def write(control: torch.Tensor, said: Said, used: Sequence[bool]) -> None:
    """Fill the vector: shape (FIXED + parameters,), fp32."""
    head: list[float] = [said.samples % _SAMPLES_BASE, said.samples // _SAMPLES_BASE]
    head += [int(said.leaving), int(said.stop), int(said.digest is not None)]
    head += _compared(_epoch_number(said.ready), _SHORT_DIGITS)
    head += _compared(said.digest or 0, _DIGEST_DIGITS)
    head += _compared(said.place, _SHORT_DIGITS)
    head.append(said.counts)
    control[:FIXED] = torch.tensor(head, dtype=torch.float32)
    if all(used):
        control[FIXED:] = 1.0
    else:
        control[FIXED:] = torch.tensor(used, dtype=torch.float32)


def read(control: torch.Tensor, ranks: int, ready: int) -> Sum:
    """Understand the sum over `ranks`. `ready` is what this rank itself said."""
    values: list[float] = control.tolist()
    wanted = _compared(_epoch_number(ready), _SHORT_DIGITS)
    all_ready = bool(ready) and values[_EPOCH:_DIGEST] == [ranks * each for each in wanted]
    same = _equal(values[_DIGEST:_PLACE], ranks) if values[4] else None
    return Sum(
        samples=round(values[0] + _SAMPLES_BASE * values[1]),
        ready=all_ready,
        leaving=round(values[2]),
        stop=values[3] > 0,
        same=same,
        used=tuple(value > 0 for value in values[FIXED:]),
        level=_equal(values[_PLACE:_WEIGHT], ranks),
        weight=values[_WEIGHT],
    )


def _epoch_number(ready: int) -> int:
    return ready % _EPOCHS + 1 if ready else 0


def _compared(number: int, count: int) -> list[int]:
    """Digits and their squares: sums of both show whether all ranks have the same number."""
    digits = digits_of(number, count)
    return digits + [digit * digit for digit in digits]


def _equal(values: Sequence[float], ranks: int) -> bool:
    """Of sums over the ranks, and as many of squares: whether all ranks had the same numbers."""
    half = len(values) // 2
    return all(ranks * b == a * a for a, b in zip(values[:half], values[half:], strict=True))
