"""What a task may not do although root runs it: everything that could undo its isolation.

Root keeps what it needs to handle files and ids, to bind low ports, to `chroot` and to lock memory
(RDMA), and loses the rest for good: it leaves the bounding set, so no program regains it. Raw sockets
(CAP_NET_RAW) would read other people's tokens from the loopback, and scheduling (CAP_SYS_NICE) would
evade the CPU quota. In a user namespace of its own a root task may hold every capability, over that
namespace alone: the mounts it inherits there are locked.

Whether root runs it or not, a task gains nothing by a set-user-id program (no_new_privs), has a session
keyring of its own, and is held to a filter of system calls
(`install`), as container runtimes have one. It refuses what would let a task step out of its isolation
or meet other tasks where the kernel has no namespaces: user and control group namespaces (in one, a task
that root runs holds every capability and may mount the control group file system), kernel keyrings (one
per user, not per task), kernel code (bpf, modules, kexec) and userfaultfd. `clone3` is answered as if
the kernel had none, because a filter cannot see its flags; the C library then uses `clone`. Programs of
another architecture (32 bits) do not run. The program is classic BPF: instructions of 8 bytes.
"""

from __future__ import annotations

import os
import sys

from shoal.cluster.local.isolation import syscalls

_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP = 0, 1, 3, 4, 5, 6, 7, 8
_NET_BIND_SERVICE, _IPC_LOCK, _SYS_CHROOT, _SYS_ADMIN, _SETFCAP = 10, 14, 18, 21, 31

KEPT = frozenset({
    _CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID, _SETPCAP, _NET_BIND_SERVICE,
    _IPC_LOCK, _SYS_CHROOT, _SETFCAP,
})  # fmt: skip
"""Numbers of the capabilities that a root task keeps."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | 1  # EPERM
_UNKNOWN = 0x00050000 | 38  # ENOSYS
_NAMESPACES = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWCGROUP
_CLONE3 = 435
_X32 = 0x40000000

_MACHINES = {
    "x86_64": (0xC000003E, {"clone": 56, "unshare": 272}, {
        "add_key": 248, "request_key": 249, "keyctl": 250, "kexec_load": 246, "kexec_file_load": 320,
        "init_module": 175, "finit_module": 313, "delete_module": 176, "bpf": 321, "userfaultfd": 323,
        "open_by_handle_at": 304, "swapon": 167, "swapoff": 168, "reboot": 169, "acct": 163,
    }),
    "aarch64": (0xC00000B7, {"clone": 220, "unshare": 97}, {
        "add_key": 217, "request_key": 218, "keyctl": 219, "kexec_load": 104, "kexec_file_load": 294,
        "init_module": 105, "finit_module": 273, "delete_module": 106, "bpf": 280, "userfaultfd": 282,
        "open_by_handle_at": 265, "swapon": 224, "swapoff": 225, "reboot": 142, "acct": 89,
    }),
}  # fmt: skip
"""Architecture to audit number, calls refused by their first argument, and calls always refused."""


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
    install()


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


class Unsupported(Exception):
    """This architecture has no table of system calls here."""


def install() -> None:
    """Hold this process, and all that it starts, to the filter.

    Raises:
        Unsupported: no filter is known for this machine.
        OSError: the kernel has no filters.
    """
    syscalls.install_filter(program(os.uname().machine))


def program(machine: str) -> bytes:
    """The filter for this architecture.

    Raises:
        Unsupported: there is none.
    """
    if machine not in _MACHINES:
        raise Unsupported(f"no system call filter is known for {machine}")
    audit, by_flags, refused = _MACHINES[machine]
    found = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _UNKNOWN)]
    found += [(_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        found += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _UNKNOWN)]
    for number in refused.values():
        found += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    found += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _UNKNOWN)]
    for number in by_flags.values():
        found += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 0, 1, _NAMESPACES),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    found += [(_RETURN, 0, 0, _ALLOW)]
    order = sys.byteorder
    return b"".join(
        code.to_bytes(2, order) + bytes((true, false)) + operand.to_bytes(4, order)
        for code, true, false, operand in found
    )
