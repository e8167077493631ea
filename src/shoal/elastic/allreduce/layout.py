"""Which gradient lies where: flat buckets in the order in which backward makes gradients.

Parameters are taken last first, each bucket holds one type, and the first bucket is small so that
sending begins early. All is on the parameters' device. A gradient is a view into its bucket: nothing is
copied but by the sum itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from shoal.elastic.allreduce import devices

__all__ = ["BUCKET_BYTES", "Bucket", "Layout", "plan"]

BUCKET_BYTES = 25 << 20
_FIRST_BYTES = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """`flat` holds the gradients of the parameters `indices`, one after another, as `views`.

    `flat` of the last bucket has `extra` more elements at its end, for the control vector.
    """

    flat: torch.Tensor
    indices: tuple[int, ...]
    views: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Layout:
    """`place[i]`: bucket and position in it of parameter i. `control`: fp32, `extra` elements, a view of
    the end of the last bucket, or a tensor of its own where that bucket holds another type."""

    buckets: tuple[Bucket, ...]
    place: tuple[tuple[int, int], ...]
    control: torch.Tensor
    control_rides: bool

    @property
    def device(self) -> torch.device:
        """That everything lies on."""
        return self.control.device


def plan(parameters: Sequence[torch.Tensor], extra: int, bucket_bytes: int = BUCKET_BYTES) -> Layout:
    """Lay out gradients of these parameters, and a control vector of `extra` elements.

    Raises:
        ElasticError: the parameters are on several devices.
    """
    device = devices.one_of(parameters)
    groups = _split(parameters, bucket_bytes)
    buckets: list[Bucket] = []
    place: dict[int, tuple[int, int]] = {}
    control: torch.Tensor | None = None
    for number, indices in enumerate(groups):
        like = parameters[indices[0]]
        elements = sum(parameters[i].numel() for i in indices)
        rides = number == len(groups) - 1 and like.dtype == torch.float32
        flat = torch.zeros(elements + (extra if rides else 0), dtype=like.dtype, device=device)
        if rides:
            control = flat[elements:]
        views: list[torch.Tensor] = []
        offset = 0
        for position, index in enumerate(indices):
            count = parameters[index].numel()
            views.append(flat[offset : offset + count].view_as(parameters[index]))
            place[index] = (number, position)
            offset += count
        buckets.append(Bucket(flat, tuple(indices), tuple(views)))
    return Layout(
        tuple(buckets),
        tuple(place[i] for i in range(len(parameters))),
        control if control is not None else torch.zeros(extra, device=device),
        control is not None,
    )


def _split(parameters: Sequence[torch.Tensor], bucket_bytes: int) -> list[list[int]]:
    groups: list[list[int]] = []
    sizes: list[int] = []
    for index in reversed(range(len(parameters))):
        parameter = parameters[index]
        count = parameter.numel() * parameter.element_size()
        limit = min(_FIRST_BYTES, bucket_bytes) if len(groups) == 1 else bucket_bytes
        last = parameters[groups[-1][0]] if groups else None
        if last is None or last.dtype != parameter.dtype or sizes[-1] + count > limit:
            groups.append([])
            sizes.append(0)
        groups[-1].append(index)
        sizes[-1] += count
    return groups
