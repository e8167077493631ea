"""Stock gloo groups, built anew after a loss by scripts that agree on nothing: the shortest there is."""

from __future__ import annotations

import time

from bench.elastic.jobs.job import Job, NotReached

__all__ = ["Floor"]


class Floor(Job):
    """Workers that cannot be replaced: one job per loss."""

    system = "floor: stock gloo"
    joins = False

    def start(self) -> None:
        """A store that outlives the workers, then the workers."""
        self.spawn([self.python, "-u", "-m", "bench.elastic.workers.store"], "store")
        port = self._port()
        for rank in range(self.world):
            environment = {"BENCH_STORE": port, "BENCH_WORLD": str(self.world), "BENCH_RANK": str(rank)}
            self.worker("stock", f"rank-{rank}", environment)

    def add(self) -> None:
        """Not here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("the floor does not grow")

    def _port(self) -> str:
        log, deadline = self.folder / "store.log", time.monotonic() + 60
        while not (text := log.read_text()).endswith("\n"):
            if time.monotonic() > deadline:
                raise NotReached("the floor's store has no port")
            time.sleep(0.02)
        return text.strip()
