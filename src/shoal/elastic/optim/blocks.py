"""Which block of parameters is exchanged when: all at once, or in a stream of smaller ones.

Douillard and others, "Streaming DiLoCo with overlapping communication", 2025, arXiv 2501.18512: blocks
are exchanged one after another, each every H steps, and the result may come some steps later. Pure
functions of numbers: every worker that counts the same steps does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Rhythm", "divide"]


@dataclass(frozen=True)
class Rhythm:
    """Each of `blocks` blocks is exchanged every `every` local steps; the result is used `delay` later.

    Raises:
        ValueError: there would be more than one exchange under way.
    """

    every: int
    blocks: int = 1
    delay: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= self.every:
            raise ValueError(f"{self.blocks} blocks do not fit into {self.every} steps")
        gap = self.every // self.blocks
        if not 0 <= self.delay < gap:
            raise ValueError(f"a delay of {self.delay} steps: exchanges follow each other after {gap}")

    def begins(self, step: int) -> int | None:
        """The block whose exchange begins once `step` local steps are done; the last block's at each
        multiple of `every`."""
        if step < 1:
            return None
        for block in range(self.blocks):
            if (step - (block + 1) * self.every // self.blocks) % self.every == 0:
                return block
        return None

    def ends(self, step: int) -> int | None:
        """The block whose result is used once `step` local steps are done."""
        return self.begins(step - self.delay)


def divide(sizes: Sequence[int], blocks: int) -> tuple[tuple[int, ...], ...]:
    """Indices of parameters of these sizes, in order, in as many runs of about equal size; none is
    empty.

    Raises:
        ValueError: there are fewer parameters than blocks.
    """
    if not 1 <= blocks <= len(sizes):
        raise ValueError(f"{len(sizes)} parameters cannot make {blocks} blocks")
    whole = sum(sizes)
    found: list[list[int]] = [[]]
    done = 0
    for index, size in enumerate(sizes):
        left = len(sizes) - index
        missing = blocks - len(found)
        full = (done + size / 2) * blocks >= whole * len(found)
        if found[-1] and missing and (full or left == missing):
            found.append([])
        found[-1].append(index)
        done += size
    return tuple(tuple(each) for each in found)
