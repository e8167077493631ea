"""What of the file system a task sees.

**Covers** are laid over folders that others use too: folders of its own over /tmp and /var/tmp, an empty
file system over /dev/shm and over `$SHOAL_HOME`; in strict mode over /run and /dev as well. What the
task keeps of what lies under a cover (its working directory, its own folders, a virtual environment) is
opened before and bound back after, each onto the deepest cover it lies in; so a home inside a working
directory inside /tmp comes out right. In strict mode all the rest is then made read-only. The kernel's
settings are made read-only last, in both modes: nothing that a task keeps has precedence over them.

All of it happens in the task's mount namespace, in its init, before the command starts. The order is
worked out by `arrange`, a pure function. A kept path that *is* a cover wins over it: that folder stays
shared, which is reported as a failure of the isolation.
"""

from __future__ import annotations

import os

from shoal.cluster.local.isolation import syscalls

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

_KERNEL_SETTINGS = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi",
    "/proc/mtrr", "/proc/timer_stats", "/proc/latency_stats",
)  # fmt: skip
_KERNEL_SECRETS = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug")
"""Files about the whole machine: each is covered by /dev/null."""
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/run")
"""The kernel's settings, devices, and sockets of the machine's services: never bound back for a job."""
_SETTINGS_TYPES = frozenset({
    "proc", "sysfs", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "configfs", "efivarfs",
    "bpf", "pstore", "binfmt_misc", "selinuxfs", "fusectl",
})  # fmt: skip
"""File systems of settings, wherever they are mounted."""
_DEVICE_TYPES = frozenset({"devtmpfs", "devpts", "nsfs", "mqueue"})
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}


class View:
    """What a task is to see, in resolved paths.

    `names` are the isolations to set up; `private` is the folder that holds its own /tmp and /var/tmp.
    `kept` stays visible, `writable` also writable; `protected` is what not even a task that may write
    all around it may write (strict mode); `sealed` is kept in the home and never writable.
    """

    def __init__(
        self, names: Collection[str], private: str, home: str, shared_memory_bytes: int | None = None
    ) -> None:
        self.names = names
        self.private = private
        self.home = os.path.realpath(home) if home else ""
        self.shared_memory_bytes = shared_memory_bytes
        self.hidden: list[str] = []
        """Other homes."""
        self.others: set[str] = set()
        """Where they can be seen."""
        self.kept: list[str] = []
        self.writable: list[str] = []
        self.protected: list[str] = []
        self.sealed: list[str] = []
        self.device_files: list[str] = []

    def keep(self, paths: Iterable[str], *, writable: bool = False) -> None:
        """Let these resolved paths stay visible, wherever they are. They are not resolved again: what
        was checked is what is kept."""
        real = set(paths) - {"/"}
        self.kept = sorted(real.union(self.kept))
        if writable:
            self.writable = sorted(real.union(self.writable))

    def hide(self, homes: Iterable[str]) -> None:
        """Cover these homes too, but for what is kept; not one that the task's own is in."""
        real = {os.path.realpath(home) for home in homes}
        self.hidden = sorted(home for home in real if not within(self.home, home))

    def seal(self, path: str) -> None:
        """Let this folder of the home stay visible, read-only."""
        real = os.path.realpath(path)
        self.keep([real])
        self.sealed.append(real)

    def protect(self, paths: Iterable[str]) -> None:
        """Let these not be written in strict mode."""
        self.protected = sorted({os.path.realpath(path) for path in paths}.union(self.protected))

    def covers(self) -> dict[str, Cover]:
        """Folders to cover, each with what goes over it."""
        found: dict[str, Cover] = {}
        if "system" in self.names:
            found["/run"] = Runtime("system")
            found["/dev"] = Devices("system", self.device_files)
        if "tmp" in self.names:
            for path, own in (("/tmp", "tmp"), ("/var/tmp", "var-tmp")):
                found[os.path.realpath(path)] = Folder("tmp", f"{self.private}/{own}")
            found[os.path.realpath("/dev/shm")] = SharedMemory("tmp", self.shared_memory_bytes)
        if "home" in self.names and self.home:
            own = aliases(self.home)
            self.others = {path for home in self.hidden for path in aliases(home)}.difference(own)
            found |= {path: Home("home") for path in [*own, *self.others]}
        return {path: cover for path, cover in found.items() if os.path.isdir(path)}


def apply(view: View) -> dict[str, str]:
    """Arrange the mounts of this process' namespace; the isolations that failed, and why."""
    failed: dict[str, str] = {}
    laid = view.covers()
    for path in set(view.kept).intersection(laid):
        if laid[path].name != "home":
            failed[laid[path].name] = f"{path} itself is kept visible (is it the working directory?)"
            del laid[path]
    handles: dict[str, int] = {}
    try:
        for path in view.kept:
            handle = _handle(path)
            if handle >= 0:
                handles[path] = handle
        view.kept = list(handles)
        view.writable = [path for path in view.writable if path in handles]
        # what the machine mounts later is to be seen, but for a strict task, which could write to it
        propagation = syscalls.MS_PRIVATE if "system" in view.names else syscalls.MS_SLAVE
        syscalls.mount("none", "/", None, syscalls.MS_REC | propagation)
        for cover in laid.values():
            cover.prepare()
        order = arrange(laid, handles)
        for path, kept in order:
            if path in view.others and not os.path.isdir(path):
                del laid[path]  # out of sight already, below the task's own /tmp, or removed
                continue
            back = {place: handles[place] for place in kept}
            _attempt(failed, laid[path].name, lambda at=path, back=back: _cover(laid[at], at, back))
        if "processes" in view.names:
            _attempt(failed, "processes", _new_proc)
        if "system" in view.names:
            bound = {place for _, kept in order for place in kept}
            _attempt(failed, "system", lambda: _make_read_only(view, laid, bound))
        else:
            _attempt(failed, "home", lambda: _seal(laid, view.sealed))
            if "privileges" in view.names:
                _attempt(failed, "privileges", _guard_settings)
    finally:
        for descriptor in handles.values():
            os.close(descriptor)
        for cover in laid.values():
            cover.close()
    return failed


def arrange(covered: Iterable[str], kept: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Covers in the order in which they are laid, each with what is bound back onto it right after.

    Parents come before children, and a path is bound back onto the deepest cover that it lies in.
    """
    back: dict[str, list[str]] = {cover: [] for cover in sorted(covered)}
    for path in sorted(kept):
        over = [cover for cover in back if within(path, cover) and path != cover]
        if over:
            back[max(over, key=len)].append(path)
    return list(back.items())


def _handle(path: str) -> int:
    """What is at the resolved path. -1 when it is gone, or is now a link to something else: one that
    shares a folder with the task must not choose what the task sees."""
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    if os.readlink(f"/proc/self/fd/{handle}") != path:
        os.close(handle)
        return -1
    return handle


def _attempt(failed: dict[str, str], name: str, step: Callable[[], None]) -> None:
    if name in failed:
        return
    try:
        step()
    except OSError as error:
        failed[name] = f"{error.filename}: {error.strerror}"


def _cover(cover: Cover, path: str, kept: dict[str, int]) -> None:
    """Lay the cover and bind back what is kept; all of it or, but for the cover's folder, nothing."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    cover.lay(path)
    try:
        for back, handle in kept.items():
            put_back(handle, back)
    except OSError:
        syscalls.umount(path, syscalls.MNT_DETACH)
        raise


def _new_proc() -> None:
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)


def _seal(laid: dict[str, Cover], sealed: Iterable[str]) -> None:
    """Make the empty home, and what all tasks share in it, read-only."""
    homes = [path for path, cover in laid.items() if cover.name == "home"]
    for path in homes:
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_RDONLY
        syscalls.mount("none", path, None, syscalls.MS_REMOUNT | syscalls.MS_BIND | flags)
    for path in sealed:
        if any(within(path, home) for home in homes):
            _set_mode(path, True)


def _guard_settings() -> None:
    """A task could take its limits off through control groups, and root more through the kernel's
    settings."""
    for path in _settings():
        _make_mount(path)
        _set_mode(path, True)
    for path in settings_mounts():
        if os.path.ismount(path):
            _set_mode(path, True)
    _hide_secrets()


def _settings() -> list[str]:
    return [path for path in _KERNEL_SETTINGS if os.path.exists(path)]


def _hide_secrets() -> None:
    for path in _KERNEL_SECRETS:
        if os.path.exists(path):
            syscalls.mount(os.devnull, path, None, syscalls.MS_BIND)


def _make_read_only(view: View, laid: dict[str, Cover], bound: set[str]) -> None:
    """Everything but the covers and what the task may write: of these the deeper path prevails. Devices
    work in /dev alone."""
    read_only = {"/": True, "/proc": False}
    read_only |= {path: cover.name == "home" for path, cover in laid.items()}
    read_only |= dict.fromkeys(view.kept, True)
    read_only |= dict.fromkeys(view.writable, False)
    protected = [path for path in view.protected if any(within(path, place) for place in view.writable)]
    read_only |= dict.fromkeys(protected, True)
    for path in sorted({*view.kept, *protected} - bound):
        _make_mount(path)
    for path in sorted(read_only):
        _set_mode(path, read_only[path])
    for path in view.kept:
        _forbid_devices(path)
    _guard_settings()


def _make_mount(path: str) -> None:
    """Only mounts have a mode of their own."""
    handle = _handle(path)
    if handle < 0:
        return
    try:
        place = f"/proc/self/fd/{handle}"
        syscalls.mount(place, place, None, syscalls.MS_BIND | syscalls.MS_REC)
    finally:
        os.close(handle)


def _set_mode(path: str, read_only: bool) -> None:
    handle = _handle(path)
    if handle < 0:
        return
    place = f"/proc/self/fd/{handle}"
    try:
        syscalls.set_read_only(place, read_only, recursive=True)
    except OSError:
        if read_only:
            raise
        syscalls.set_read_only(place, False)  # one below it is read-only for good: leave it so
    finally:
        os.close(handle)


def _forbid_devices(path: str) -> None:
    handle = _handle(path)
    if handle >= 0:
        try:
            syscalls.forbid_devices(f"/proc/self/fd/{handle}")
        finally:
            os.close(handle)


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


def within(path: str, folder: str) -> bool:
    """True when the path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def aliases(path: str, mountinfo: str | None = None) -> list[str]:
    """Every place where the folder can be seen: its own first, then those that other mounts of the
    same file system give it. `mountinfo` is for tests."""
    lines = map(str.split, (read_mounts() if mountinfo is None else mountinfo).splitlines())
    mounts = [(fields[2], _plain(fields[3]), _plain(fields[4])) for fields in lines]
    here = [mount for mount in mounts if within(path, mount[2])]
    if not here:
        return [path]
    # of several on one place the last is the one that is seen
    device, root, point = max(reversed(here), key=lambda mount: len(mount[2]))
    inside = os.path.normpath(root + path[len(point.rstrip("/")) :])
    found = [path]
    for other_device, other_root, other_point in mounts:
        if other_device == device and within(inside, other_root):
            place = os.path.normpath(other_point + inside[len(other_root.rstrip("/")) :])
            if place not in found and _same(place, path):
                found.append(place)
    return found


def settings_mounts() -> list[str]:
    """Every place where file systems of the kernel's settings are mounted, but for /proc, which also
    holds the task's processes."""
    found = _mounted_types(read_mounts())
    return [point for point, kind in found if kind in _SETTINGS_TYPES and point != "/proc"]


def is_of_the_system(path: str, mountinfo: str) -> bool:
    """True when the resolved path is in /proc, /sys, /dev or /run, wherever else these can be seen, or
    in another file system that is the kernel's. Folders in /dev/shm are files like those in /tmp."""
    if any(within(path, place) for folder in _SYSTEM_FOLDERS for place in aliases(folder, mountinfo)):
        return not path.startswith(os.path.realpath("/dev/shm") + "/")
    here = [(len(point), kind) for point, kind in _mounted_types(mountinfo) if within(path, point)]
    # of several on one place the last is the one that is seen
    _, kind = max(reversed(here), key=lambda mount: mount[0], default=(0, ""))
    return kind in _SETTINGS_TYPES | _DEVICE_TYPES


def read_mounts() -> str:
    """The mounts of this process' namespace, as the kernel lists them."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as file:
        return file.read()


def _mounted_types(mountinfo: str) -> list[tuple[str, str]]:
    lines = map(str.split, mountinfo.splitlines())
    return [(_plain(line[4]), line[line.index("-") + 1]) for line in lines]


def _plain(field: str) -> str:
    """A path as mountinfo writes it, with its escapes undone."""
    if "\\" not in field:
        return field
    parts = field.split("\\")
    return parts[0] + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts[1:])


def _same(place: str, path: str) -> bool:
    try:
        return os.path.samefile(place, path)
    except OSError:
        return False
