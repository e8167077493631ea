"""How long a checkpoint of 256 MiB holds up the training thread, beside torch.save and DCP (G17).

    python -m bench.elastic.checkpoint [--rounds N] [--folder FOLDER]

All ways take turns in one process of its own, each after the one before has all its bytes on disk. The
stall is the time until the state may be changed again: for DCP's asynchronous staging that is until its
staging is over, and the time after which its call returned stands beside it. Every way's checkpoint is
read back and compared once. Torch is imported in that process alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.elastic.report import Report, text
from bench.row import Row, p50, p95

__all__ = ["report"]

_MIB = 256
_TENSORS = 64
_GOAL_MS = 30.0
_DEADLINE_SECONDS = 900.0


def report(rounds: int, folder: Path) -> Report:
    """G17: Shoal's stall, with the others beside it, and what writing costs the steps meanwhile."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.elastic.checkpoint", "--measure"]
    command += ["--rounds", str(rounds), "--folder", str(folder)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_DEADLINE_SECONDS,
    )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    others = [name for name in found if not name.startswith("shoal")]
    beside = "; ".join(
        f"{name} {p50(found[name]):.0f} ms (p95 {p95(found[name]):.0f})" for name in others
    )
    stalls = found["shoal"]
    rows = [
        Row(f"checkpoint of {_MIB} MiB: stall", _GOAL_MS, p50(stalls), "ms", _spread(stalls), beside),
        Row(
            "the same while the one before is written",
            _GOAL_MS,
            p50(found["shoal, disk busy"]),
            "ms",
            _spread(found["shoal, disk busy"]),
        ),
    ]
    quiet, busy = found["shoal: steps, quiet"], found["shoal: steps, writing"]
    memory, disk = found["shoal: load, memory"][0], found["shoal: load, disk"][0]
    remark = (
        f"Training steps of one thread beside it: {p50(quiet):.1f} ms (p95 {p95(quiet):.1f}) quiet, "
        f"{p50(busy):.1f} ms (p95 {p95(busy):.1f}, longest {max(busy):.1f}) while a checkpoint is "
        f"hashed and written. From commit to disk {p50(found['shoal: to disk']):.0f} ms; loaded from "
        f"memory in {memory:.0f} ms, from disk in {disk:.0f} ms. torch.save returns before its bytes "
        "are on disk; the others force them there."
    )
    return Report(rows, remarks=[remark])


def _spread(values: list[float]) -> str:
    return f"p95 {p95(values):.1f}, longest {max(values):.1f}, n={len(values)}"


def _measure(rounds: int, folder: Path) -> dict[str, list[float]]:
    import torch
    import torch.distributed as dist

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
        from shoal.elastic.checkpoint.saver import Saver

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
        import torch

        from shoal.elastic.checkpoint.loader import load

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
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

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
    shared = timed("dcp.async_save, shared memory", dcp_shared)
    return {
        "torch.save": timed("torch.save", torch_save),
        "dcp.save": timed("dcp.save", dcp_save),
        "dcp.async_save": timed("dcp.async_save", dcp_async),
        "dcp.async_save, shared memory": shared,
        "(its call alone)": lambda: returned[-1],
    }


def _read(place: Path, like: dict[str, Any]) -> dict[str, Any]:
    import torch
    import torch.distributed.checkpoint as dcp

    if (place / "state.pt").exists():
        return torch.load(place / "state.pt", weights_only=True)
    found = {name: torch.empty_like(tensor) for name, tensor in like.items()}
    dcp.load(found, checkpoint_id=place)
    return found


def _compare(expected: dict[str, Any], found: dict[str, Any]) -> None:
    import torch

    if list(expected) != list(found) or not all(map(torch.equal, expected.values(), found.values())):
        raise RuntimeError("what was read is not what was saved")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.elastic.checkpoint")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.measure:
        print(json.dumps(_measure(told.rounds, told.folder)))
        return
    print(
        text(
            report(told.rounds, told.folder),
            " ".join(["python -m bench.elastic.checkpoint", *sys.argv[1:]]),
            f"torch {_torch()}",
        )
    )


def _torch() -> str:
    from importlib.metadata import version

    return version("torch")


if __name__ == "__main__":
    main()
