"""Plain DistributedDataParallel: no launcher, no checkpoints, nothing that watches."""

from __future__ import annotations

from collections.abc import Mapping

from bench.elastic.jobs.job import Job
from bench.elastic.jobs.torchrun import free_port

__all__ = ["Ddp"]


class Ddp(Job):
    """Workers are told who they are by variables."""

    system = "plain DDP"
    joins = False

    def start(self) -> None:
        """All workers; rank 0 serves the store."""
        port = free_port()
        for rank in range(self.world):
            told = {"RANK": str(rank), "WORLD_SIZE": str(self.world), "MASTER_ADDR": "127.0.0.1"}
            told |= {"MASTER_PORT": str(port), "BENCH_CHECKPOINTS": "0"}
            self.worker("under_torchrun", f"rank-{rank}", told)

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """Not here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("plain DDP does not grow")
