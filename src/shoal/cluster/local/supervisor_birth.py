"""Brings a task's processes to life: control groups, namespaces, init, and the command held back.

What the machine does not grant is found by asking for it. The kernel's refusal names an isolation; a
default task is then started again without it and says so, a strict one fails with the reasons.
"""

from __future__ import annotations

import _socket
import os
import select
import sys

from shoal import faults
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_init as init
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import namespaces, syscalls
from shoal.cluster.local.isolation.sandbox import Sandbox

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from typing import Any

    from shoal.cluster.local.isolation.cgroups import Groups
    from shoal.cluster.local.supervisor_plan import Plan

__all__ = ["Child", "StartFailed", "bear"]

_PATIENCE_SECONDS = 60.0
_MESSAGE_BYTES = 1 << 16


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
            init.begin(init.Birth(plan, granted, inner, status, output, entrances, join))
        except BaseException as error:  # noqa: BLE001 (nothing may go on in the supervisor's name)
            sys.excepthook(type(error), error, error.__traceback__)
            init.tell(inner, {"failed": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(70)
    inner.close()
    for descriptor in (*entrances.values(), *join.values()):
        os.close(descriptor)
    faults.point("supervisor.forked")
    return Child(line, pid, sandbox)
