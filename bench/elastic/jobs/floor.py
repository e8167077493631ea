"""Stock gloo groups, built anew after a loss by scripts that agree on nothing: the shortest there is."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.elastic.jobs.job import Job, NotReached

__all__ = ["Floor", "start_store"]


class Floor(Job):
    """Workers that cannot be replaced: one job per loss."""

    system = "floor: stock gloo"
    joins = False

    def start(self) -> None:
        """A store that outlives the workers, then the workers."""
        port = start_store(self)
        for rank in range(self.world):
            environment = {"BENCH_STORE": port, "BENCH_WORLD": str(self.world), "BENCH_RANK": str(rank)}
            self.worker("stock", f"rank-{rank}", environment)

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """Not here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the floor does not grow")


def start_store(job: Job) -> str:
    """Start a TCPStore as a process of the job: its port.

    Raises:
        NotReached: it does not say one within a minute.
    """
    job.spawn([job.python, "-u", "-m", "bench.elastic.workers.store"], "store")
    log, deadline = job.folder / "store.log", time.monotonic() + 60
    while not (text := log.read_text()).endswith("\n"):
        if time.monotonic() > deadline:
            raise NotReached("the store of stock gloo groups has no port")
        time.sleep(0.02)
    return text.strip()
