"""With backup workers: when a step goes on, and with whom. Pure, on the rank that counts.

A step goes on as soon as the first `needed` ranks have their gradients; whoever comes later is not in it
(Chen and others 2016, arXiv 1604.00981; Pan and others 2017, arXiv 1702.05800).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Go", "Tally"]


@dataclass(frozen=True)
class Go:
    """Step number `step` of the group, from 0, is made of the gradients of those `ranks[r]` that are
    true. `place`: 16 bits over where in the training the first of them is."""

    step: int
    place: int
    ranks: tuple[bool, ...]

    def to_numbers(self) -> list[int]:
        """As many for each step of a group."""
        return [self.step, self.place, *map(int, self.ranks)]

    @classmethod
    def from_numbers(cls, numbers: list[int]) -> Go:
        """What `to_numbers` made."""
        step, place, *ranks = numbers
        return cls(step, place, tuple(map(bool, ranks)))


class Tally:
    """Who is ready. Every rank has part in every sum, if only with zeros: nobody can be ready for a step
    before the one before it is decided."""

    def __init__(self, size: int, needed: int) -> None:
        """
        Raises:
            ValueError: `needed` is not one of 1 to `size`.
        """
        if not 1 <= needed <= size:
            raise ValueError(f"{needed} of {size} ranks cannot be waited for")
        self._size = size
        self._needed = needed
        self._step = 0
        self._places: dict[int, int] = {}

    def hear(self, rank: int, step: int, place: int) -> Go | None:
        """A rank has its gradients of this step: the decision, if this makes one. Who comes after it is
        late, and is not answered: the decision has been told to all.

        Raises:
            ValueError: the step before has not been decided.
        """
        if step > self._step:
            raise ValueError(f"rank {rank} is ready for step {step}, and {self._step} is not decided")
        if step < self._step:
            return None
        self._places.setdefault(rank, place)
        if len(self._places) < self._needed:
            return None
        first = next(iter(self._places.values()))
        go = Go(step, first, tuple(each in self._places for each in range(self._size)))
        self._step += 1
        self._places = {}
        return go
