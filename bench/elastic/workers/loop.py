"""What all training scripts share: settings, marks, model, data, the pace and the gate."""

from __future__ import annotations

import os
import time

from torch import Tensor

from bench.elastic.gate import wait_for_turn
from bench.elastic.marks import Recorder
from bench.elastic.mischief import obey
from bench.elastic.models import Samples, model_of, optimizer_of
from bench.elastic.settings import Settings

__all__ = ["Loop"]


class Loop:
    """A worker's surroundings: what any script of this model has to make. Marks that it is made."""

    def __init__(self, name: str | None = None) -> None:
        self.settings = Settings.here()
        self._name = name or os.environ["BENCH_NAME"]
        self.recorder = Recorder(self.settings.path, self._name)
        self.model = model_of(self.settings)
        self.optimizer = optimizer_of(self.settings, self.model)
        self.samples = Samples(self.settings)
        # not before: the first optimizer of a process imports a good part of torch
        self.recorder.event("imported")

    def begin(self, step: int) -> None:
        """Wait for the turn of step `step`, then sleep for the pace."""
        wait_for_turn(self.settings.path, step)
        if self.settings.mischief:
            obey(self.settings.path, self._name, self.recorder)
        if self.settings.pace_seconds:
            time.sleep(self.settings.pace_seconds)

    def backward(self, loss: Tensor) -> None:
        """The backward pass, with a mark before it if the settings want one."""
        if self.settings.marks_backward:
            self.recorder.event("backward")
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
