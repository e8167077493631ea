"""Checkpoints of 256 MiB by Shoal, torch.save and DCP in turns: `... ROUNDS FOLDER`, one line of JSON.

The stall is the time until the state may be changed again: for DCP's asynchronous staging that is until
its staging is over, and the time after which its call returned stands beside it. Every way's checkpoint
is read back and compared once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

from shoal.elastic.checkpoint.loader import load
from shoal.elastic.checkpoint.saver import Saver

_MIB, _TENSORS = 256, 64


def main() -> None:
    """See the module."""
    print(json.dumps(_measure(int(sys.argv[1]), Path(sys.argv[2]))))


def _measure(rounds: int, folder: Path) -> dict[str, list[float]]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # async_save wants one
    elements = (_MIB << 20) // 4 // _TENSORS
    state = {"model": {f"layer{at}.weight": torch.randn(elements) for at in range(_TENSORS)}}
    ways = {**_peers(state, folder)}
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        shoal = _Shoal(state, Path(scratch, "shoal"))
        for number in range(rounds + 1):
            times = {"shoal": shoal.save(), **{name: way() for name, way in ways.items()}}
            for name, milliseconds in times.items() if number else ():  # the first makes buffers
                found.setdefault(name, []).append(milliseconds)
        found |= shoal.more(rounds)
    dist.destroy_process_group()
    return found


class _Shoal:
    def __init__(self, state: dict[str, Any], folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._step = 0
        self._saver = Saver(folder)
        self._saver.prepare(state)

    def save(self, settle: bool = True) -> float:
        """One checkpoint; its stall in milliseconds."""
        self._step += 1
        began = time.perf_counter()
        self._saver.stage(self._state, self._step)
        self._saver.commit(self._step)
        stall = time.perf_counter() - began
        if settle:
            self._settled()
        return stall * 1000

    def more(self, rounds: int) -> dict[str, list[float]]:
        """Stalls while the disk is busy, steps beside the writing, times to disk and back."""
        found: dict[str, list[float]] = {"shoal, disk busy": []}
        for _ in range(rounds):
            self.save(settle=False)
            time.sleep(0.05)  # the writing has begun
            found["shoal, disk busy"].append(self.save(settle=False))
            self._settled()
        weight = torch.randn(700, 700)  # a step of a few milliseconds
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        found["shoal: steps, quiet"] = [_step(weight) for _ in range(320)][20:]
        found["shoal: steps, writing"], found["shoal: to disk"] = [], []
        for _ in range(3):
            self.save(settle=False)
            began = time.perf_counter()
            while not self._saver.wait(0.0):
                found["shoal: steps, writing"].append(_step(weight))
            found["shoal: to disk"].append((time.perf_counter() - began) * 1000)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        copy = load(self._folder)
        found["shoal: load, memory"] = [(time.perf_counter() - began) * 1000]
        self._saver.close()
        began = time.perf_counter()
        kept = load(self._folder)
        found["shoal: load, disk"] = [(time.perf_counter() - began) * 1000]
        for loaded, tier in ((copy, "memory"), (kept, "disk")):
            if loaded is None or loaded.tier != tier or loaded.step != self._step:
                raise RuntimeError(f"the newest checkpoint did not come from {tier}")
            _compare(self._state["model"], loaded.state["model"])
        return found

    def _settled(self) -> None:
        if not self._saver.wait(120.0) or (error := self._saver.take_error()) is not None:
            raise RuntimeError(f"a checkpoint was not written: {error}")


def _step(weight: Any) -> float:
    began = time.perf_counter()
    (weight @ weight).sum().item()
    return (time.perf_counter() - began) * 1000


def _peers(state: dict[str, Any], folder: Path) -> dict[str, Callable[[], float]]:
    """One function per way: it saves into `folder`, checks what it saved the first time, and gives the
    stall in milliseconds; on return all is on disk."""
    flat: dict[str, Any] = state["model"]
    stager = DefaultStager(StagingOptions(False, True, True, False))
    checked = set[str]()

    def timed(
        name: str, save: Callable[[Path], tuple[float, Callable[[], object]]]
    ) -> Callable[[], float]:
        def run() -> float:
            place = Path(tempfile.mkdtemp(dir=folder))
            try:
                stall, finish = save(place)
                finish()
                os.sync()
                if name not in checked:
                    checked.add(name)
                    _compare(flat, _read(place, flat))
                return stall * 1000
            finally:
                shutil.rmtree(place)

        return run

    def torch_save(place: Path) -> tuple[float, Callable[[], object]]:
        began = time.perf_counter()
        torch.save(flat, place / "state.pt")
        return time.perf_counter() - began, lambda: None

    def dcp_save(place: Path) -> tuple[float, Callable[[], object]]:
        began = time.perf_counter()
        dcp.save(flat, checkpoint_id=place)
        return time.perf_counter() - began, lambda: None

    def dcp_async(place: Path) -> tuple[float, Callable[[], object]]:
        began = time.perf_counter()
        future: Any = dcp.async_save(flat, checkpoint_id=place)
        return time.perf_counter() - began, future.result

    def dcp_shared(place: Path) -> tuple[float, Callable[[], object]]:
        began = time.perf_counter()
        response: Any = dcp.async_save(flat, checkpoint_id=place, async_stager=stager)
        returned.append((time.perf_counter() - began) * 1000)
        response.staging_completion.result()
        return time.perf_counter() - began, response.upload_completion.result

    returned: list[float] = []
    copies = {name: torch.ones_like(tensor) for name, tensor in flat.items()}
    shared = timed("dcp.async_save, shared memory", dcp_shared)
    return {
        "torch.save": timed("torch.save", torch_save),
        "dcp.save": timed("dcp.save", dcp_save),
        "dcp.async_save": timed("dcp.async_save", dcp_async),
        "dcp.async_save, shared memory": shared,
        "(its call alone)": lambda: returned[-1],
        "floor, one copy": lambda: _copied(flat, copies),
    }


def _copied(state: dict[str, Any], copies: dict[str, Any]) -> float:
    """Milliseconds of a copy into memory that has been used before: no stall can be shorter."""
    began = time.perf_counter()
    for name, tensor in state.items():
        copies[name].copy_(tensor)
    return (time.perf_counter() - began) * 1000


def _read(place: Path, like: dict[str, Any]) -> dict[str, Any]:
    if (place / "state.pt").exists():
        return torch.load(place / "state.pt", weights_only=True)
    found = {name: torch.empty_like(tensor) for name, tensor in like.items()}
    dcp.load(found, checkpoint_id=place)
    return found


def _compare(expected: dict[str, Any], found: dict[str, Any]) -> None:
    if list(expected) != list(found) or not all(map(torch.equal, expected.values(), found.values())):
        raise RuntimeError("what was read is not what was saved")


if __name__ == "__main__":
    main()
