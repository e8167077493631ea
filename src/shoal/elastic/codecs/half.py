"""Two bytes an element: gradients rounded to bf16, or to fp16 with a scale.

bf16 has fp32's range and needs no care. fp16 loses what is below 6e-8 and becomes infinite above 65504,
so each bucket is multiplied by a power of two that keeps its largest element in the middle. The scale
follows from sums, which all ranks have alike. Where a sum overflows all the same, all ranks see it, and
send the bucket again as it is: an overflow costs time, and never a gradient. Gradients that are
themselves infinite or NaN come through as they are, as a loss scaler expects.

Sources: Micikevicius and others, "Mixed Precision Training", 2017, arXiv 1710.03740 (scaling); the
ranges are those of the formats.
"""

from __future__ import annotations

import math

import torch

from shoal.elastic.codecs.base import Bucket, Residuals, Rounds

__all__ = ["Half", "next_scale"]

_LEAST, _MOST, _AIM = 8, 13, 11
"""The largest element of a sum is kept between 2^8 and 2^13, and else brought to 2^11: 32 times below
fp16's largest, because sums over some ranks may be larger than the sum over all."""
_BOUND = 60


class Half:
    """See `Codec`. `dtype`: bf16 or fp16. `feedback`: rounding errors are owed to the next step (two
    more buffers a bucket). Buckets in 16 bits are sent as they are."""

    def __init__(self, dtype: torch.dtype, *, feedback: bool = False) -> None:
        """Raises ValueError for another type."""
        if dtype not in (torch.bfloat16, torch.float16):
            raise ValueError(f"{dtype} is not a type of 16 bits")
        self._dtype = dtype
        self._residuals = Residuals() if feedback else None
        self._coded: dict[int, torch.Tensor] = {}
        self._scales: dict[int, float] = {}
        self._scratch: torch.Tensor | None = None

    @property
    def name(self) -> str:
        """bf16 or fp16, and +ef with feedback."""
        name = "bf16" if self._dtype == torch.bfloat16 else "fp16"
        return name if self._residuals is None else f"{name}+ef"

    @torch.no_grad()
    def exchange(self, bucket: Bucket) -> Rounds:
        """One round of half the bytes; with fp16, a second of all of them after an overflow."""
        flat = bucket.flat
        if flat.dtype.itemsize <= 2:
            yield flat
            return
        if self._residuals is not None:
            self._residuals.pay(bucket, flat)
        scale = self._scales.get(bucket.number, 1.0)
        coded = self._encode(bucket, scale)
        residual: torch.Tensor | None = None
        if self._residuals is not None:
            residual = self._residuals.owe(bucket, flat)
            _decode(coded, scale, residual)
            torch.sub(flat, residual, out=residual)
        yield coded
        scaled = self._dtype == torch.float16
        peak = _peak(coded) if scaled or residual is not None else 0.0
        overflowed = scaled and not math.isfinite(peak)
        if overflowed:
            yield flat
            peak = _peak(flat) * scale
        if scaled:
            self._scales[bucket.number] = next_scale(scale, peak, overflowed=overflowed)
        if self._residuals is not None and not math.isfinite(peak):
            self._residuals.keep(bucket.number)
        if overflowed:
            if residual is not None:
                residual.zero_()
            return
        _decode(coded, scale, flat)

    def commit(self) -> None:
        """Roundings are owed."""
        if self._residuals is not None:
            self._residuals.commit()

    def rollback(self) -> None:
        """Roundings of this step are void."""
        if self._residuals is not None:
            self._residuals.rollback()

    def forget(self, number: int) -> None:
        """Nothing is owed of this bucket."""
        if self._residuals is not None:
            self._residuals.forget(number)

    def view_changed(self, epoch: int) -> None:
        """Scales begin at 1."""
        self._scales = {}

    def owed(self) -> dict[int, torch.Tensor]:
        """Roundings, with feedback."""
        return {} if self._residuals is None else self._residuals.owed()

    def _encode(self, bucket: Bucket, scale: float) -> torch.Tensor:
        coded = self._coded.get(bucket.number)
        if coded is None or coded.shape != bucket.flat.shape:
            coded = torch.empty_like(bucket.flat, dtype=self._dtype)
            self._coded[bucket.number] = coded
        if scale == 1.0:
            return coded.copy_(bucket.flat)
        # apart from the bucket, which must survive an overflow; one type at a time is much faster
        count = bucket.flat.numel()
        if self._scratch is None or self._scratch.numel() < count:
            self._scratch = torch.empty_like(bucket.flat)
        scratch = self._scratch[:count]
        torch.mul(bucket.flat, scale, out=scratch)
        return coded.copy_(scratch)


def next_scale(scale: float, peak: float, *, overflowed: bool) -> float:
    """The scale of the next step, a power of two. `peak`: the largest magnitude of the sum, times the
    scale; where it is not finite the gradients were not, and nothing is learned."""
    if not math.isfinite(peak) or (peak == 0.0 and not overflowed):
        return scale
    exponent = math.frexp(peak)[1] - 1 if peak else _AIM
    if not overflowed and _LEAST <= exponent < _MOST:
        return scale
    # the sum of an overflow may be small, where large numbers cancelled: go down in any case
    shift = min(_AIM - exponent, -4) if overflowed else _AIM - exponent
    power = math.frexp(scale)[1] - 1 + shift
    return 2.0 ** max(-_BOUND, min(_BOUND, power))


def _decode(coded: torch.Tensor, scale: float, out: torch.Tensor) -> None:
    out.copy_(coded)
    if scale != 1.0:
        out.mul_(1 / scale)


def _peak(tensor: torch.Tensor) -> float:
    """The largest magnitude, NaN if there is one: `aminmax` is thirty times as fast as a norm."""
    if not tensor.numel():
        return 0.0
    least, most = torch.aminmax(tensor)
    return max(-float(least), float(most)) if math.isfinite(float(least)) else math.nan
