"""The last steps before a task's command runs, in the process that becomes it.

Everything here happens after the fork and before the exec, in this order: a session of its own, its
control groups, its standard streams, its privileges, then a wait until the supervisor knows it and lets
it go; then its signals, its folder and the command. What fails from there on is reported to the init
in one message, and ends the task with 127 (no such command), 126 (it cannot be run) or as a failed
start.
"""

from __future__ import annotations

import errno
import os

from shoal.cluster.local import supervisor_files as files
from shoal.cluster.local.isolation import privileges, syscalls
from shoal.cluster.local.isolation.privileges import Unsupported

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, NoReturn

    from shoal.cluster.local.supervisor_plan import Plan
else:
    import _signal as signal  # signal's other half is enums, which cost more than all else here

_OOM_SCORE = "300"
"""How much rather the kernel should take a task than an agent when the whole machine is short."""

_MESSAGE_CHARACTERS = 300
"""With every character escaped this still fits into the task's status."""


class CannotRun(Exception):
    """The command cannot be started."""

    def __init__(self, exit_code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.reason = reason


def prepare(entrances: dict[str, int], output: int) -> dict[str, str]:
    """Everything that may be done before the supervisor knows of this process; the control groups that
    did not let it in, and why."""
    os.setsid()
    # what is sent from now on waits until it can do what it would do to the command
    signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 32))
    refused: dict[str, str] = {}
    for folder, entrance in entrances.items():
        try:
            os.write(entrance, b"0")
        except OSError as error:
            refused[folder] = f"{folder}: {error.strerror}"
    _write_quietly("/proc/self/oom_score_adj", _OOM_SCORE)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    return refused


def drop_privileges(plan: Plan) -> str:
    """Give up what the task must not have; why that cannot be done, or empty."""
    if not syscalls.available() or "privileges" not in plan.names:
        return ""
    try:
        privileges.drop()
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except Unsupported as error:
        return str(error)
    return ""


def _limit_processes(most: int | None) -> None:
    """Where no control group counts them; see `Plan.process_limit`."""
    if most is not None:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def become(plan: Plan, init_pid: int, private_tmp: bool, report: Callable[[bytes], object]) -> NoReturn:
    """Turn into the command; where that fails, report why and end."""
    try:
        reset_signals()
        _follow_to_death(init_pid)
        env = environment(plan, private_tmp)
        enter_folder(plan.cwd)
        env["PWD"] = plan.cwd
        _limit_processes(plan.process_limit)
        find(plan.argv, env)
    except CannotRun as failure:
        report(files.format_json(failure_record(failure)).encode())
    except OSError as error:
        failure = CannotRun(126, "StartFailed", f"the command cannot be isolated: {error}")
        report(files.format_json(failure_record(failure)).encode())
    os._exit(126)


def failure_record(failure: CannotRun) -> dict[str, Any]:
    """What is noted of a command that was never run."""
    return {
        "exit_code": failure.exit_code,
        "reason": failure.reason,
        "message": str(failure)[:_MESSAGE_CHARACTERS],
    }


def find(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Run the command, looked up in PATH as a shell does.

    Raises:
        CannotRun: with one sentence that says why.
    """
    name = argv[0]
    path = env.get("PATH", os.defpath)
    folders = [""] if "/" in name else [f"{part or '.'}/" for part in path.split(":")]
    refusal: OSError | None = None
    for folder in folders:
        try:
            os.execve(folder + name, argv, env)
        except ValueError as error:
            raise CannotRun(126, "CommandNotFound", f"the command cannot be run: {error}") from error
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR) and not _exists(folder + name):
                continue
            error.filename = folder + name
            # as shells do, look on for one that may be run
            refusal = refusal or error
            if error.errno != errno.EACCES:
                break
    if refusal is None:
        where = "" if "/" in name else " in PATH"
        raise CannotRun(127, "CommandNotFound", f"command not found{where}: {name}")
    raise _refused(refusal)


def environment(plan: Plan, private_tmp: bool) -> dict[str, str]:
    """What the command finds in its environment, with a TMPDIR that is there."""
    env = dict(plan.env)
    if not private_tmp:
        env["TMPDIR"] = f"{plan.private}/tmp"
    elif "TMPDIR" in env and not os.path.isdir(env["TMPDIR"]):
        del env["TMPDIR"]  # it was in the machine's /tmp
    return env


def enter_folder(cwd: str) -> None:
    """Go to the working directory.

    Raises:
        CannotRun: it is not there, or not for us.
    """
    try:
        os.chdir(os.path.realpath(cwd))
    except OSError as error:
        message = f"the working directory {cwd} cannot be used: {error.strerror}"
        raise CannotRun(126, "CommandNotFound", message) from error


def reset_signals() -> None:
    """Leave no signal ignored, handled or blocked: those would be inherited."""
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _follow_to_death(init_pid: int) -> None:
    """Die when the init does. In a PID namespace it takes everything with it anyway."""
    if not syscalls.available():
        return
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != init_pid:
        os._exit(126)  # it died before we asked


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _refused(error: OSError) -> CannotRun:
    path = error.filename
    reasons = {
        errno.EACCES: "it is a folder" if os.path.isdir(path) else "it is not executable (chmod +x)",
        errno.ENOEXEC: "it is no program, and its first line does not name one (#!/bin/sh)",
        errno.ENOENT: "the interpreter that it names is not there",
        errno.E2BIG: "its arguments and environment are too long",
    }
    why = reasons.get(error.errno or 0, error.strerror)
    if error.errno == errno.ENOENT and os.path.islink(path) and not os.path.exists(path):
        why = "it is a link to nothing"
    return CannotRun(126, "CommandNotFound", f"{path} cannot be run: {why}")


def _write_quietly(path: str, text: str) -> None:
    """Where the kernel has no such file, or refuses, the task runs without."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, text.encode())
    except OSError:
        return
    finally:
        os.close(descriptor)
