"""What is laid over folders that a task is not to see as they are; see `mounts`."""

from __future__ import annotations

import os

from shoal.cluster.local.isolation import syscalls

__all__ = ["Cover", "Devices", "Folder", "Home", "Runtime", "SharedMemory", "put_back"]

_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}


class Cover:
    """One cover. `prepare` is called while everything can still be seen, `lay` when it is its turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        """The isolation that it is part of."""

    def prepare(self) -> None:
        """Open what will be out of sight."""

    def lay(self, path: str) -> None:
        """Cover the folder."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what `prepare` opened."""


class Folder(Cover):
    """A folder of the task's own, on the disk: what goes to /tmp may be large."""

    def __init__(self, name: str, folder: str) -> None:
        super().__init__(name)
        self._folder = folder
        self._handle = -1

    def prepare(self) -> None:
        """See `Cover.prepare`."""
        self._handle = os.open(self._folder, os.O_PATH | os.O_CLOEXEC)

    def lay(self, path: str) -> None:
        """See `Cover.lay`."""
        syscalls.mount(f"/proc/self/fd/{self._handle}", path, None, syscalls.MS_BIND)

    def close(self) -> None:
        """See `Cover.close`."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class SharedMemory(Cover):
    """Memory of the task's own, which counts against its limit."""

    def __init__(self, name: str, size_bytes: int | None) -> None:
        super().__init__(name)
        self._size_bytes = size_bytes

    def lay(self, path: str) -> None:
        """See `Cover.lay`."""
        size = "" if self._size_bytes is None else f",size={self._size_bytes}"
        _tmpfs("shoal-shm", path, "mode=1777" + size)


class Home(Cover):
    """Nothing, where everybody's files are."""

    def lay(self, path: str) -> None:
        """See `Cover.lay`."""
        _tmpfs("shoal-home", path, "mode=0700,size=1m")


class Runtime(Cover):
    """Nothing, where the sockets of the machine's services are (/run)."""

    def lay(self, path: str) -> None:
        """See `Cover.lay`."""
        _tmpfs("shoal-run", path, "mode=0755,size=16m")


class Devices(Cover):
    """The devices that any program may expect, terminals of its own, and the GPUs given (/dev)."""

    def __init__(self, name: str, device_files: list[str]) -> None:
        super().__init__(name)
        self._files = device_files
        self._handles: dict[str, int] = {}

    def prepare(self) -> None:
        """See `Cover.prepare`."""
        for path in [f"/dev/{name}" for name in _PLAIN_DEVICES] + self._files:
            if os.path.exists(path):
                self._handles[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def lay(self, path: str) -> None:
        """See `Cover.lay`."""
        syscalls.mount("shoal-dev", path, "tmpfs", syscalls.MS_NOSUID, "mode=0755,size=1m")
        for target, handle in self._handles.items():
            put_back(handle, target)
        for name, target in _LINKS.items():
            os.symlink(target, f"{path}/{name}")
        for name in ("pts", "shm", "mqueue"):
            os.mkdir(f"{path}/{name}", 0o755)
        os.chmod(f"{path}/shm", 0o1777)
        syscalls.mount("devpts", f"{path}/pts", "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC,
                       "newinstance,ptmxmode=0666,mode=620")  # fmt: skip

    def close(self) -> None:
        """See `Cover.close`."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles = {}


def put_back(handle: int, path: str) -> None:
    """Let what the handle is open on be seen at the path again."""
    source = f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(path, mode=0o700, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, 0o600))
    syscalls.mount(source, path, None, syscalls.MS_BIND | syscalls.MS_REC)


def _tmpfs(source: str, path: str, options: str) -> None:
    syscalls.mount(source, path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
