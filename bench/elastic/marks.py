"""The workers' files: one line per step, appended by one process, followed by the driver.

    step 17 81234567890123 4 16 1        step, nanoseconds, world size, last committed step, applied
    event imported 81234500000000        a name and nanoseconds

Times are `time.monotonic_ns`, which all processes of a Linux machine share. A line is written with one
`write` to a file opened for appending, so that a SIGKILL leaves whole lines or one torn last line, and
the reader takes whole lines alone. Standard library only.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Follower", "Mark", "Recorder", "Trace"]

_SUFFIX = ".steps"


@dataclass(frozen=True)
class Mark:
    """A return from `optimizer.step()`; not `applied` if that changed nothing (a part, a re-run)."""

    step: int
    at_ns: int
    world: int
    committed: int
    applied: bool = True


@dataclass
class Trace:
    """What one process has written so far."""

    pid: int
    name: str
    marks: list[Mark] = field(default_factory=list[Mark])
    events: dict[str, int] = field(default_factory=dict[str, int])
    """Name to nanoseconds; the newest of each name."""

    @property
    def applied(self) -> list[Mark]:
        """The marks of steps that changed the model."""
        return [mark for mark in self.marks if mark.applied]


class Recorder:
    """Writes this process's file. Processes that take a place in turn share its `name`."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.{os.getpid()}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def step(self, step: int, world: int, committed: int, *, applied: bool = True) -> None:
        """Say that `optimizer.step()` has returned, now."""
        self._line(f"step {step} {time.monotonic_ns()} {world} {committed} {int(applied)}")

    def event(self, name: str) -> None:
        """Say that something has happened, now. The name has no spaces."""
        self._line(f"event {name} {time.monotonic_ns()}")

    def _line(self, text: str) -> None:
        os.write(self._file, f"{text}\n".encode())


class Follower:
    """Reads what has been appended since the last call, for all workers of a folder. One thread's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._traces: dict[Path, Trace] = {}

    def update(self) -> list[Trace]:
        """All traces of the folder, the same objects at each call, by process id.

        Raises:
            ValueError: a whole line is none of a worker's.
        """
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if path not in self._traces:
                name, pid, _ = path.name.rsplit(".", 2)
                self._traces[path] = Trace(int(pid), name)
            self._read(path, self._traces[path])
        return sorted(self._traces.values(), key=lambda trace: trace.pid)

    def _read(self, path: Path, trace: Trace) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = self._offsets.get(path, 0) + len(whole)
        for line in whole.decode().splitlines():
            match line.split():
                case ["step", step, at, world, committed, applied]:
                    trace.marks.append(
                        Mark(int(step), int(at), int(world), int(committed), applied == "1")
                    )
                case ["event", name, at]:
                    trace.events[name] = int(at)
                case _:
                    raise ValueError(f"{path.name}: no worker writes {line!r}")
