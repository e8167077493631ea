"""The supervisor of one task: its parent, its reaper and its witness, outside its isolation.

It outlives agent and server, needs nothing but the files in the task's folder (`taskfiles`, `launch`),
and says what became of the task exactly once. One thread, one loop; `Supervisor.run` is the life of a
task from top to bottom. What must be right should this process be killed at any line is elsewhere: the
command's end is noted by the init, and what is left is ended and reported by `task_monitor.settle`.
"""

from __future__ import annotations

import fcntl
import os
import select
import time

from shoal import faults
from shoal.cluster.local import supervisor_child as init
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import cgroups, syscalls
from shoal.cluster.local.supervisor_child import Child, StartFailed, bear
from shoal.cluster.local.supervisor_plan import Plan
from shoal.history import segments

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from typing import Any, Literal
else:
    import _signal as signal

ALREADY_BEGUN = 3
"""Exit code of a supervisor that finds its task begun by another."""

_PAUSE_SECONDS = 0.002
_LAST_RESORT_SECONDS = 2.0
_INTERVAL_SECONDS = 0.2
_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 18
_SMALL_BYTES = 1 << 15
_BATCH_SECONDS = 0.01
_DRAIN_SECONDS = 0.5
_F_SETPIPE_SZ = 1031


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
            self._publish(files.not_started("", self._stopping.stop))
            return
        status = files.Status(self._plan.folder)
        try:
            own = (self._pump.reader, self._signals, *((self._ready,) if self._ready >= 0 else ()))
            child = bear(self._plan, self._groups, status, self._pump.output, own)
        except (StartFailed, OSError) as failure:
            self._pump.say(f"the task could not be started: {failure}")
            self._publish(files.not_started(str(failure)))
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
        ended = files.classify(
            status,
            stop=self._stopping.stop,
            out_of_memory_kills=max(self._groups.out_of_memory_kills(), int(watch.exceeded)),
            memory_bytes=self._plan.limits.get("memory_bytes"),
            grace_over=self._stopping.grace_over,
        )
        if not self._released:
            ended = files.not_started("", self._stopping.stop)
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


class Stopping:
    """The stop of one task, if there is one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.stop: dict[str, Any] | None = None
        self.next_at: float | None = None
        """When (monotonic) the next step is due; None: there is none."""
        self.grace_over = False

    def read(self) -> bool:
        """Read what is asked for; True when there is a stop."""
        self.stop = files.read(self._folder, "stop.json") or self.stop
        return self.stop is not None

    def heard(self, now: float) -> Literal["", "term", "kill", "destroy"]:
        """SIGTERM has come: what to send to the task."""
        first = self.stop is None
        if not self.read() or self.stop is None or self.grace_over:
            return ""
        grace_seconds = max(0.0, float(self.stop["grace_seconds"]))
        self.next_at = min(now + grace_seconds, self.next_at or now + grace_seconds)
        if self.next_at <= now:
            return self.due(now)
        return "term" if first else ""

    def due(self, now: float) -> Literal["", "kill", "destroy"]:
        """What to send because it is time: `kill` through the init, at last `destroy` the init."""
        if self.next_at is None or now < self.next_at:
            return ""
        self.next_at = now + _LAST_RESORT_SECONDS
        if self.grace_over:
            return "destroy"
        self.grace_over = True
        return "kill"


class MemoryWatch:
    """The memory of everything below a process; idle when there is no limit to hold."""

    def __init__(self, limit_bytes: int | None, ancestor: int) -> None:
        self._limit_bytes = limit_bytes
        self._ancestor = ancestor
        self.next_at: float | None = None if limit_bytes is None else 0.0
        """When (monotonic) to look again; None: never."""
        self.peak_bytes = 0
        self.exceeded = False

    def look(self, now: float) -> bool:
        """True when the task is to be killed for its memory; looks only when it is time."""
        if self._limit_bytes is None or self.next_at is None or now < self.next_at:
            return False
        self.next_at = now + _INTERVAL_SECONDS
        used = processes.memory_bytes(processes.descendants(self._ancestor))
        self.peak_bytes = max(self.peak_bytes, used)
        if used <= self._limit_bytes:
            return False
        self.exceeded = True
        return True


class Pump:
    """From a pipe to the segments of a log."""

    def __init__(self, log: dict[str, Any]) -> None:
        self._writer = segments.Writer(log["directory"], log["max_segment_bytes"], log["max_segments"])
        self.reader, self.output = os.pipe()
        """Where to read, and where the task is to write."""
        os.set_blocking(self.reader, False)
        self.resume_at = 0.0
        """When (monotonic) it is next worth looking."""
        self._last = 0.0
        self._buffer = bytearray(_READ_BYTES)
        try:
            fcntl.fcntl(self.output, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return  # over this user's allowance: the ordinary size works too

    def close_output(self) -> None:
        """Let go of the writing end, so that the end of the task is the end of the log; idempotent."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1

    @property
    def dropped_bytes(self) -> int:
        """What the disk had no room for."""
        return self._writer.dropped_bytes

    def move(self, now: float) -> bool:
        """Move what there is, up to a piece; False when the pipe has no writer any more."""
        try:
            count = os.readv(self.reader, [self._buffer])
        except BlockingIOError:
            self.resume_at = 0.0
            return True
        if count == 0:
            return False
        self._writer.write(memoryview(self._buffer)[:count], time.time())
        chatty = count < _SMALL_BYTES and now - self._last < 2 * _BATCH_SECONDS
        self.resume_at = now + _BATCH_SECONDS if chatty else 0.0
        self._last = now
        return True

    def say(self, sentence: str) -> None:
        """Add a line of our own."""
        self._writer.write(f"shoal: {sentence}\n".encode(errors="surrogateescape"), time.time())

    def finish(self) -> None:
        """Move what is left, once the task's processes are gone, and close the log."""
        waiting = select.poll()
        waiting.register(self.reader, select.POLLIN)
        # should a process have escaped with the other end, silence is the end
        while waiting.poll(_DRAIN_SECONDS * 1000) and self.move(time.monotonic()):
            pass
        if self.dropped_bytes:
            self.say(f"{self.dropped_bytes} bytes of this log were dropped: {self._writer.last_error}")
        self._writer.close()
        os.close(self.reader)
