"""What a worker is told, through one environment variable. Standard library only."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

__all__ = ["WIDTHS", "ModelName", "Settings"]

_VARIABLE = "BENCH_ELASTIC"

ModelName = Literal["mlp", "wide", "wider"]
WIDTHS = {"wide": 40_000, "wider": 262_144}
"""Outputs of the models of one layer with 256 inputs."""


@dataclass(frozen=True)
class Settings:
    """One job's settings, the same for all its workers."""

    folder: str
    """Where the workers write their marks, and find `limit`."""
    model: ModelName = "mlp"
    pace_seconds: float = 0.02
    """What a worker sleeps in each step, in place of computing."""
    batch: int = 64
    """Samples of a step, all workers together."""
    samples: int = 65_536
    epochs: int = 1_000
    seed: int = 0
    """Of the data and the first parameters."""
    order: int = 0
    """The seed of the order of the samples, where the system shuffles."""
    adam: bool = False
    double: bool = False
    """Parameters and data in 64 bits."""
    count: bool = False
    """One more parameter per sample, whose value counts how often the sample was used."""
    mischief: bool = False
    """Do what the driver asks for (`mischief`)."""
    marks_backward: bool = False
    """Write an event before each backward pass."""

    @property
    def gradient_bytes(self) -> int:
        """Of the gradients of all parameters but the counts, in 32 bits."""
        return 4 * (256 * WIDTHS[self.model] if self.model in WIDTHS else 256 * 512 + 512 * 10 + 522)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of the worker called `name`."""
        return {_VARIABLE: json.dumps(asdict(self)), "BENCH_NAME": name, "OMP_NUM_THREADS": "1"}

    @classmethod
    def here(cls) -> Settings:
        """This worker's settings.

        Raises:
            KeyError: nobody started it as a worker of a benchmark.
        """
        return cls(**json.loads(os.environ[_VARIABLE]))

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def at(self, folder: Path) -> Settings:
        """The same in another folder."""
        return replace(self, folder=str(folder))
