"""AdaptDL without its cluster: a launcher restarts all workers at each change."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from bench.elastic.jobs.job import Job

__all__ = ["Adaptdl"]


class Adaptdl(Job):
    """It writes a checkpoint when it is told to make way, and only then: a kill goes back to that."""

    system = "AdaptDL"
    restarts = True
    heals = True

    def start(self) -> None:
        """One launcher, which has no need of torch, and as many workers as `target` says."""
        self._target = 0
        for _ in range(self.world):
            self.add()
        words = [sys.executable, "-m", "bench.elastic.workers.adaptdl_launcher", self.python]
        self.spawn(words, "launcher", self.settings.environment("all"))

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One worker more: all make way, and are started anew."""
        self._target += 1
        new = self.folder / "target.new"
        new.write_text(str(self._target))
        new.replace(self.folder / "target")
