"""What a task may not do although root runs it: everything that could undo its isolation.

Root keeps what root in a container has (files, ids, ports, `chroot`), locking memory (RDMA) and
scheduling (NUMA), and loses the rest for good: it leaves the bounding set, so no program regains it.
In a user namespace of its own a root task may hold every capability, over that namespace alone: the
mounts it inherits there are locked.

A task that another user runs has nothing to lose. In a user namespace its set-user-id programs (sudo)
do not work, for nobody but the user exists there; without one they do, unless the mode is strict.
"""

from __future__ import annotations

from shoal.cluster.local.isolation import syscalls

__all__ = ["KEPT", "drop", "sufficient"]

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP = 0, 1, 3, 4, 5, 6, 7, 8
_NET_BIND_SERVICE, _NET_RAW, _IPC_LOCK, _SYS_CHROOT, _SYS_ADMIN = 10, 13, 14, 18, 21
_SYS_NICE, _AUDIT_WRITE, _SETFCAP = 23, 29, 31

KEPT = frozenset({
    _CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE,
    _NET_RAW, _IPC_LOCK, _SYS_CHROOT, _SYS_NICE, _AUDIT_WRITE, _SETFCAP,
})  # fmt: skip
"""Numbers of the capabilities that a root task keeps."""


def sufficient() -> bool:
    """True when this process may make namespaces and mounts without a user namespace."""
    return bool(syscalls.capabilities()[0] >> _SYS_ADMIN & 1)


def drop(strict: bool) -> None:
    """Give up what a task must not have. `strict` also forbids to gain anything by a set-user-id
    program.

    Raises:
        OSError: the kernel lets us keep what we want to give up.
    """
    if strict:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    effective, permitted, _ = syscalls.capabilities()
    if permitted == 0:
        return
    for number in range(64):
        if number in KEPT:
            continue
        try:
            syscalls.prctl(syscalls.PR_CAPBSET_DROP, number)
        except OSError as error:
            if error.errno == 22:  # EINVAL: this kernel has no more of them
                break
            raise
    kept = sum(1 << number for number in KEPT)
    syscalls.prctl(syscalls.PR_CAP_AMBIENT, syscalls.PR_CAP_AMBIENT_CLEAR_ALL)
    syscalls.set_capabilities(effective & kept, permitted & kept, 0)
