"""The places of a job: who is in them, in which condition, and whether they ended as they should."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.testing.elastic import ElasticJob
from tests.soak.tape import Tape

__all__ = ["Places"]

_LINES = 15


@dataclass
class Places:
    """`wanted` of the names are to be filled. Who ends is started anew, under the same name."""

    job: ElasticJob
    names: Sequence[str]
    command: Sequence[str]
    tape: Tape
    wanted: int = 0
    stopped: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    starts: int = 0
    _may_end_with: dict[str, set[int]] = field(default_factory=dict)
    _started_at: dict[str, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def living(self) -> list[str]:
        """Names whose process runs (or is stopped)."""
        return [name for name, process in self.job.workers.items() if process.poll() is None]

    def steady(self) -> list[str]:
        """Those of the newest view that are left alone: alive, not stopped, not told to go."""
        return [
            name
            for name in self.living()
            if name in self.tape.members
            and self.tape.joined_at[name] > self._started_at[name]
            and name not in self.stopped | self.leaving
        ]

    def fill(self) -> None:
        """Look at who has ended, and start as many as are wanted."""
        living = self.living()
        for name in self.names:
            if name in living:
                continue
            process = self.job.workers.get(name)
            if process is not None and process.pid not in self._seen:
                self._seen.add(process.pid)
                self._ended(name, process.pid, process.returncode)
            if len(living) < self.wanted:
                self._start(name)
                living.append(name)

    def stop(self, name: str) -> None:
        """Until `go_on`."""
        self.stopped.add(name)
        self.job.kill(name, signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Unless it has been killed meanwhile."""
        if name in self.stopped:
            self.stopped.discard(name)
            self.job.kill(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._may_end_with[name].add(-signal.SIGKILL)
        self.stopped.discard(name)
        self.job.kill(name)

    def notice(self, name: str) -> None:
        """SIGTERM: it is to leave at a step's end."""
        self._may_end_with[name] |= {0} if name in self.tape.members else {0, -signal.SIGTERM}
        self.leaving.add(name)
        self.job.kill(name, signal.SIGTERM)

    def anyone_may_leave(self) -> None:
        """The job has been made smaller, or is over: those that live now may end well."""
        for expected in self._may_end_with.values():
            expected.add(0)

    def _start(self, name: str) -> None:
        self.stopped.discard(name)
        self.leaving.discard(name)
        self._may_end_with[name] = set()
        self._started_at[name] = time.monotonic()
        self.pids.add(self.job.start(name, self.command).pid)
        self.starts += 1

    def _ended(self, name: str, pid: int, code: int) -> None:
        if code not in self._may_end_with[name]:
            log = (self.job.folder / f"{name}.log").read_text().splitlines()
            last = [line for line in log if not line.startswith("{")][-_LINES:]
            self.problems.append(f"{name} ({pid}) ended with {code}, unasked:\n  " + "\n  ".join(last))
