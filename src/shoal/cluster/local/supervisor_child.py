"""Brings a task's processes to life: control groups, namespaces, init, and the command held back.

What the machine does not grant is found by asking for it. The kernel's refusal names an isolation; a
default task is then started again without it and says so, a strict one fails with the reasons.

**Init.** It is between the supervisor and the command, process 1 where there is a namespace. It stands
in the task's isolation, while the supervisor stays outside. It starts the command, reaps what is
orphaned, and when the command has ended notes how before anything else: from then on no death of
another process loses the exit. Then everything left behind is killed, before the init ends and lets go
of what it holds.

The socket to the supervisor is its lifeline: when its other end is gone, so is the supervisor, and the
task is ended, unless the command had ended before. A task's own processes cannot reach the init: it has
no signal handlers but for its children, and it cannot be traced or looked into.

Two steps lead here: the supervisor forks a process that leaves the machine's namespaces, and that one
forks the init (only a child is born into a new PID namespace) and ends. Without one it is the init.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

from shoal import faults
from shoal.cluster.local import supervisor_command as command
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import mounts, namespaces, sandbox, syscalls
from shoal.cluster.local.isolation.sandbox import Sandbox

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import _socket
    import signal
    from collections.abc import Collection
    from typing import Any, NoReturn

    from shoal.cluster.local.isolation.cgroups import Groups
    from shoal.cluster.local.supervisor_plan import Plan
else:
    import _signal as signal

_PATIENCE_SECONDS = 60.0
_MESSAGE_BYTES = 1 << 16
GO = b"g"
TERMINATE = b"t"
KILL = b"k"
"""Orders of the supervisor to the init: one byte each."""

_PAUSE_MILLISECONDS = 2


class StartFailed(Exception):
    """The task cannot be started here."""


class Child:
    """A task's init and its command, as their supervisor sees them."""

    def __init__(self, line: _socket.socket, first_pid: int, sandbox: Sandbox | None) -> None:
        self._line = line
        self._heard: list[tuple[dict[str, Any], int]] = []
        self._first_pid = first_pid
        self._sandbox = sandbox
        self.init_pid = 0
        self.command_pid = 0
        self.command_ticks = 0
        self.namespaces: dict[str, int] = {}
        """Descriptors of the task's namespaces, by kind: for processes that enter them."""
        self.refused: dict[str, str] = {}
        """Control groups that did not let the command in, and why."""
        self.unenforced: dict[str, str] = {}
        self.cpu_seconds = 0.0
        self.largest_process_bytes = 0

    def fileno(self) -> int:
        """Readable when it has something to say; see `is_running`."""
        return self._line.fileno()

    def is_running(self) -> bool | None:
        """True when the init has just said that the command was run; None when it will say no more."""
        try:
            message = self._line.recv(_MESSAGE_BYTES, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return None  # it was killed with an order unread
        return b'"running"' in message if message else None

    def tell(self, order: bytes) -> None:
        """Send `init.GO`, `TERMINATE` or `KILL`; nothing happens when the init is gone."""
        try:
            self._line.send(order)
        except OSError:
            return  # its end is seen elsewhere

    def destroy(self) -> None:
        """Kill the init, and in a PID namespace everything with it."""
        if self.init_pid:
            processes.kill(self.init_pid)

    def ended(self, *, wait: bool = False) -> bool:
        """True once the init is gone, and with it the task."""
        if not self.init_pid:
            return True
        pid, _, usage = os.wait4(self.init_pid, 0 if wait else os.WNOHANG)
        if pid == 0:
            return False
        self.init_pid = 0
        self.cpu_seconds = usage.ru_utime + usage.ru_stime
        self.largest_process_bytes = usage.ru_maxrss * 1024
        return True

    def close(self) -> None:
        """Let go of its namespaces and its place in the sandbox."""
        for descriptor in self.namespaces.values():
            os.close(descriptor)
        self.namespaces = {}
        self._line.close()
        if self._sandbox is not None:
            self._sandbox.leave()
            self._sandbox = None

    def hear(self, granted: list[str]) -> dict[str, str]:
        """Follow its birth until the command is ready; the isolations that are to be done without.

        Raises:
            StartFailed: it will never be.
        """
        ready = False
        while not (ready and self.command_pid):
            message, pid = self._receive()
            if "ungranted" in message or "failed" in message or not message:
                self._bury()
                if "ungranted" in message:
                    return message["ungranted"]
                raise StartFailed(message.get("failed", "its processes ended before they began"))
            if "init" in message:
                self._born(pid)
            elif "command" in message:
                self.command_pid, self.command_ticks = pid, processes.start_ticks(pid)
                self.refused = message["refused"]
                if message["privileged"]:
                    self.unenforced["privileges"] = message["privileged"]
            else:
                ready = True
                self.unenforced |= message["ready"]
                self._open_namespaces(granted)
        if self._sandbox is not None:
            self._sandbox.unlock()
        return {}

    def _receive(self) -> tuple[dict[str, Any], int]:
        """The next message and the sender's pid as we see it; empty when there will be none."""
        if not self._heard:
            waiting = select.poll()
            waiting.register(self._line.fileno(), select.POLLIN)
            if not waiting.poll(_PATIENCE_SECONDS * 1000):
                return {"failed": f"it did not answer for {_PATIENCE_SECONDS:g} s"}, 0
            # the kernel never joins what two senders wrote
            document, extra, _, _ = self._line.recvmsg(_MESSAGE_BYTES, 64)
            sender = int.from_bytes(extra[0][2][:4], sys.byteorder) if extra else 0
            for message in map(files.parse_json, document.splitlines()):
                own = int(message.get("init") or message.get("command") or 0)
                self._heard.append((message, sender or own))
        return self._heard.pop(0) if self._heard else ({}, 0)

    def _born(self, pid: int) -> None:
        self.init_pid = pid
        if self._first_pid != pid:
            os.waitpid(self._first_pid, 0)
        self._first_pid = 0

    def _open_namespaces(self, granted: list[str]) -> None:
        for kind in namespaces.kinds(granted):
            # later the init can no longer be looked into
            self.namespaces[kind] = os.open(
                f"/proc/{self.init_pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC
            )
        if self._sandbox is not None:
            self._sandbox.join(self.namespaces)

    def _bury(self) -> None:
        if self._first_pid:
            processes.kill(self._first_pid)
            os.waitpid(self._first_pid, 0)
        self.destroy()
        self.ended(wait=True)
        self.close()


def bear(
    plan: Plan, groups: Groups, status: files.Status, output: int, own: tuple[int, ...] = ()
) -> Child:
    """Start everything but the command, which waits for `init.GO`. `own` are descriptors that only the
    supervisor may have.

    Raises:
        StartFailed: with the reason, and nothing is left.
    """
    groups.create(plan.limits)
    if "processes" not in plan.names:
        groups.create_killing()
    faults.point("supervisor.cgroups.created")
    missing = _unlimited(plan, groups)
    if not syscalls.available():
        missing |= dict.fromkeys(plan.names, f"needs Linux, this is {sys.platform}")
    plan.make_private_folders()
    while True:
        granted = [name for name in plan.names if name not in missing or name == "pids"]
        plan.process_limit = None
        if "pids" in groups.failed and namespaces.counts_processes(granted):
            plan.process_limit = plan.limits.get("pids")
            missing.pop("pids", None)
        if plan.strict and missing:
            raise StartFailed(_refusal(missing))
        if "network" in granted and not plan.sandbox:
            missing["network"] = "the job has no sandbox folder on this machine"
            continue
        child = _fork(plan, granted, groups, status, output, own)
        ungranted = child.hear(granted)
        if not ungranted:
            break
        missing |= ungranted
        if "processes" in ungranted:
            groups.create_killing()
    for folder, why in child.refused.items():
        groups.refuse(folder, why)
    unlimited = _unlimited(plan, groups)
    if plan.process_limit is not None:
        unlimited.pop("pids", None)
    child.unenforced |= missing | unlimited
    if plan.strict and child.unenforced:
        child.destroy()
        child.ended(wait=True)
        child.close()
        raise StartFailed(_refusal(child.unenforced))
    return child


def _unlimited(plan: Plan, groups: Groups) -> dict[str, str]:
    """Limits that are set and not held by the kernel."""
    missing = {name: why for name, why in groups.failed.items() if name in plan.names}
    if "memory" in missing:
        missing["memory"] += "; its supervisor watches it instead"
    return missing


def _refusal(missing: dict[str, str]) -> str:
    reasons = "; ".join(f"{name}: {why}" for name, why in missing.items())
    return f"isolation strict cannot be had on this machine ({reasons})"


def _fork(
    plan: Plan,
    granted: list[str],
    groups: Groups,
    status: files.Status,
    output: int,
    own: tuple[int, ...],
) -> Child:
    sandbox = Sandbox(plan.sandbox) if "network" in granted else None
    join: dict[str, int] = {}
    if sandbox is not None:
        sandbox.lock()
        join = sandbox.members()
    line, inner = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if syscalls.available():
        line.setsockopt(_socket.SOL_SOCKET, _socket.SO_PASSCRED, 1)
    entrances = groups.entrances()
    pid = os.fork()
    if pid == 0:
        line.close()
        for descriptor in own:
            os.close(descriptor)
        try:
            begin(Birth(plan, granted, inner, status, output, entrances, join))
        except BaseException as error:  # noqa: BLE001 (nothing may go on in the supervisor's name)
            sys.excepthook(type(error), error, error.__traceback__)
            tell(inner, {"failed": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(70)
    inner.close()
    for descriptor in (*entrances.values(), *join.values()):
        os.close(descriptor)
    faults.point("supervisor.forked")
    return Child(line, pid, sandbox)


class Birth:
    """What a new init is given."""

    def __init__(
        self,
        plan: Plan,
        granted: Collection[str],
        line: _socket.socket,
        status: files.Status,
        output: int,
        entrances: dict[str, int],
        join: dict[str, int],
    ) -> None:
        self.plan = plan
        self.granted = granted
        """The isolations to set up by namespaces and mounts."""
        self.line = line
        """The init's end of the socket to the supervisor."""
        self.status = status
        self.output = output
        """Where the command's standard output and error go."""
        self.entrances = entrances
        """See `cgroups.Groups.entrances`."""
        self.join = join
        """Namespaces to enter rather than make."""


def begin(birth: Birth) -> NoReturn:
    """Leave the namespaces and become the init or its parent; never returns."""
    try:
        os.chdir("/")
        namespaces.leave(birth.granted, birth.join)
        if "network" in birth.granted and "net" not in birth.join:
            sandbox.loopback_up()
        if "processes" not in birth.granted or os.fork() == 0:
            _run(birth)
    except namespaces.Ungranted as refusal:
        tell(birth.line, {"ungranted": refusal.reasons})
    except OSError as error:
        tell(birth.line, {"failed": f"{error.filename or 'fork'}: {error.strerror}"})
    os._exit(0)


def tell(line: _socket.socket, message: dict[str, Any]) -> None:
    """Say something to the supervisor; nothing happens when it is gone."""
    try:
        line.sendall(files.format_json(message).encode() + b"\n")
    except OSError:
        return  # the supervisor is gone, which is seen where its orders are awaited


def _run(birth: Birth) -> NoReturn:
    """The init's life."""
    if syscalls.available():
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)  # what process 1 of a namespace is anyway
    try:
        tell(birth.line, {"init": os.getpid()})
        failed = _mounted(birth)
        if "processes" in failed:
            # a PID namespace without its /proc is worse than none
            tell(birth.line, {"ungranted": failed})
            os._exit(0)
        private_tmp = "tmp" in birth.granted and "tmp" not in failed
        _Init(birth, _Command(birth, private_tmp), failed).live()
    except OSError as error:
        tell(birth.line, {"failed": f"{error.filename or 'init'}: {error.strerror}"})
    os._exit(1)


def _mounted(birth: Birth) -> dict[str, str]:
    """Arrange the mounts; the isolations that failed."""
    wanted = [name for name in namespaces.MOUNT_NAMES if name in birth.granted]
    if not wanted:
        return {}
    try:
        return mounts.apply(birth.plan.view(birth.granted))
    except OSError as error:
        return dict.fromkeys(wanted, f"{error.filename}: {error.strerror}")


class _Command:
    """The command's process, held back until `release`."""

    def __init__(self, birth: Birth, private_tmp: bool) -> None:
        gate, self._gate = os.pipe()
        self.errors, errors = os.pipe()
        """Readable when it has been run (end of file) or cannot be."""
        init_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            refused = command.prepare(birth.entrances, birth.output)
            privileged = command.drop_privileges(birth.plan)
            tell(birth.line, {"command": os.getpid(), "refused": refused, "privileged": privileged})
            if os.read(gate, 1):  # end of file: the init is gone
                command.become(birth.plan, init_pid, private_tmp, lambda data: os.write(errors, data))
            os._exit(126)
        for descriptor in (gate, errors):
            os.close(descriptor)

    def release(self) -> None:
        """Let it become the command."""
        os.write(self._gate, b"1")
        os.close(self._gate)

    def failure(self) -> dict[str, Any] | None:
        """Why it could not be run, or None. Waits until that is known."""
        document = os.read(self.errors, 1 << 16)
        os.close(self.errors)
        self.errors = -1
        return files.parse_json(document) if document else None


class _Init:
    """Waits for what comes: orders, the command's end, the supervisor's."""

    def __init__(self, birth: Birth, child: _Command, failed: dict[str, str]) -> None:
        self._line = birth.line
        self._status = birth.status
        self._command = child
        self._terminating = False
        self._own_namespace = os.getpid() == 1
        self._wakeup = _wake_on_children()
        os.close(birth.output)
        tell(birth.line, {"ready": failed})

    def live(self) -> NoReturn:
        """Until the command has ended, or the supervisor has gone."""
        waiting = select.poll()
        for source in (self._line.fileno(), self._wakeup, self._command.errors):
            waiting.register(source, select.POLLIN)
        while True:
            for source, _ in waiting.poll():
                if source == self._line.fileno():
                    self._obey(self._line.recv(1))
                elif source == self._command.errors:
                    waiting.unregister(source)
                    self._note_start()
                else:
                    os.read(self._wakeup, 4096)
            self._reap()

    def _obey(self, order: bytes) -> None:
        if order == GO:
            if syscalls.available():
                # from here on the task's processes are there, and must not look into this one
                syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
            self._command.release()
        elif order == TERMINATE:
            # before the command is run this process' own code is there, to which it means nothing
            self._terminating = True
            if self._command.errors < 0:
                self._terminate()
        elif order == KILL:
            self._kill_all()
        else:
            self._reap()  # an exit that has already happened counts
            self._end()

    def _note_start(self) -> None:
        """The command has been run, or cannot be."""
        failure = self._command.failure()
        if failure is not None:
            self._status.record(failure)
            self._end()
        tell(self._line, {"running": True})
        if self._terminating:
            self._terminate()

    def _terminate(self) -> None:
        self._signal_group(signal.SIGTERM)
        self._signal_group(signal.SIGCONT)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._command.pid:
                self._command_ended(status)

    def _command_ended(self, status: int) -> None:
        if self._command.errors >= 0:
            self._note_start()
        code = os.waitstatus_to_exitcode(status)
        self._status.record({"exit_code": code if code >= 0 else 128 - code, "signal": max(0, -code)})
        faults.point("supervisor.init.status.recorded")
        self._end()

    def _end(self) -> NoReturn:
        """Kill all, then exit: when our descriptors (the lock) are free, no process is left."""
        self._kill_all()
        while processes.reap():
            select.poll().poll(_PAUSE_MILLISECONDS)
            self._kill_all()
        os._exit(0)

    def _kill_all(self) -> None:
        if self._own_namespace:
            processes.kill(-1)
            return
        self._signal_group(signal.SIGKILL)
        for pid in processes.descendants(os.getpid()):
            processes.kill(pid)

    def _signal_group(self, number: int) -> None:
        processes.kill(-self._command.pid, number)


def _wake_on_children() -> int:
    """A descriptor that is readable when a child has ended. All other signals have no effect: process 1
    receives only those that it handles, and outside a namespace they are ignored."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _heard)
    signal.set_wakeup_fd(writer)
    return reader


def _heard(number: int, frame: object) -> None:
    pass
