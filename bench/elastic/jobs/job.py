"""What all jobs share: processes with their logs, the workers' marks, waits with deadlines, an end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bench.elastic.marks import Follower, Trace
from bench.elastic.settings import Settings

__all__ = ["REPOSITORY", "Job", "NotReached"]

REPOSITORY = Path(__file__).resolve().parents[3]


class NotReached(TimeoutError):
    """A job did not come to where it was waited for, in time."""


class Job(ABC):
    """A training job of some workers in a folder of its own. Leaving it ends all of its processes, and
    removes the folder unless `keep` was set or an error left it.

    `restarts` says that a loss makes new processes of all workers; `heals` that the system replaces a
    lost worker by itself; where neither is so and `joins` is false, a job is good for one loss.
    """

    system = ""
    restarts = False
    heals = False
    joins = True

    def __init__(self, settings: Settings, world: int, python: str = sys.executable) -> None:
        self.settings, self.world, self.python = settings, world, python
        self.folder = settings.path
        self.keep = False
        self._follower = Follower(self.folder)
        self._started: list[subprocess.Popen[bytes]] = []
        self._names: dict[int, str] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and not self.keep:
            shutil.rmtree(self.folder)

    @abstractmethod
    def start(self) -> None:
        """Start all `world` workers; return at once."""

    @abstractmethod
    def add(self, environment: Mapping[str, str] | None = None) -> None:
        """Start one worker more, with these variables too; return at once."""

    def replace(self, pid: int) -> None:
        """Put a new worker in place of the one that was harmed; return at once."""
        self.add()

    def served_by(self, pid: int) -> list[int]:
        """Processes that serve this worker alone, and are lost with its machine: its children."""
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]

    def may_lose_machine_of(self, pid: int) -> bool:
        """False where the job is known to end with the machine of this worker."""
        return True

    def traces(self) -> list[Trace]:
        """What the workers have written by now. Ended children are reaped."""
        for process in self._started:
            process.poll()
        return self._follower.update()

    def alive(self) -> list[Trace]:
        """The traces of workers that run, oldest first."""
        return [trace for trace in self.traces() if _runs(trace.pid)]

    def wait(self, reached: Callable[[], bool], deadline_seconds: float, what: str) -> None:
        """Look every 20 ms.

        Raises:
            NotReached: the deadline has passed; `what` says what was waited for.
        """
        deadline = time.monotonic() + deadline_seconds
        while not reached():
            if time.monotonic() > deadline:
                raise NotReached(
                    f"{self.system}: no {what} within {deadline_seconds:.0f} s ({self.folder})"
                )
            if complaint := self.complaint():
                raise NotReached(f"{self.system}: no {what}: {complaint} ({self.folder})")
            if all(process.poll() is not None for process in self._started):
                raise NotReached(f"{self.system}: everything ended, no {what} ({self.folder})")
            time.sleep(0.02)

    def wait_steady(self, world: int, steps: int = 20, deadline_seconds: float = 60) -> None:
        """Wait until `world` workers have each applied `steps` steps in a row with that world size.

        Raises:
            NotReached: they have not.
        """

        def steady() -> bool:
            last = [trace.applied[-steps:] for trace in self.alive()]
            good = [m for m in last if len(m) == steps and all(mark.world == world for mark in m)]
            return len(good) == world

        self.wait(steady, deadline_seconds, f"{steps} steps of {world} workers")

    def changes(self) -> tuple[str, ...]:
        """What the system itself says about its changes of members after a loss, if it does."""
        return ()

    def complaint(self) -> str:
        """Why nothing more is to be expected of the job; empty while that is not known."""
        return ""

    def spawn(
        self, words: Sequence[str], name: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own; its output goes to `NAME.log` in the folder."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=REPOSITORY,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        self._names[process.pid] = name
        return process

    def worker(self, module: str, name: str, environment: Mapping[str, str] | None = None) -> None:
        """Start `bench.elastic.workers.MODULE` as the worker called `name`."""
        words = [self.python, "-m", f"bench.elastic.workers.{module}"]
        self.spawn(words, name, {**self.settings.environment(name), **(environment or {})})

    def close(self) -> None:
        """End everything that was started, and whatever that has started. Idempotent."""
        ours: list[psutil.Process] = []
        for process in self._started:
            if process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
                    ours += [
                        *psutil.Process(process.pid).children(recursive=True),
                        psutil.Process(process.pid),
                    ]
        own = {process.pid for process in ours}
        for trace in self._follower.update():
            if trace.pid not in own:
                # a worker whose parent was killed is nobody's child any more
                with contextlib.suppress(psutil.NoSuchProcess):
                    orphan = psutil.Process(trace.pid)
                    if orphan.environ().get("BENCH_ELASTIC", "").find(str(self.folder)) >= 0:
                        ours += [*orphan.children(recursive=True), orphan]
        for process in ours:
            with contextlib.suppress(psutil.NoSuchProcess):  # the one before it took it along
                process.send_signal(signal.SIGCONT)
                process.kill()
        psutil.wait_procs(ours, timeout=10)
        for process in self._started:
            process.wait(10)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
