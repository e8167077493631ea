"""The system calls that Python 3.11 has no name for, without the cost of importing ctypes.

Built on `_ctypes`, the C half of ctypes, which is there wherever ctypes is: the supervisor of every
task starts with this, and `import ctypes` alone would make its start half as long again. Each function
raises OSError with the kernel's reason. Linux only; elsewhere `available()` is false.
"""

from __future__ import annotations

import os
import sys
from _ctypes import (
    FUNCFLAG_CDECL,
    FUNCFLAG_USE_ERRNO,
    CFuncPtr,
    _SimpleCData,  # pyright: ignore[reportPrivateUsage]
    addressof,
    dlopen,
    dlsym,
    get_errno,
)

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

_SYS_MOUNT_SETATTR = 442  # the same number on every architecture, like all since 5.0
_SECCOMP_MODE_FILTER = 2
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NODEV = 4


def available() -> bool:
    """True where these calls exist."""
    return sys.platform == "linux"


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _call("unshare", flags)


def setns(descriptor: int, flags: int) -> None:
    """Enter the namespace that the descriptor is open on."""
    _call("setns", descriptor, flags)


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount, bind, remount or change propagation, as mount(2)."""
    _call("mount", os.fsencode(source), os.fsencode(target), kind.encode() if kind else None, flags,
          data.encode() if data else None)  # fmt: skip


def umount(target: str, flags: int = 0) -> None:
    """Unmount what is on top at `target`."""
    _call("umount2", os.fsencode(target), flags)


def set_read_only(path: str, read_only: bool, recursive: bool = False) -> None:
    """Make a mount, or all mounts below it too, read-only or writable, and change nothing else of it.
    Needs Linux 5.12."""
    on, off = (_MOUNT_ATTR_RDONLY, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    _set_attributes(path, on, off, recursive)


def forbid_devices(path: str) -> None:
    """Let no device file of a mount, and of all mounts below it, be opened. Needs Linux 5.12."""
    _set_attributes(path, _MOUNT_ATTR_NODEV, 0, recursive=True)


def _set_attributes(path: str, on: int, off: int, recursive: bool) -> None:
    attributes = b"".join(value.to_bytes(8, sys.byteorder) for value in (on, off, 0, 0))
    _call("syscall", _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path),
          _AT_RECURSIVE if recursive else 0, attributes, len(attributes))  # fmt: skip


def prctl(option: int, argument: int = 0) -> int:
    """Change or read something about this process."""
    return _call("prctl", option, argument, 0, 0, 0)


def install_filter(program: bytes) -> None:
    """Have the kernel run this BPF program before each system call of this process and of all that it
    starts. Needs no_new_privs or CAP_SYS_ADMIN."""
    held = (_Byte * len(program)).from_buffer_copy(program)
    header = (len(program) // 8).to_bytes(8, sys.byteorder) + addressof(held).to_bytes(8, sys.byteorder)
    _call("prctl", PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def new_session_keyring() -> None:
    """Leave the session keyring that this process has inherited for an empty one. Nothing happens where
    the kernel has no keyrings, or this user has no more (the quota is some hundreds)."""
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        return
    try:
        _call("syscall", number, _KEYCTL_JOIN_SESSION_KEYRING, None)
    except OSError as error:
        if error.errno not in (38, 122):  # ENOSYS, EDQUOT
            raise


def capabilities() -> tuple[int, int, int]:
    """This process' effective, permitted and inheritable capabilities, as bit sets."""
    buffer = (_Byte * 24)()
    _call("capget", _CAP_HEADER, buffer)
    found = bytes(buffer)
    words = [int.from_bytes(found[at : at + 4], sys.byteorder) for at in range(0, 24, 4)]
    low, high = words[:3], words[3:]
    effective, permitted, inheritable = (low[at] | high[at] << 32 for at in range(3))
    return effective, permitted, inheritable


def set_capabilities(effective: int, permitted: int, inheritable: int) -> None:
    """Give up those that are not named; see `capabilities`."""
    sets = (effective, permitted, inheritable)
    words = [value & 0xFFFFFFFF for value in sets] + [value >> 32 for value in sets]
    _call("capset", _CAP_HEADER, b"".join(word.to_bytes(4, sys.byteorder) for word in words))


_CAP_HEADER = (0x20080522).to_bytes(4, sys.byteorder) + bytes(4)


TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from _ctypes import Array
    from typing import Any

    _Simple = _SimpleCData[int]
    _Bytes = Array["_Byte"]
else:
    _Simple = _SimpleCData


class _Long(_Simple):
    _type_ = "l"


class _Byte(_Simple):
    _type_ = "b"


class _Function(CFuncPtr):
    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_THIS_PROCESS: Any = None  # dlopen's word for the program itself, which its annotation does not know
_libc = dlopen(_THIS_PROCESS, 0) if sys.platform == "linux" else 0
_functions: dict[str, _Function] = {}


def _call(name: str, *arguments: int | bytes | _Bytes | None) -> int:
    function = _functions.get(name)
    if function is None:
        try:
            function = _functions[name] = _Function(dlsym(_libc, name))
        except OSError:
            raise OSError(38, os.strerror(38), name) from None
    # every number as a long: a plain one would be passed as a C int, too narrow for flags
    result = function(*(_Long(value) if isinstance(value, int) else value for value in arguments))
    number = int(result)
    if number & 0xFFFFFFFF == 0xFFFFFFFF:  # the int of most calls, and the long of syscall()
        error = get_errno()
        raise OSError(error, os.strerror(error), name)
    return number
