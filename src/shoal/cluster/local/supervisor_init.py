"""The init of a task: between the supervisor and the command, process 1 where there is a namespace.

It stands in the task's isolation, while the supervisor stays outside. It starts the command, reaps what
is orphaned, and when the command has ended notes how before anything else: from then on no death of
anybody loses the exit. Then everything left behind is killed, before the init ends and lets go of what
it holds.

The socket to the supervisor is its lifeline: when its other end is gone, so is the supervisor, and the
task is ended, unless the command had ended before. A task's own processes cannot reach the init: it has
no signal handlers but for its children, and it cannot be traced or looked into.

Two steps lead here: the supervisor forks a process that leaves the machine's namespaces, and that one
forks the init (only a child is born into a new PID namespace) and ends. Without one it is the init.
"""

from __future__ import annotations

import os
import select

from shoal import faults
from shoal.cluster.local import supervisor_command as command
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import mounts, namespaces, sandbox, syscalls

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import _socket
    import signal
    from collections.abc import Collection
    from typing import Any, NoReturn

    from shoal.cluster.local.supervisor_plan import Plan
else:
    import _signal as signal

__all__ = ["GO", "KILL", "TERMINATE", "Birth", "begin", "tell"]

GO = b"g"
TERMINATE = b"t"
KILL = b"k"
"""Orders of the supervisor to the init: one byte each."""

_PAUSE_MILLISECONDS = 2


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
