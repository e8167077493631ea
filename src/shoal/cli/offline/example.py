"""The workload of `shoal simulate --example`: 24 jobs of two made-up applications, written as files.

`vision` computes for long and exchanges little, so it gains by every GPU; `text` exchanges much, so that
beyond one node it hardly does. Step times, gradients and arrivals follow from formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

NODES, GPUS_PER_NODE = 4, 4
_PLACEMENTS = ["".join(each) for count in range(1, 5) for each in product("1234", repeat=count)]
"""Replicas on each of up to four nodes."""
_LARGER = ((1, 1), (2, 8), (4, 16), (16, 64))
_JOBS = 24
_MOST_APART_SECONDS = 180


@dataclass(frozen=True)
class _Application:
    name: str
    samples_per_second: float
    sync_seconds: float
    """Of a step over several nodes; within one it is a quarter."""
    noise: float
    """Variance of the smallest batch's gradient over its squared norm."""
    sizes: tuple[int, ...]
    epochs: int
    steps: int
    """Of the smallest batch, in an epoch."""

    def times(self, local: int, replicas: int, nodes: int) -> str:
        """Seconds of a step and of its exchange, as two columns."""
        sync = self.sync_seconds * (0.0 if replicas == 1 else 1.0 if nodes > 1 else 0.25)
        return f"{local / self.samples_per_second + sync:.6f},{sync:.6f}"


_APPLICATIONS = (
    _Application("vision", 400, 0.02, 12.0, (64, 128, 256, 512), 10, 600),
    _Application("text", 60, 0.30, 2.0, (16, 32, 64), 6, 500),
)


def write_example(folder: Path) -> Path:
    """Write the list of jobs and the measurements of its applications; the path of the list."""
    for application in _APPLICATIONS:
        _write_application(folder / "traces" / application.name, application)
    rows: list[str] = []
    at = 0
    for number in range(_JOBS):
        application = _APPLICATIONS[number % 3 // 2]
        at += (number * 7919 + 104) % _MOST_APART_SECONDS
        workers = (1, 4, 2, 8)[number % 4]
        size = application.sizes[min(number % 4, len(application.sizes) - 1)]
        rows.append(f"{application.name}-{number},{at},{application.name},{workers},{size}")
    path = folder / "lists" / "example.csv"
    _write(path, "name,time,application,num_replicas,batch_size", rows)
    return path


def _write_application(folder: Path, application: _Application) -> None:
    smallest = application.sizes[0]
    locals_ = [smallest // 4, smallest // 2, smallest, 2 * smallest]
    placements = [
        f"{placement},{local},{application.times(local, sum(map(int, placement)), len(placement))}"
        for placement in _PLACEMENTS
        for local in locals_
    ]
    _write(folder / "placements.csv", "placement,local_bsz,step_time,sync_time", placements)
    larger = [
        f"{nodes},{replicas},{local},{application.times(local, replicas, nodes)}"
        for nodes, replicas in _LARGER
        for local in locals_
    ]
    _write(folder / "scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time", larger)
    for size in application.sizes:
        done = [epoch * application.steps for epoch in range(1, application.epochs + 1)]
        epochs = [f"{each},{each * smallest // size},0.5,1.0,{application.noise}" for each in done]
        _write(folder / f"validation-{size}.csv", "progress,iteration,metric,grad_sqr,grad_var", epochs)


def _write(path: Path, head: str, rows: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *rows]) + "\n")
