"""Leaves the machine's namespaces for the task's own.

Root needs no more than the calls. Anybody else first makes a user namespace in which only that one
user exists, as themselves: `id -u` and the owners of files stay what they were, groups that grant
access go on granting it, and the capabilities held over the new namespace end with the next program.

What fails is reported by the name of the isolation that needed it, so that the caller can start again
without: a process cannot go back.
"""

from __future__ import annotations

import os

from shoal.cluster.local.isolation import privileges, syscalls

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Collection

PROMISES = {
    "processes": "it sees only its own processes, in a PID namespace and a /proc of its own",
    "tmp": "/tmp, /var/tmp and /dev/shm of its own",
    "home": "of $SHOAL_HOME it sees only its own folders and the tasks' socket",
    "ipc": "System V and POSIX message queues and shared memory of its own",
    "privileges": "run by root it cannot mount, trace, load modules or otherwise undo the rest; run by "
    "any user, it gains nothing by set-user-id programs, makes no user namespaces, uses no kernel "
    "keyrings and writes neither control groups nor the kernel's settings",
    "cpu": "CPU by weight, and a hard quota where one is set",
    "memory": "a hard limit on memory where one is set",
    "pids": "a limit on how many processes and threads it has",
    "network": "a network with nothing but a loopback, shared by the job's tasks on this machine",
    "system": "everything but its own folders is read-only; /run, /dev and the kernel's settings are "
    "out of reach",
    "devices": "the device files of its own GPUs and of no others",
}
"""What each isolation gives a task."""

STRICT = tuple(PROMISES)
"""All of them, none of which may be missing."""

DEFAULT = tuple(name for name in PROMISES if name not in ("network", "system", "devices"))
"""What a task gets, as far as it can be had, unless it asks for more."""
MOUNT_NAMES = ("processes", "tmp", "home", "system", "devices")
"""Isolations that are made of mounts."""

KINDS = {
    "user": syscalls.CLONE_NEWUSER,
    "net": syscalls.CLONE_NEWNET,
    "mnt": syscalls.CLONE_NEWNS,
    "ipc": syscalls.CLONE_NEWIPC,
    "uts": syscalls.CLONE_NEWUTS,
    "pid": syscalls.CLONE_NEWPID,
}
"""Names in /proc/PID/ns, in the order in which they are to be entered."""

_KNOBS = (
    ("user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1",
    ),
)


class Ungranted(Exception):
    """Some isolations cannot be had; start again without them."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in reasons.items()))
        self.reasons = reasons


def kinds(names: Collection[str]) -> list[str]:
    """Kinds of namespaces that `leave` leaves for these isolations, in the order of entering them."""
    wanted = _flags(names)
    if wanted and not privileges.sufficient():
        wanted["user"] = ""
    return [kind for kind in KINDS if kind in wanted]


def counts_processes(names: Collection[str]) -> bool:
    """True when RLIMIT_NPROC counts the task's processes alone: in a user namespace of its own (since
    Linux 5.14 each counts for itself), unless root runs it: root is exempt."""
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    return os.geteuid() != 0 and "user" in kinds(names) and release >= (5, 14)


def leave(names: Collection[str], join: dict[str, int] | None = None) -> None:
    """Leave the namespaces that these isolations need left. A PID namespace begins with the next child.

    `join` names descriptors of namespaces to enter instead of making new ones.

    Raises:
        Ungranted: the kernel refuses; this process is then of no more use.
    """
    wanted = _flags(names)
    if not wanted:
        return
    entered = join or {}
    made = dict(wanted)
    user = not privileges.sufficient()
    try:
        for kind in ("user", "net"):
            if kind in entered:
                syscalls.setns(entered[kind], KINDS[kind])
                made.pop(kind, None)
        if user and "user" not in entered:
            uid, gid = os.geteuid(), os.getegid()
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            _map(uid, gid)
    except OSError as error:
        why = _why_no_user_namespace() if user else ""
        raise Ungranted(dict.fromkeys(_users(names), why or _reason(error))) from error
    try:
        syscalls.unshare(sum(KINDS[kind] for kind in made))
    except OSError:
        raise Ungranted(_refused(names, made, user)) from None


def _flags(names: Collection[str]) -> dict[str, str]:
    """Kinds of namespaces, each with the first isolation that needs it."""
    wanted: dict[str, str] = {}
    for name in names:
        kinds = ("mnt",) if name in MOUNT_NAMES else ()
        kinds += {"processes": ("pid",), "ipc": ("ipc",), "network": ("net",), "system": ("uts",)}.get(
            name, ()
        )
        for kind in kinds:
            wanted.setdefault(kind, name)
    return wanted


def _users(names: Collection[str]) -> list[str]:
    return [name for name in names if _flags((name,))]


def _map(uid: int, gid: int) -> None:
    lines = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
    for name, line in lines.items():
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _refused(names: Collection[str], made: dict[str, str], user: bool) -> dict[str, str]:
    """Which of them it was: each tried alone, now that this process is of no use anyway."""
    reasons: dict[str, str] = {}
    for kind in made:
        try:
            syscalls.unshare(KINDS[kind])
        except OSError as error:
            why = (_why_no_user_namespace() if user else "") or _reason(error)
            reasons.update({name: why for name in names if kind in _flags((name,))})
    # a namespace that can be had alone but not with the others is not worth another attempt
    return reasons or dict.fromkeys(_users(names), "the kernel grants no such namespaces together")


def _why_no_user_namespace() -> str:
    for path, value, why in _KNOBS:
        try:
            with open(f"/proc/sys/{path}", encoding="ascii") as file:
                if file.read().strip() == value:
                    return f"{why}, so only root can have it"
        except OSError:
            continue
    return ""


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"
