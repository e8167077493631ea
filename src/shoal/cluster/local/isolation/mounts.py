"""What of the file system a task sees.

**Covers** are laid over folders that others use too: folders of its own over /tmp and /var/tmp, an empty
file system over /dev/shm and over `$SHOAL_HOME`; in strict mode over /run and /dev as well. What the
task keeps of what lies under a cover (its working directory, its own folders, a virtual environment) is
opened before and bound back after, each onto the deepest cover it lies in; so a home inside a working
directory inside /tmp comes out right. In strict mode all the rest is then made read-only.

All of it happens in the task's mount namespace, in its init, before the command starts. The order is
worked out by `arrange`, a pure function. A kept path that *is* a cover wins over it: that folder stays
shared, which is reported as a failure of the isolation.
"""

from __future__ import annotations

import os

from shoal.cluster.local.isolation import covers, syscalls
from shoal.cluster.local.isolation.paths import aliases, control_group_mounts, within

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

__all__ = ["View", "apply", "arrange"]

_KERNEL_SETTINGS = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi",
    "/proc/mtrr", "/proc/timer_stats", "/proc/latency_stats",
)  # fmt: skip
_KERNEL_SECRETS = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug")
"""Files about the whole machine: each is covered by /dev/null."""
_DEVICE_SETTINGS = "/sys"
"""Control groups are usually below it."""


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
        """Let these stay visible, wherever they are."""
        real = {os.path.realpath(path) for path in paths} - {"/"}
        self.kept = sorted(real.union(self.kept))
        if writable:
            self.writable = sorted(real.union(self.writable))

    def hide(self, homes: Iterable[str]) -> None:
        """Cover these homes too, but for what is kept; not one that the task's own is in."""
        real = {os.path.realpath(home) for home in homes}
        self.hidden = sorted(home for home in real if not within(self.home, home))

    def seal(self, path: str) -> None:
        """Let this folder of the home stay visible, read-only."""
        self.keep([path])
        self.sealed.append(os.path.realpath(path))

    def protect(self, paths: Iterable[str]) -> None:
        """Let these not be written in strict mode."""
        self.protected = sorted({os.path.realpath(path) for path in paths}.union(self.protected))

    def covers(self) -> dict[str, covers.Cover]:
        """Folders to cover, each with what goes over it."""
        found: dict[str, covers.Cover] = {}
        if "system" in self.names:
            found["/run"] = covers.Runtime("system")
            found["/dev"] = covers.Devices("system", self.device_files)
        if "tmp" in self.names:
            for path, own in (("/tmp", "tmp"), ("/var/tmp", "var-tmp")):
                found[os.path.realpath(path)] = covers.Folder("tmp", f"{self.private}/{own}")
            found[os.path.realpath("/dev/shm")] = covers.SharedMemory("tmp", self.shared_memory_bytes)
        if "home" in self.names and self.home:
            own = aliases(self.home)
            self.others = {path for home in self.hidden for path in aliases(home)}.difference(own)
            found |= {path: covers.Home("home") for path in [*own, *self.others]}
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


def _cover(cover: covers.Cover, path: str, kept: dict[str, int]) -> None:
    """Lay the cover and bind back what is kept; all of it or, but for the cover's folder, nothing."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    cover.lay(path)
    try:
        for back, handle in kept.items():
            covers.put_back(handle, back)
    except OSError:
        syscalls.umount(path, syscalls.MNT_DETACH)
        raise


def _new_proc() -> None:
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)


def _seal(laid: dict[str, covers.Cover], sealed: Iterable[str]) -> None:
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
    for path in [_DEVICE_SETTINGS, *control_group_mounts()]:
        if os.path.ismount(path):
            _set_mode(path, True)
    _hide_secrets()


def _settings() -> list[str]:
    return [path for path in _KERNEL_SETTINGS if os.path.exists(path)]


def _hide_secrets() -> None:
    for path in _KERNEL_SECRETS:
        if os.path.exists(path):
            syscalls.mount(os.devnull, path, None, syscalls.MS_BIND)


def _make_read_only(view: View, laid: dict[str, covers.Cover], bound: set[str]) -> None:
    """Everything but the covers and what the task may write; deeper paths have the last word."""
    read_only = {"/": True, "/proc": False}
    read_only |= {path: cover.name == "home" for path, cover in laid.items()}
    read_only |= dict.fromkeys(view.kept, True)
    read_only |= dict.fromkeys(view.writable, False)
    protected = [path for path in view.protected if any(within(path, place) for place in view.writable)]
    read_only |= dict.fromkeys(protected, True)
    read_only |= dict.fromkeys(_settings(), True)
    protected += _settings()
    for path in sorted({*view.kept, *protected} - bound):
        _make_mount(path)
    for path in sorted(read_only):
        _set_mode(path, read_only[path])
    _hide_secrets()


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
