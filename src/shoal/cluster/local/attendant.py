"""Looks after one launched task until its end is known: starts its supervisor, or finds it again.

What there is to do follows from what is on the disk alone, so a restarted agent does what the one
before would have done next (see `begin`). The task's folder has a lock that its supervisor holds from
birth; a process that gets the lock knows that no supervisor is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from shoal import faults
from shoal.cluster.local import launch, processes, supervisor_recovery, taskfiles
from shoal.cluster.local.folders import TaskFolders
from shoal.cluster.local.ledger import Record, StopRequest, copy_of
from shoal.cluster.local.loop import Loop, Timer
from shoal.cluster.local.taskfiles import Exit, Started
from shoal.objects.task import TaskBootstrap

__all__ = ["Attendant", "Host", "supervisor_of"]

SEARCH_SECONDS = 0.05
SEARCHES = 40
"""How often, and that far apart, a supervisor is looked for that holds its lock and has not yet written
its pid: it may have been spawned by an agent that died in the same instant."""
RETRY_SECONDS = 1.0
SPAWNS = 3
"""How often a supervisor that is killed before it has begun is started again."""

_ERRORS = "errors"
_NEVER_RAN = Exit(exit_code=143, signal=15, reason="Signalled")


class Host(Protocol):
    """What an attendant needs of its node."""

    loop: Loop

    @property
    def cgroup_parents(self) -> Mapping[str, str]:
        """Where the tasks' control groups are."""
        ...

    def describe(self, record: Record, folders: TaskFolders) -> taskfiles.Launch:
        """What the supervisor is given."""
        ...

    def claims(self, record: Record) -> list[int]:
        """Descriptors that the supervisor is to hold."""
        ...

    def remaining_grace(self, stop: StopRequest) -> float:
        """Seconds that the task still has."""
        ...

    def started(self, record: Record, started: Started) -> None:
        """The command runs."""
        ...

    def ended(self, record: Record, end: Exit) -> None:
        """Nothing of the task is left."""
        ...

    def damaged(self, message: str) -> None:
        """A file of the task was put aside."""
        ...

    def reap(self) -> None:
        """Collect children without an attendant: what a dead supervisor has left."""
        ...


class Attendant:
    """See the module's docstring. Belongs to the loop's thread."""

    def __init__(self, host: Host, record: Record, folders: TaskFolders) -> None:
        self.record = record
        self.folders = folders
        self.pid = 0
        """The supervisor's; 0 while none is known."""
        self.started: Started | None = None
        self._host = host
        self._loop = host.loop
        self._ticks = 0
        self._pidfd = -1
        self._ready = -1
        self._is_child = False
        self._searches = 0
        self._spawns = 0
        self._timer: Timer | None = None
        self._delivered: StopRequest | None = None

    def begin(self) -> None:
        """Do what is next: the supervisor is there (find it), was there (finish its work), or never was
        (start it)."""
        self._timer = None
        lock_file = self.folders.task / taskfiles.LOCK
        if not self.folders.task.exists() and self.folders.log.exists():
            # it has run: the ledger is older than what happened, or its folder was removed
            processes.kill(_search(str(self.folders.task)))
            self._settle()
            return
        try:
            self.folders.task.mkdir(mode=0o700, exist_ok=True)
            lock = _try_lock(lock_file)
        except OSError as error:
            if lock_file.exists():  # nothing can be said of it at this moment
                self._timer = self._loop.later(RETRY_SECONDS, self.begin)
            else:
                self._host.ended(self.record, _failed(f"the task cannot be started: {error}"))
            return
        if lock < 0:
            self._find()
            return
        try:
            self._decide(lock)
        finally:
            os.close(lock)

    def stop(self) -> None:
        """Let the supervisor know what the ledger says of a stop. Idempotent."""
        stop = self.record.progress.stop
        if stop is None or stop == self._delivered or not self.pid:
            return
        grace = self._host.remaining_grace(stop)
        try:
            taskfiles.write(
                str(self.folders.task),
                taskfiles.STOP,
                taskfiles.Stop(reason=stop.reason, grace_seconds=grace, at=stop.at),
            )
        except OSError:  # a full disk: the ledger knows, and we try until the task has ended
            self._loop.later(RETRY_SECONDS, self.stop)
            return
        faults.point("agent.stop.written")
        processes.send(self.pid, self._ticks, signal.SIGTERM)
        self._delivered = stop
        faults.point("agent.stop.signalled")

    def kill(self) -> None:
        """End the supervisor, and with it the task, without its word on how it ended."""
        processes.send(self.pid, self._ticks, signal.SIGKILL)

    def look_for_start(self) -> None:
        """Take note of `started.json` if it is there."""
        if self.started is not None:
            return
        folder = str(self.folders.task)
        self.started = taskfiles.read(folder, taskfiles.STARTED, Started, self._host.damaged)
        if self.started is not None:
            self._host.started(self.record, self.started)

    def close(self) -> None:
        """Let go; what runs goes on running."""
        if self._timer is not None:
            self._timer.cancel()
        self._drop_ready()
        self._drop_pidfd()

    def _decide(self, lock: int) -> None:
        """No supervisor is there."""
        if (self.folders.task / taskfiles.BEGUN).exists():
            self._settle()
        elif self.record.progress.stop is not None:
            self._host.ended(self.record, _NEVER_RAN)
        else:
            try:
                self._prepare()
                self._spawn(lock)
            except OSError as error:
                self._host.ended(self.record, _failed(f"the task cannot be started: {error}"))

    def _prepare(self) -> None:
        self.folders.create(self.record.bootstrap or TaskBootstrap())
        folder = str(self.folders.task)
        taskfiles.write(folder, taskfiles.RECORD, copy_of(self.record))
        taskfiles.write(folder, taskfiles.LAUNCH, self._host.describe(self.record, self.folders))
        taskfiles.reserve(folder, taskfiles.STOP)
        faults.point("agent.launch.prepared")

    def _spawn(self, lock: int) -> None:
        held = [lock, *self._host.claims(self.record)]
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        errors = os.open(self.folders.task / _ERRORS, flags, 0o600)
        try:
            with processes.SPAWNING:
                for descriptor in held:
                    os.set_inheritable(descriptor, True)
                try:
                    spawned = launch.spawn(str(self.folders.task), errors)
                finally:
                    for descriptor in held:
                        os.set_inheritable(descriptor, False)
        finally:
            os.close(errors)
        faults.point("agent.launch.spawned")
        self._spawns += 1
        self._is_child = True
        self._ready = spawned.ready
        self._loop.add(spawned.ready, selectors.EVENT_READ, lambda _: self._on_ready())
        self._watch(spawned.pid, processes.start_ticks(spawned.pid))

    def _find(self) -> None:
        """A supervisor holds the lock, or what is left of its task does."""
        self.look_for_start()
        pid = supervisor_of(self.folders.task, self._host.damaged)
        if pid:
            self._watch(pid, processes.start_ticks(pid))
            if self.started is None:
                processes.send(pid, self._ticks, signal.SIGTERM)  # without stop.json: announce again
                self._await_start()
            return
        self._searches += 1
        if self._searches > SEARCHES:
            self._settle()
        else:
            self._timer = self._loop.later(SEARCH_SECONDS, self.begin)

    def _watch(self, pid: int, ticks: int) -> None:
        self.pid, self._ticks = pid, ticks
        try:
            self._pidfd = processes.open_process(pid)
        except ProcessLookupError:
            self._timer = self._loop.later(0.0, self._on_gone)
            return
        if self._pidfd >= 0:
            self._loop.add(self._pidfd, selectors.EVENT_READ, lambda _: self._on_gone())
        else:
            self._poll()
        self.stop()

    def _poll(self) -> None:
        """Where the kernel cannot signal when a process ends."""
        if processes.alive(self.pid, self._ticks):
            self._timer = self._loop.later(SEARCH_SECONDS, self._poll)
        else:
            self._on_gone()

    def _await_start(self) -> None:
        """An agent that did not spawn the supervisor has no pipe that signals it."""
        self.look_for_start()
        if self.started is None and self.pid:
            self._timer = self._loop.later(SEARCH_SECONDS, self._await_start)

    def _on_ready(self) -> None:
        self._drop_ready()
        self.look_for_start()

    def _on_gone(self) -> None:
        status = _reap(self.pid) if self._is_child else None
        if self._timer is not None:
            self._timer.cancel()
        self._drop_ready()
        self._drop_pidfd()
        self.pid = 0
        if not (self.folders.task / taskfiles.BEGUN).exists():
            self._on_gone_too_early(status)
        elif status == 0:
            self._conclude()
        else:
            self._settle()

    def _on_gone_too_early(self, status: int | None) -> None:
        """It never came to start the command: a SIGTERM may have come before it could take one."""
        crashed = status is not None and os.WIFEXITED(status)
        if self.record.progress.stop is not None:
            self._host.ended(self.record, _NEVER_RAN)
        elif crashed or self._spawns >= SPAWNS:
            self._host.ended(self.record, _failed(self._complaint()))
        else:
            self.begin()

    def _settle(self) -> None:
        """Finish the work of a supervisor that is gone: nothing of the task may be left, and its
        end must be recorded. Elsewhere, for it may take a while."""
        folder, parents = str(self.folders.task), self._host.cgroup_parents

        def job() -> Callable[[], None]:
            problems: list[str] = []
            end = supervisor_recovery.settle(folder, parents, problems.append)
            return lambda: self._settled(end, problems)

        def failed(error: Exception) -> Callable[[], None]:
            return lambda: self._settle_later(error)

        self._loop.work(job, failed)

    def _settle_later(self, error: Exception) -> None:
        self._host.damaged(f"the end of task {self.record.spec.name} cannot be recorded yet: {error}")
        self._timer = self._loop.later(RETRY_SECONDS, self._settle)

    def _settled(self, end: Exit, problems: list[str]) -> None:
        faults.point("agent.supervisor.settled")
        for problem in problems:
            self._host.damaged(problem)
        self._host.reap()
        self.look_for_start()
        self._host.ended(self.record, end)

    def _conclude(self) -> None:
        """The task has ended, and its folder says how."""
        self.look_for_start()
        end = taskfiles.read(str(self.folders.task), taskfiles.EXIT, Exit, self._host.damaged)
        if end is None:
            self._settle()  # what the init noted says the same
        else:
            self._host.ended(self.record, end)

    def _complaint(self) -> str:
        try:
            text = (self.folders.task / _ERRORS).read_text(errors="replace").strip()
        except OSError:
            text = ""
        last = text.splitlines()[-1] if text else "it says nothing"
        return f"the task's supervisor could not work: {last}"

    def _drop_ready(self) -> None:
        if self._ready >= 0:
            self._loop.remove(self._ready)
            os.close(self._ready)
            self._ready = -1

    def _drop_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1


def supervisor_of(folder: Path, report: Callable[[str], None]) -> int:
    """The pid of the supervisor that is alive for that task's folder; 0 when there is none. `report` is
    given a sentence about a damaged file."""
    started = taskfiles.read(str(folder), taskfiles.STARTED, Started, report)
    if started is None:
        return _search(str(folder))
    alive = processes.alive(started.supervisor_pid, started.supervisor_start_ticks)
    return started.supervisor_pid if alive else 0


def _try_lock(path: Path) -> int:
    """The descriptor of the lock, ours now; -1 when another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def _search(folder: str) -> int:
    """The pid of the supervisor of that folder, by its command line; 0 when there is none."""
    wanted = [launch.SUPERVISOR, folder]
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib makes an object of each)
            if name.isdigit():
                words = processes.command_line(int(name))
                if wanted[0] in words and words[words.index(wanted[0]) :][:2] == wanted:
                    return int(name)
    return 0


def _reap(pid: int) -> int | None:
    """The status of a child that has ended."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found == pid else None


def _failed(message: str) -> Exit:
    return Exit(exit_code=-1, reason="StartFailed", message=message)
