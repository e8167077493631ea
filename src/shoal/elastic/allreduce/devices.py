"""Which device a rank has, and whether the buckets of a group go over NCCL or gloo.

A rank claims its device in the message that carries its address, so all ranks of a group decide on the
same claims, with no exchange of their own. NCCL wants a device of its own for each rank; everything
else, and everything that is small and on the CPU, goes over gloo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist

from shoal.elastic.errors import ElasticError

__all__ = ["BACKENDS", "claim", "one_of", "over_nccl", "wanted"]

BACKENDS = ("auto", "gloo", "nccl")


def wanted(environment: Mapping[str, str]) -> str:
    """What `SHOAL_ELASTIC_BACKEND` says: one of `BACKENDS`; `auto` where it says nothing."""
    return environment.get("SHOAL_ELASTIC_BACKEND") or "auto"


def claim(device: torch.device, backend: str) -> str:
    """The name of the device that this rank would use with NCCL, different from that of every other
    rank; empty if it is to use gloo.

    Raises:
        ElasticError: `backend` is `nccl`, which cannot be, or none of `BACKENDS`.
    """
    if backend not in BACKENDS:
        raise ElasticError(f"the backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    if backend == "gloo":
        return ""
    if device.type == "cuda" and dist.is_nccl_available():
        known = cast("Any", torch.cuda).get_device_properties(device)  # its type is partial
        return str(known.uuid)
    if backend == "nccl":
        why = f"the parameters are on {device}" if device.type != "cuda" else "this torch is without it"
        raise ElasticError(f"NCCL is asked for, but {why}: move the model to a GPU, or ask for gloo")
    return ""


def over_nccl(claims: Sequence[str]) -> bool:
    """Whether a group of ranks that claim these devices uses NCCL: each has one, and no two the same."""
    return all(claims) and len(set(claims)) == len(claims)


def one_of(tensors: Sequence[torch.Tensor]) -> torch.device:
    """The device that all of these are on; the CPU if there are none.

    Raises:
        ElasticError: they are on several.
    """
    found = sorted({str(tensor.device) for tensor in tensors})
    if len(found) > 1:
        raise ElasticError(f"the parameters are on {' and '.join(found)}: each worker trains on one")
    return torch.device(found[0]) if found else torch.device("cpu")
