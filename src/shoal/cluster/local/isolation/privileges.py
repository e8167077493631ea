"""What a task may not do although root runs it: everything that could undo its isolation.

Root keeps what it needs to handle files and ids, to bind low ports, to `chroot` and to lock memory
(RDMA), and loses the rest for good: it leaves the bounding set, so no program regains it. Raw sockets
(CAP_NET_RAW) would read other people's tokens from the loopback, and scheduling (CAP_SYS_NICE) would
evade the CPU quota. In a user namespace of its own a root task may hold every capability, over that
namespace alone: the mounts it inherits there are locked.

Whether root runs it or not, a task gains nothing by a set-user-id program (no_new_privs), has a session
keyring of its own, and is held to `filter`.
"""

from __future__ import annotations

from shoal.cluster.local.isolation import filter as system_calls
from shoal.cluster.local.isolation import syscalls

__all__ = ["KEPT", "drop", "sufficient"]

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP = 0, 1, 3, 4, 5, 6, 7, 8
_NET_BIND_SERVICE, _IPC_LOCK, _SYS_CHROOT, _SYS_ADMIN, _SETFCAP = 10, 14, 18, 21, 31

KEPT = frozenset({
    _CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE,
    _IPC_LOCK, _SYS_CHROOT, _SETFCAP,
})  # fmt: skip
"""Numbers of the capabilities that a root task keeps."""


def sufficient() -> bool:
    """True when this process may make namespaces and mounts without a user namespace."""
    return bool(syscalls.capabilities()[0] >> _SYS_ADMIN & 1)


def drop() -> None:
    """Give up what a task must not have.

    Raises:
        OSError: the kernel lets us keep what we want to give up, or has no filters.
        Unsupported: see `filter.install`.
    """
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    syscalls.new_session_keyring()
    _drop_capabilities()
    system_calls.install()


def _drop_capabilities() -> None:
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
