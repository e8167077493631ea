"""A program that runs a command beside a task: `python -I -S enter.py [--tty] FOLDER COMMAND...`.

The command gets the task's namespaces, control groups, environment, working directory and (lack of)
privileges, and this program's standard streams; with `--tty` the first of them, a terminal, becomes the
one that controls it. The exit code is the command's (128 + signal), 127 or 126 when it cannot be run,
and 125 when the task does not run. SIGHUP, SIGINT and SIGTERM are handed on to the command's process
group; the command ends with the task, and when this program is killed.
"""

from __future__ import annotations

import os
import select
import sys

if __name__ == "__main__":
    sys.path.append(__file__.removesuffix("/shoal/cluster/local/isolation/enter.py"))

from shoal.cluster.local import supervisor_command as command
from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local import supervisor_processes as processes
from shoal.cluster.local.isolation import cgroups, namespaces, syscalls
from shoal.cluster.local.supervisor_plan import Plan

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    import _signal as signal

NO_TASK = 125
"""Exit code when there is no such task, or it has ended."""

_HANDED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_TIOCSCTTY = 0x540E


def main(arguments: list[str]) -> int:
    """See the module."""
    tty = arguments[0] == "--tty"
    folder, *words = arguments[1:] if tty else arguments
    started = files.read(folder, "started.json")
    launch = files.read(folder, "launch.json")
    if started is None or launch is None or not words:
        return _no_task()
    plan = Plan(folder, launch)
    plan.argv = words
    try:
        supervisor = os.pidfd_open(started["supervisor_pid"])
        if not processes.alive(started["supervisor_pid"], started["supervisor_start_ticks"]):
            return _no_task()
        entrances = [
            os.open(f"{path}/{cgroups.INNER}/cgroup.procs", os.O_WRONLY) for path in started["cgroups"]
        ]
        _enter(started)
    except OSError as error:
        if error.errno in (2, 3):  # ENOENT, ESRCH: it has just ended
            return _no_task()
        sys.stderr.write(f"shoal: the task's isolation cannot be entered: {error}\n")
        return NO_TASK
    # a signal that comes before its handler is there waits for it
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDED_ON)
    child = os.fork()
    if child == 0:
        _become(plan, started, entrances, tty=tty)
    return _attend(child, supervisor)


def _no_task() -> int:
    sys.stderr.write("shoal: the task does not run\n")
    return NO_TASK


def _enter(started: dict[str, Any]) -> None:
    """Enter the namespaces that the supervisor has open. The PID namespace is for the next child."""
    folder = f"/proc/{started['supervisor_pid']}/fd"
    held: dict[str, int] = started["namespaces"]
    opened = {kind: os.open(f"{folder}/{number}", os.O_RDONLY) for kind, number in held.items()}
    # the task's processes must not look into one that has more than they
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    for kind, flag in namespaces.KINDS.items():
        if kind in opened:
            syscalls.setns(opened[kind], flag)


def _become(plan: Plan, started: dict[str, Any], entrances: list[int], *, tty: bool) -> NoReturn:
    lacking = {entry.partition(":")[0] for entry in started["unenforced"]}
    try:
        os.setsid()
        env = command.environment(plan, "tmp" in plan.names and "tmp" not in lacking)
        if tty:
            import fcntl

            fcntl.ioctl(0, _TIOCSCTTY, 0)
            env.setdefault("TERM", os.environ.get("TERM", "xterm-256color"))
        for entrance in entrances:
            os.write(entrance, b"0")
        if "privileges" not in lacking:
            command.drop_privileges(plan)
        command.reset_signals()
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        command.enter_folder(plan.cwd)
        env["PWD"] = plan.cwd
        command.find(plan.argv, env)
    except command.CannotRun as failure:
        sys.stderr.write(f"shoal: {failure}\n")
        sys.stderr.flush()
        os._exit(failure.exit_code)
    except OSError as error:
        sys.stderr.write(f"shoal: the command cannot be isolated: {error}\n")
        sys.stderr.flush()
        os._exit(126)


def _attend(child: int, supervisor: int) -> int:
    """Wait for the command's end, or the task's, which is the command's too."""
    for number in _HANDED_ON:
        signal.signal(number, lambda sent, _: processes.kill(-child, sent))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDED_ON)
    waiting = select.poll()
    running = os.pidfd_open(child)
    waiting.register(running, select.POLLIN)
    waiting.register(supervisor, select.POLLIN)
    if running not in [source for source, _ in waiting.poll()]:
        processes.kill(-child)
        processes.kill(child)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
