"""The supervisor of one task: its parent, its reaper and its witness, outside its isolation.

It outlives agent and server, needs nothing but the files in the task's folder (`taskfiles`, `launch`),
and says what became of the task exactly once. One thread, one loop; `Supervisor.run` is the life of a
task from top to bottom. What must be right should this process be killed at any line is elsewhere: the
command's end is noted by the init, and what is left is ended and reported by `supervisor_recovery`.
"""

from __future__ import annotations

import os
import select
import time

from shoal import faults
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_init as init
from shoal.cluster.local import supervisor_outcome as outcome
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import cgroups, syscalls
from shoal.cluster.local.supervisor_birth import Child, StartFailed, bear
from shoal.cluster.local.supervisor_log import Pump
from shoal.cluster.local.supervisor_plan import Plan
from shoal.cluster.local.supervisor_stop import Stopping
from shoal.cluster.local.supervisor_watch import MemoryWatch

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

__all__ = ["ALREADY_BEGUN", "main"]

ALREADY_BEGUN = 3
"""Exit code of a supervisor that finds its task begun by another."""

_PAUSE_SECONDS = 0.002


def main(arguments: list[str]) -> int:
    """`FOLDER [READY]`; see `launch`."""
    folder, *rest = arguments
    ready = int(rest[0]) if rest else -1
    _hold_descriptors()
    signals = _listen()
    launch = files.read(folder, "launch.json")
    if launch is None:
        raise FileNotFoundError(f"{folder}/launch.json")
    plan = Plan(folder, launch)
    draft = files.ExitDraft(folder)
    # what cannot work is found before this line: the agent then sees a task that never began
    try:
        os.close(os.open(f"{folder}/begun", os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return ALREADY_BEGUN
    faults.point("supervisor.begun")
    Supervisor(plan, draft, signals, ready).run()
    return 0


class Supervisor:
    """One task's."""

    def __init__(self, plan: Plan, draft: files.ExitDraft, signals: int, ready: int) -> None:
        self._plan = plan
        self._draft = draft
        self._signals = signals
        self._ready = ready
        self._pump = Pump(plan.log)
        self._stopping = Stopping(plan.folder)
        self._groups = cgroups.Groups(plan.cgroup_parents, plan.cgroup_name)
        self._started = time.time()
        self._released = False
        self._announced = False

    def run(self) -> None:
        """From the first fork to the last file."""
        if self._stopping.read():
            self._publish(outcome.not_started("", self._stopping.stop))
            return
        status = files.Status(self._plan.folder)
        try:
            own = (self._pump.reader, self._signals, *((self._ready,) if self._ready >= 0 else ()))
            child = bear(self._plan, self._groups, status, self._pump.output, own)
        except (StartFailed, OSError) as failure:
            self._pump.say(f"the task could not be started: {failure}")
            self._publish(outcome.not_started(str(failure)))
            return
        try:
            self._pump.close_output()
            self._release(child)
            watch = MemoryWatch(self._watched_bytes(), child.init_pid)
            self._attend(child, watch)
        except BaseException:
            child.destroy()  # the next agent reports the end
            raise
        faults.point("supervisor.command.ended")
        self._conclude(child, watch)

    def _release(self, child: Child) -> None:
        """Let it run. A stop that has come by then ends it before it begins."""
        if self._stopping.read():
            child.destroy()
            return
        self._released = True
        child.tell(init.GO)
        faults.point("supervisor.command.released")

    def _announce(self, child: Child) -> None:
        """Write that it runs, and its processes."""
        files.write(self._plan.folder, "started.json", {
            "supervisor_pid": os.getpid(),
            "supervisor_start_ticks": processes.start_ticks(os.getpid()),
            "init_pid": child.init_pid,
            "command_pid": child.command_pid,
            "command_start_ticks": child.command_ticks,
            "started": self._started,
            "cgroups": self._groups.paths,
            "namespaces": child.namespaces,
            "unenforced": [f"{name}: {why}" for name, why in child.unenforced.items()],
        })  # fmt: skip
        self._announced = True
        faults.point("supervisor.started.recorded")
        self._call_for_a_look()

    def _attend(self, child: Child, watch: MemoryWatch) -> None:
        """Pump, watch, stop, until the task has ended."""
        waiting = select.poll()
        waiting.register(self._signals, select.POLLIN)
        waiting.register(child, select.POLLIN)
        pumping = True
        while not child.ended():
            now = time.monotonic()
            if watch.look(now):
                child.tell(init.KILL)
            self._send(child, self._stopping.due(now))
            asleep = self._pump.resume_at > now
            if pumping:
                waiting.register(self._pump.reader, 0 if asleep else select.POLLIN)
            times = [at for at in (watch.next_at, self._stopping.next_at) if at is not None]
            times += [self._pump.resume_at] if asleep else []
            timeout = max(0.0, min(times) - now) * 1000 + 1 if times else None
            for source, _ in waiting.poll(timeout):
                if source == self._signals:
                    self._heed(child)
                elif source == child.fileno():
                    if self._listen_to(child) is None:
                        waiting.unregister(child)
                elif not self._pump.move(time.monotonic()):
                    waiting.unregister(self._pump.reader)
                    pumping = False

        self._listen_to(child)

    def _listen_to(self, child: Child) -> bool | None:
        running = child.is_running()
        if running:
            self._announce(child)
        return running

    def _heed(self, child: Child) -> None:
        heard = os.read(self._signals, 4096)
        if signal.SIGTERM in heard:
            self._send(child, self._stopping.heard(time.monotonic()))
            if self._announced and not os.path.exists(f"{self._plan.folder}/started.json"):
                self._announce(child)  # it was damaged, and an agent asks for it again
            faults.point("supervisor.stop.signalled")

    def _send(self, child: Child, what: str) -> None:
        if what == "destroy":
            child.destroy()
        elif what:
            child.tell(init.KILL if what == "kill" else init.TERMINATE)

    def _conclude(self, child: Child, watch: MemoryWatch) -> None:
        """The task is over: take stock, clean up, and say how it ended."""
        status = files.Status.read(self._plan.folder)
        if status is None and self._stopping.grace_over:
            status = {"exit_code": 137, "signal": 9}  # its init did not answer, and reported nothing
        ended = outcome.classify(
            status,
            stop=self._stopping.stop,
            out_of_memory_kills=max(self._groups.out_of_memory_kills(), int(watch.exceeded)),
            memory_bytes=self._plan.limits.get("memory_bytes"),
            grace_over=self._stopping.grace_over,
        )
        if not self._released:
            ended = outcome.not_started("", self._stopping.stop)
        if ended["reason"] == "CommandNotFound":
            self._pump.say(ended["message"])
        _end_strays()
        peak = self._groups.peak_memory_bytes() or watch.peak_bytes or child.largest_process_bytes
        child.close()
        self._publish(ended | {"peak_memory_bytes": peak, "cpu_seconds": round(child.cpu_seconds, 3)})

    def _publish(self, ended: dict[str, Any]) -> None:
        """Nothing of the task may be left when this is said."""
        self._pump.close_output()
        self._pump.finish()
        cgroups.remove(self._groups.paths)
        faults.point("supervisor.cgroups.removed")
        usage = {"peak_memory_bytes": 0, "cpu_seconds": 0.0}
        times = {"started": self._started, "ended": max(self._started, time.time())}
        dropped = {"log_dropped_bytes": self._pump.dropped_bytes}
        self._draft.publish(usage | ended | times | dropped)
        faults.point("supervisor.exit.recorded")
        self._call_for_a_look()

    def _watched_bytes(self) -> int | None:
        held = "memory" in self._groups.folders
        return None if held else self._plan.limits.get("memory_bytes")

    def _call_for_a_look(self) -> None:
        if self._ready >= 0:
            os.close(self._ready)
            self._ready = -1


def _end_strays() -> None:
    """Kill what came to us because its init was killed; usually nothing."""
    while processes.reap():
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid)
        time.sleep(_PAUSE_SECONDS)


def _hold_descriptors() -> None:
    """What we were given is ours and the init's to hold, and is not for the command."""
    for name in os.listdir("/dev/fd"):
        descriptor = int(name)
        if descriptor > 2:
            try:
                os.set_inheritable(descriptor, False)
            except OSError:
                continue  # the one that the listing itself had open


def _listen() -> int:
    """A descriptor from which the numbers of the signals can be read that concern us."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    if syscalls.available():
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in range(1, 32):
        if number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, _heard)
        elif number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # it was blocked until it could be handled
    return reader


def _heard(number: int, frame: object) -> None:
    pass
