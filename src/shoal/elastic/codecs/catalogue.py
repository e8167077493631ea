"""Codecs by name."""

from __future__ import annotations

import torch

from shoal.elastic.codecs.base import Codec
from shoal.elastic.codecs.half import Half
from shoal.elastic.codecs.plain import Plain
from shoal.elastic.codecs.powersgd import PowerSGD

__all__ = ["NAMES", "make"]

NAMES = ("none", "bf16", "bf16+ef", "fp16", "fp16+ef", "powersgd:RANK")


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
    raise ValueError(f"no codec {name!r}: there are {', '.join(NAMES)}")
