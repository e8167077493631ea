"""Codecs by name, and the plan of a job: its codec and the size of its buckets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal.elastic.codecs.base import Bucket, Codec, Rounds
from shoal.elastic.codecs.half import Half
from shoal.elastic.codecs.powersgd import PowerSGD
from shoal.elastic.errors import ElasticError

__all__ = ["NAMES", "Plain", "Plan", "make", "plan"]


class Plain:
    """See `Codec`. It has no state and copies nothing."""

    name = "none"

    def exchange(self, bucket: Bucket) -> Rounds:
        """One round: the bucket."""
        yield bucket.flat

    def commit(self) -> None:
        """Nothing is owed."""

    def rollback(self) -> None:
        """Nothing is owed."""

    def forget(self, number: int) -> None:
        """Nothing is owed."""

    def view_changed(self, epoch: int) -> None:
        """Nothing is shared."""

    def owed(self) -> dict[int, torch.Tensor]:
        """Nothing."""
        return {}


NAMES = ("none", "bf16", "bf16+ef", "fp16", "fp16+ef", "powersgd:RANK")

_MIB = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How gradients are exchanged: by which codec, in buckets of how many bytes."""

    codec: str = "none"
    bucket_bytes: int = 25 * _MIB

    def __str__(self) -> str:
        return f"{self.codec} in buckets of {self.bucket_bytes / _MIB:g} MiB"


def plan(codec: str = "none", bucket: object = 25 * _MIB) -> Plan:
    """The options `codec` and `bucket` of `job.wrap`, checked.

    Raises:
        ElasticError: there is no such codec, or `bucket` is no number of bytes.
    """
    if codec == "auto" or bucket == "auto":
        raise ElasticError(
            "codec='auto' and bucket='auto' were removed: name a codec "
            f"({', '.join(NAMES)}) and a bucket size in bytes"
        )
    if not isinstance(bucket, int) or bucket < 1:
        raise ElasticError(f"bucket must be a number of bytes, at least 1, not {bucket!r}")
    try:
        make(codec)
    except ValueError as error:
        raise ElasticError(str(error)) from None
    return Plan(codec, bucket)


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
