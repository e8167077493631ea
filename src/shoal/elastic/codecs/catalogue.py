"""Codecs by name."""

from __future__ import annotations

import torch

from shoal.elastic.codecs.autotune import ONE_BUCKET
from shoal.elastic.codecs.base import Codec
from shoal.elastic.codecs.half import Half
from shoal.elastic.codecs.plain import Plain
from shoal.elastic.codecs.powersgd import PowerSGD
from shoal.elastic.codecs.tuner import Plan
from shoal.elastic.errors import ElasticError

__all__ = ["NAMES", "make", "plan"]

NAMES = ("none", "bf16", "bf16+ef", "fp16", "fp16+ef", "powersgd:RANK")

_TRIED = ("none", "bf16", "fp16", "powersgd:4")
_MIB = 1 << 20
_SIZES = (25 * _MIB, 1 * _MIB, 4 * _MIB, ONE_BUCKET)


def plan(codec: str = "none", bucket: int | str = 25 * _MIB) -> Plan:
    """What `job.wrap` was told: `codec` a name or "auto", `bucket` a number of bytes or "auto".

    Raises:
        ElasticError: there is no such codec, or `bucket` is neither.
    """
    if bucket != "auto" and (isinstance(bucket, str) or bucket < 1):
        raise ElasticError(f'a bucket size is a number of bytes, or "auto", not {bucket!r}')
    if codec != "auto":
        try:
            make(codec)
        except ValueError as error:
            raise ElasticError(str(error)) from None
    sizes = _SIZES if isinstance(bucket, str) else (bucket,)
    return Plan(_TRIED if codec == "auto" else (codec,), sizes, counted=1)


def make(name: str) -> Codec:
    """A new codec, without state.

    Raises:
        ValueError: there is none of this name; the message lists those that there are.
    """
    if name == "none":
        return Plain()
    if name in ("bf16", "bf16+ef", "fp16", "fp16+ef"):
        dtype = torch.bfloat16 if name.startswith("bf16") else torch.float16
        return Half(dtype, feedback=name.endswith("+ef"))
    kind, _, rank = name.partition(":")
    if kind == "powersgd" and rank.isdecimal() and int(rank) > 0:
        return PowerSGD(int(rank))
    raise ValueError(f"no codec {name!r}: there are {', '.join(NAMES)}, auto")
