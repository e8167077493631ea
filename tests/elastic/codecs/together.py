"""Several ranks in one process: each has its codec, sums are exact or in a rank's own type."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from shoal.elastic.codecs.base import Bucket, Codec


def exchange(
    codecs: Sequence[Codec], flats: Sequence[torch.Tensor], shapes: list[tuple[int, ...]]
) -> int:
    """One exchange of bucket 0, in place in `flats`; the number of rounds. All must want as many."""
    ranks = [
        codec.exchange(Bucket(0, flat, tuple(shapes))) for codec, flat in zip(codecs, flats, strict=True)
    ]
    rounds = 0
    while True:
        sent = [next(rank, None) for rank in ranks]
        tensors = [each for each in sent if each is not None]
        if not tensors:
            return rounds
        assert len(tensors) == len(ranks), "ranks differ in the number of rounds"
        total = tensors[0].clone()
        for each in tensors[1:]:
            total += each
        for each in tensors:
            each.copy_(total)
        rounds += 1


def gradients(
    ranks: int, shapes: Sequence[tuple[int, ...]], seed: int, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Flat gradients for each rank."""
    generator = torch.Generator().manual_seed(seed)
    count = sum(torch.Size(shape).numel() for shape in shapes)
    return [torch.randn(count, generator=generator).to(dtype) for _ in range(ranks)]


def same(flats: Sequence[torch.Tensor]) -> bool:
    """Bit for bit."""
    return all(torch.equal(flats[0], flat) for flat in flats)
