"""The system calls that no task may make: a seccomp filter, as container runtimes have one.

What is refused would let a task step out of its isolation or meet other tasks where the kernel has no
namespaces: user and control group namespaces (in one, a task that root runs holds every capability and
may mount the control group file system), kernel keyrings (one per user, not per task), kernel code (bpf,
modules, kexec) and userfaultfd. `clone3` is answered as if the kernel had none, because a filter cannot
see its flags; the C library then uses `clone`. Programs of another architecture (32 bits) do not run.

The program is classic BPF: instructions of 8 bytes (code, jumps, operand).
"""

from __future__ import annotations

import os
import sys

from shoal.cluster.local.isolation import syscalls

__all__ = ["Unsupported", "install", "program"]

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
