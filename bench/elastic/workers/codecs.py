"""What codecs cost beside torch's communication hooks: one process, one thread, nothing sent.

Both code and decode the same 64 MiB in a group of one, in turns of changing order, so that what is
measured is arithmetic. Prints one line of JSON: {codec: [[seconds of ours, seconds of torch's], ...]}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from shoal.elastic.codecs import Bucket, Codec, make

_SHAPES = ((1024, 1024),) * 16
_WARM_UP = 2


class _TorchBucket:
    """What torch's hooks ask of DDP's bucket, which cannot be made from Python."""

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat

    def buffer(self) -> torch.Tensor:
        """Of all gradients, 1-D."""
        return self._flat

    def index(self) -> int:
        """The only one."""
        return 0

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer."""
        return list(self._flat.view(len(_SHAPES), *_SHAPES[0]).unbind())

    def is_last(self) -> bool:
        """Of the step."""
        return True


def main() -> None:
    """`python -m bench.elastic.workers.codecs ROUNDS`."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder, "store")), 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        found = {name: _pairs(name, hook, int(sys.argv[1])) for name, hook in _peers().items()}
    print(json.dumps(found), flush=True)
    # the hooks' futures hold the group, which may abort the process when a thread of its own lets it go
    os._exit(0)


def _peers() -> dict[str, Callable[[Any], Any]]:
    """Ours by name, and the hook with the same maths; torch has no error feedback for 16 bits."""
    group = dist.group.WORLD
    found: dict[str, Callable[[Any], Any]] = {
        "bf16": lambda bucket: default_hooks.bf16_compress_hook(group, bucket),
        "fp16": lambda bucket: default_hooks.fp16_compress_hook(group, bucket),
    }
    for rank in (1, 4):
        state = powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=2)
        state.iter = 2
        found[f"powersgd:{rank}"] = lambda bucket, state=state: powerSGD_hook.powerSGD_hook(
            state, bucket
        )
    return found


def _pairs(name: str, hook: Callable[[Any], Any], rounds: int) -> list[list[float]]:
    codec = make(name)
    source = torch.randn(16 << 20, generator=torch.Generator().manual_seed(0))
    flats = [source.clone(), source.clone()]
    ways: list[Callable[[], None]] = [
        lambda: _ours(codec, flats[0]),
        lambda: hook(_TorchBucket(flats[1])).wait(),
    ]
    found: list[list[float]] = []
    for turn in range(_WARM_UP + rounds):
        pair = [0.0, 0.0]
        for way in (0, 1) if turn % 2 else (1, 0):
            flats[way].copy_(source)
            began = time.perf_counter()
            ways[way]()
            pair[way] = time.perf_counter() - began
        found.append(pair)
    return found[_WARM_UP:]


def _ours(codec: Codec, flat: torch.Tensor) -> None:
    for tensor in codec.exchange(Bucket(0, flat, _SHAPES)):
        dist.all_reduce(tensor)
    codec.commit()


if __name__ == "__main__":
    main()
