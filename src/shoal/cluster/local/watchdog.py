"""Keeps components alive: the server keeps the agents, each agent keeps the server.

A thread waits on the kernel's word that one of them has ended and starts it anew at once; one that
ends again and again right after its start is started ever more rarely. Nothing is started while
`run/down` exists. A process that shuts a home down, or starts it, holds the components' lock, and the
watchdog leaves it to that process.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal import faults
from shoal.background import Backoff, SupervisedThread
from shoal.cluster.local import components, processes
from shoal.cluster.local.home import Home, Lock

FIRST_BACKOFF_SECONDS = 0.1
LONG_BACKOFF_SECONDS = 1.0
"""Doubling ends here, where being killed often is still likelier than being broken."""
LONGEST_BACKOFF_SECONDS = 15.0
PATIENCE = 30
"""After so many short lives in a row it is broken."""
STEADY_SECONDS = 1.0
"""A life that was not short."""
LOOK_SECONDS = 0.5
"""How often declarations are read again, and components that were not up are looked for."""

_BACKOFF = Backoff(0.05, 5.0)


@dataclass
class _Kept:
    pidfd: int = -1
    pid: int = 0
    since: float = 0.0
    short_lives: int = 0
    not_before: float = 0.0


class Watchdog:
    """Keeps `wanted()` (component names) of a home alive from a thread of its own until closed.

    `started` is called with each component that was started again.
    """

    name = "watchdog"

    def __init__(
        self,
        home: Home,
        wanted: Callable[[], list[str]],
        started: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = home
        self._wanted = wanted
        self._started = started
        self._kept: dict[str, _Kept] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closing = threading.Event()
        self._problem = ""
        self._thread = SupervisedThread("watchdog", self._run, self._closing, backoff=_BACKOFF)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is up stays up. Idempotent."""
        if self._closing.is_set():
            return
        self._closing.set()
        os.write(self._wake_write, b"x")
        if self._thread.is_alive():
            self._thread.join()
        for kept in self._kept.values():
            _drop(kept)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._home.down.exists():
                for component in self._components():
                    self._keep(component)
            self._wait()

    @property
    def problem(self) -> str:
        """Why the declared components are not known; empty: they are."""
        return self._problem

    def _components(self) -> list[str]:
        """The components to keep; the last known ones while the declarations cannot be read."""
        try:
            wanted = self._wanted()
        except Exception as error:  # noqa: BLE001 - reported, and asked again at the next look
            problem = f"{error}; the components known before are kept alive"
            if problem != self._problem:
                self._report(problem)
            self._problem = problem
            return list(self._kept)
        self._problem = ""
        return wanted

    def _report(self, problem: str) -> None:
        with contextlib.suppress(OSError):  # a full disk: there is no other place to report it
            os.write(2, f"{problem}\n".encode())

    def _keep(self, component: str) -> None:
        kept = self._kept.setdefault(component, _Kept())
        try:
            self._look(component, kept)
        except Exception as error:  # noqa: BLE001 - reported; the other components are kept all the same
            self._report(f"{component} cannot be started: {error}")
            kept.not_before = time.monotonic() + LONGEST_BACKOFF_SECONDS

    def _look(self, component: str, kept: _Kept) -> None:
        now = time.monotonic()
        if kept.pidfd < 0:
            self._attach(component, kept, now)
        if kept.pidfd >= 0 or now < kept.not_before:
            return
        lock = Lock(self._home.run / "components.lock")
        if not lock.try_acquire():
            return  # another process starts or ends this home just now
        with lock:
            if self._home.down.exists() or self._home.component_lock(component).holder() is not None:
                return
            pid = components.start(self._home, component)
            faults.point("watchdog.component.started")
            kept.short_lives += 1
            kept.not_before = now + _backoff(kept.short_lives)
            self._until_held(component, pid)
        self._started(component)
        self._attach(component, kept, time.monotonic())

    def _attach(self, component: str, kept: _Kept, now: float) -> None:
        lock = self._home.component_lock(component)
        pid = lock.holder()
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            pidfd = processes.open_process(pid)
            if lock.holder() != pid:  # it has ended, and the pid may be a stranger's
                if pidfd >= 0:
                    os.close(pidfd)
                return
            kept.pidfd, kept.pid, kept.since = pidfd, pid, now

    def _until_held(self, component: str, pid: int) -> None:
        """Until it holds its lock: so that no second one is started before."""
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline and not self._closing.is_set():
            if self._home.component_lock(component).holder() is not None or components.reap(pid):
                return
            time.sleep(0.005)

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        by_pidfd = {kept.pidfd: kept for kept in self._kept.values() if kept.pidfd >= 0}
        for pidfd in by_pidfd:
            poll.register(pidfd, select.POLLIN)
        now = time.monotonic()
        soonest = min(
            [LOOK_SECONDS]
            + [k.not_before - now for k in self._kept.values() if k.pidfd < 0 and k.not_before > now]
        )
        for descriptor, _ in poll.poll(soonest * 1000):
            kept = by_pidfd.get(descriptor)
            if kept is not None:
                if time.monotonic() - kept.since > STEADY_SECONDS:
                    kept.short_lives, kept.not_before = 0, 0.0
                components.reap(kept.pid)
                _drop(kept)


def _backoff(short_lives: int) -> float:
    if short_lives > PATIENCE:
        return LONGEST_BACKOFF_SECONDS
    return min(FIRST_BACKOFF_SECONDS * 2.0 ** (short_lives - 1), LONG_BACKOFF_SECONDS)


def _drop(kept: _Kept) -> None:
    if kept.pidfd >= 0:
        os.close(kept.pidfd)
        kept.pidfd = -1
