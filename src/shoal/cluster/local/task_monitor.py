"""Monitors one launched task until its end is known: starts its supervisor, or finds it again.

What there is to do follows from what is on the disk alone, so a restarted agent does what the one
before would have done next (see `begin`). The task's folder has a lock that its supervisor holds from
birth; a process that gets the lock knows that no supervisor is there.

`settle` finishes the work of a supervisor that is gone before it could say how its task ended. The init
notices within an instant that its supervisor is gone and ends the task; or it had noted the command's
end before. So there is little to do but wait until nothing of the task is left, by whatever means it
takes, and then to report what the supervisor would have reported: the command's own exit, if that had
already happened, otherwise that the supervisor was lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal import faults
from shoal.cluster.local import launch, processes, supervisor_processes, taskfiles
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local.isolation import cgroups
from shoal.cluster.local.isolation.sandbox import sweep
from shoal.cluster.local.launch import TaskFolders
from shoal.cluster.local.ledger import Record, StopRequest, copy_of
from shoal.cluster.local.loop import Timer
from shoal.cluster.local.taskfiles import Exit, Launch, Started, Stop
from shoal.objects.task import TaskBootstrap

if TYPE_CHECKING:
    from shoal.cluster.local.node import Node

SEARCH_SECONDS = 0.05
SEARCHES = 40
"""How often, and that far apart, a supervisor is looked for that holds its lock and has not yet written
its pid: it may have been spawned by an agent that died in the same instant."""
RETRY_SECONDS = 1.0
SPAWNS = 3
"""How often a supervisor that is killed before it has begun is started again."""

_ERRORS = "errors"
_NEVER_RAN = Exit(exit_code=143, signal=15, reason="Signalled")
_log = logging.getLogger(__name__)

_SCRATCH = "SHOAL_SCRATCH"
_SCRIPT = "/supervisor.py"
_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.25


class TaskMonitor:
    """See the module's docstring. Belongs to the loop's thread."""

    def __init__(self, node: Node, record: Record, folders: TaskFolders) -> None:
        self.record = record
        self.folders = folders
        self.pid = 0
        """The supervisor's; 0 while none is known."""
        self.started: Started | None = None
        self._node = node
        self._loop = node.loop
        self._ticks = 0
        self._pidfd = -1
        self._ready = -1
        self._is_child = False
        self._searches = 0
        self._spawns = 0
        self._timer: Timer | None = None
        self._delivered: StopRequest | None = None
        self._confirmation: Timer | None = None

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
                self._node.ended(self.record, _failed(f"the task cannot be started: {error}"))
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
        grace = self._node.remaining_grace(stop)
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
        self._confirm_later()

    def _confirm_later(self) -> None:
        if self._confirmation is not None:
            self._confirmation.cancel()
        self._confirmation = self._loop.later(RETRY_SECONDS, self._confirm)

    def _confirm(self) -> None:
        """Until the task has ended, look whether the supervisor can still read of its stop."""
        if taskfiles.read(str(self.folders.task), taskfiles.STOP, Stop, self._node.damaged) is None:
            self._delivered = None
            self.stop()
        else:
            self._confirm_later()

    def kill(self) -> None:
        """End the supervisor, and with it the task, without its word on how it ended."""
        processes.send(self.pid, self._ticks, signal.SIGKILL)

    def look_for_start(self) -> None:
        """Take note of `started.json` if it is there."""
        if self.started is not None:
            return
        folder = str(self.folders.task)
        self.started = taskfiles.read(folder, taskfiles.STARTED, Started, self._node.damaged)
        if self.started is not None:
            self._node.started(self.record, self.started)

    def close(self) -> None:
        """Let go; what runs goes on running."""
        for timer in (self._timer, self._confirmation):
            if timer is not None:
                timer.cancel()
        self._drop_ready()
        self._drop_pidfd()

    def _decide(self, lock: int) -> None:
        """No supervisor is there."""
        if (self.folders.task / taskfiles.BEGUN).exists():
            self._settle()
        elif self.record.progress.stop is not None:
            self._node.ended(self.record, _NEVER_RAN)
        else:
            try:
                self._prepare()
                self._spawn(lock)
            except OSError as error:
                self._node.ended(self.record, _failed(f"the task cannot be started: {error}"))

    def _prepare(self) -> None:
        self.folders.create(self.record.bootstrap or TaskBootstrap())
        folder = str(self.folders.task)
        taskfiles.write(folder, taskfiles.RECORD, copy_of(self.record))
        taskfiles.write(folder, taskfiles.LAUNCH, self._node.describe(self.record, self.folders))
        taskfiles.reserve(folder, taskfiles.STOP)
        faults.point("agent.launch.prepared")

    def _spawn(self, lock: int) -> None:
        held = [lock, *self._node.claims(self.record)]
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
        pid = supervisor_of(self.folders.task, self._node.damaged)
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
            self._node.ended(self.record, _NEVER_RAN)
        elif crashed or self._spawns >= SPAWNS:
            self._node.ended(self.record, _failed(self._complaint()))
        else:
            self.begin()

    def _settle(self) -> None:
        """Finish the work of a supervisor that is gone: nothing of the task may be left, and its
        end must be recorded. Elsewhere, for it may take a while."""
        folder, parents = str(self.folders.task), self._node.cgroup_parents

        def job() -> Callable[[], None]:
            problems: list[str] = []
            end = settle(folder, parents, problems.append)
            return lambda: self._settled(end, problems)

        def failed(error: Exception) -> Callable[[], None]:
            return lambda: self._settle_later(error)

        self._loop.work(job, failed)

    def _settle_later(self, error: Exception) -> None:
        self._node.damaged(f"the end of task {self.record.spec.name} cannot be recorded yet: {error}")
        self._timer = self._loop.later(RETRY_SECONDS, self._settle)

    def _settled(self, end: Exit, problems: list[str]) -> None:
        faults.point("agent.supervisor.settled")
        for problem in problems:
            self._node.damaged(problem)
        self._node.reap()
        self.look_for_start()
        self._node.ended(self.record, end)

    def _conclude(self) -> None:
        """The task has ended, and its folder says how."""
        self.look_for_start()
        end = taskfiles.read(str(self.folders.task), taskfiles.EXIT, Exit, self._node.damaged)
        if end is None:
            self._settle()  # what the init noted says the same
        else:
            self._node.ended(self.record, end)

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


def settle(
    folder: str,
    cgroup_parents: Mapping[str, str] = {},
    report: Callable[[str], None] = _log.warning,
) -> Exit:
    """The supervisor of the task with this folder is gone: end what is left of the task, and say how it
    ended, in `exit.json` too unless the disk has no room for it. Returns when nothing is left, however
    long that takes: an instant, but for a process that the kernel itself holds. Idempotent.

    `cgroup_parents` and the folder's own name serve where `launch.json` is gone or damaged; `report` is
    given a sentence about each damaged file.

    A living supervisor would be taken for a part of what is left. Where there is no `begun` nothing has
    happened yet, and the task may as well be started again as settled.
    """
    launch = taskfiles.read(folder, taskfiles.LAUNCH, Launch, report)
    parents = cgroup_parents if launch is None else launch.cgroup_parents
    groups = cgroups.Groups(dict(parents), Path(folder).name)
    groups.find()
    _await_silence(folder, _scratch(folder) if launch is None else launch.env.get(_SCRATCH, ""))
    killed_for_memory, peak = groups.out_of_memory_kills(), groups.peak_memory_bytes()
    cpu_seconds = groups.cpu_seconds()
    while not cgroups.remove(groups.paths):
        continue  # it has its own patience
    if launch is not None and launch.isolation.sandbox:
        sweep(launch.isolation.sandbox)
    found = taskfiles.read(folder, taskfiles.EXIT, Exit, report)
    if found is not None:
        return found
    stop = taskfiles.read(folder, taskfiles.STOP, Stop, report)
    ended = files.classify(
        files.Status.read(folder),
        stop=None if stop is None else msgspec.to_builtins(stop),
        out_of_memory_kills=killed_for_memory,
        memory_bytes=None if launch is None else launch.limits.memory_bytes,
    )
    ended |= {"peak_memory_bytes": peak, "cpu_seconds": cpu_seconds, **_times(folder, report)}
    with contextlib.suppress(OSError):  # the caller has the answer
        files.ExitDraft(folder).publish(ended)
    return msgspec.convert(ended, Exit)


def _await_silence(folder: str, scratch: str) -> None:
    """Wait until none of the task's processes is left: a moment for the init to do it, then by force."""
    patience = time.monotonic() + _PATIENCE_SECONDS
    pause = _POLL_SECONDS
    while left := _left(folder, scratch):
        for pid in left if time.monotonic() > patience else ():
            supervisor_processes.kill(pid)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _scratch(folder: str) -> str:
    """The task's scratch folder, as `folders.TaskFolders` has it."""
    node, name = Path(folder).parents[1], Path(folder).name
    return str(node / "work" / name / "scratch")


def _left(folder: str, scratch: str) -> list[int]:
    """Processes of the supervisor's that still live: itself, its init; and, where no PID namespace held
    them, those that were started with the task's scratch folder in their environment."""
    own = supervisor_processes.with_argument(folder, _SCRIPT)
    if own:
        return own
    strays = supervisor_processes.with_environment(f"{_SCRATCH}={scratch}") if scratch else []
    for pid in strays:
        supervisor_processes.kill(pid)  # no other process is left to do it
    return strays


def _times(folder: str, report: Callable[[str], None]) -> dict[str, float]:
    """When it was started, and when its end was noted, if it was."""
    started = taskfiles.read(folder, taskfiles.STARTED, Started, report)
    ended = time.time()
    if files.Status.read(folder) is not None:
        ended = (Path(folder) / "status").stat().st_mtime
    begun = 0.0 if started is None else started.started
    with contextlib.suppress(FileNotFoundError):
        begun = begun or (Path(folder) / "begun").stat().st_mtime
    return {"started": begun or ended, "ended": max(begun, ended)}
