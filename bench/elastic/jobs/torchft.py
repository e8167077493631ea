"""torchft: a lighthouse, and a replica group of one process per worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench.elastic.jobs.job import Job
from bench.elastic.jobs.torchrun import free_port

__all__ = ["Torchft", "TunedTorchft", "lighthouse_words"]


class Torchft(Job):
    """With its default heartbeat timeout of 5 s, and a wait of 1 s for members that do not ask."""

    system = "torchft"
    timeouts = {"join_timeout_ms": 1000, "heartbeat_timeout_ms": 5000}

    def start(self) -> None:
        """The lighthouse first; workers wait for it."""
        port, self._count = free_port(), 0
        self._address = f"http://127.0.0.1:{port}"
        self.spawn(lighthouse_words(self.python, port, self.timeouts), "lighthouse")
        for _ in range(self.world):
            self.add()

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One replica more; it heals from a member."""
        name = f"replica-{self._count}"
        self._count += 1
        told = {"TORCHFT_LIGHTHOUSE": self._address, **(environment or {})}
        self.worker("under_torchft", name, told)


class TunedTorchft(Torchft):
    """With timeouts as short as a quiet machine bears: what it can do when somebody has guessed them."""

    system = "torchft, tuned"
    timeouts = {"join_timeout_ms": 100, "heartbeat_timeout_ms": 200}


def lighthouse_words(python: str, port: int, timeouts: Mapping[str, int]) -> list[str]:
    """The command line of a lighthouse on this port, in the environment of that interpreter."""
    words = [str(Path(python).with_name("torchft_lighthouse")), "--bind", f"127.0.0.1:{port}"]
    words += ["--min_replicas", "1", "--quorum_tick_ms", "20"]
    for name, value in timeouts.items():
        words += [f"--{name}", str(value)]
    return words
