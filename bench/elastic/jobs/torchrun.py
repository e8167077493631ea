"""torchrun: all workers are restarted at a loss, from the newest checkpoint."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import psutil

from bench.elastic.jobs.job import Job

__all__ = ["Nodes", "StockTorchrun", "Torchrun", "free_port"]

_WORKER = "bench.elastic.workers.under_torchrun"


class Torchrun(Job):
    """One launcher for all workers, with the work-around for the store that restarts share."""

    system = "torchrun"
    restarts = True
    heals = True
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # pytorch#135712

    def start(self) -> None:
        """One launcher, as many workers."""
        words = [
            self.python,
            "-m",
            "torch.distributed.run",
            "--nnodes=1",
            f"--nproc-per-node={self.world}",
        ]
        words += ["--max-restarts=1000", "--rdzv-backend=c10d"]
        words += [f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=bench", "-m", _WORKER]
        self.spawn(words, "launcher", {**self.settings.environment("all"), **self.environment})

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """Not with one launcher.

        Raises:
            NotImplementedError: always; `Nodes` grows.
        """
        raise NotImplementedError("one launcher has a fixed number of workers")


class StockTorchrun(Torchrun):
    """The same without the work-around."""

    system = "torchrun as it comes"
    environment: dict[str, str] = {}


class Nodes(Job):
    """One launcher per worker, as if on a machine each: it can grow, and lose a launcher."""

    system = "torchrun, a launcher each"
    restarts = True

    def start(self) -> None:
        """The first launcher holds the store."""
        self._port, self._count = free_port(), 0
        self._launchers: list[int] = []
        for _ in range(self.world):
            self.add()

    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """One launcher with one worker more."""
        # a minimum of one: with more, a job of all its launchers cannot go on without one of them
        words = [self.python, "-m", "torch.distributed.run", f"--nnodes=1:{self.world + 2}"]
        words += ["--nproc-per-node=1", "--max-restarts=1000", "--rdzv-backend=c10d"]
        words += ["--rdzv-conf=last_call_timeout=2", f"--rdzv-endpoint=127.0.0.1:{self._port}"]
        words += ["--rdzv-id=bench", "-m", _WORKER]
        name = f"launcher-{self._count}"
        self._count += 1
        told = {**self.settings.environment(name), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self._launchers.append(self.spawn(words, name, {**told, **(environment or {})}).pid)

    def served_by(self, pid: int) -> list[int]:
        """Its launcher, and whatever else that has started."""
        launcher = psutil.Process(pid).parent()
        if launcher is None or launcher.pid not in self._launchers:
            raise RuntimeError(f"worker {pid} has no launcher of this job")
        others = [child.pid for child in launcher.children(recursive=True) if child.pid != pid]
        return [launcher.pid, *others]

    def may_lose_machine_of(self, pid: int) -> bool:
        """Not the launcher that holds the store."""
        return self._launchers[0] not in self.served_by(pid)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
