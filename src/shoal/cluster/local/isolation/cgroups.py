"""CPU, memory and process limits through control groups, version 2 or 1, whichever has the controllers.

An agent prepares parents once (`prepare`): folders of its own below the groups it runs in, so that what
an administrator or a container allows the agent also holds for all its tasks. The supervisor of a task
makes one group in each (`Groups`), its command joins them before it runs, and what is left in them at
the end is killed. Version 1 has a hierarchy per controller; on hybrid machines an (otherwise powerless)
version 2 group comes beside them, because it can kill all its processes at once.

A group outlives the process that made it: it has its task's name, so that `remove` finds it after any
crash.
"""

from __future__ import annotations

import contextlib
import os
import time

from shoal.cluster.local import supervisor_processes as processes

CONTROLLERS = ("cpu", "memory", "pids")
KILL = "kill"
"""The key, beside the controllers, of a version 2 group on a hybrid machine."""

INNER = "task"
"""The group, below the one that has the limits, in which the task's processes are: a task that could
reach its own group, by whatever means, could still not lift its limits."""

_PERIOD_MICROSECONDS = 100_000
_POLL_SECONDS = 0.002


class Groups:
    """The control groups of one task; none where the machine grants none. Only those that it needs are
    made, for moving a process into one takes the kernel some milliseconds. Methods never raise for a
    group that is gone."""

    def __init__(self, parents: dict[str, str], name: str) -> None:
        self._places = {key: f"{parent}/{name}" for key, parent in parents.items()}
        self.folders: dict[str, str] = {}
        """The groups that are there, by controller."""
        self.failed: dict[str, str] = {}
        """Controllers that could not be had, and why."""

    @property
    def paths(self) -> list[str]:
        """The groups' folders, each once."""
        return list(dict.fromkeys(self.folders.values()))

    def create(self, limits: dict[str, int | None]) -> None:
        """Make the groups that hold these limits (with the keys of `taskfiles.Limits`) and set them;
        what cannot be had is in `failed`."""
        for key in CONTROLLERS:
            settings = _settings(key, limits, self._is_version_2(key))
            if settings and key not in self._places:
                self.failed[key] = "no control group can be had for it"
            elif settings:
                self._make(key, settings)

    def create_killing(self) -> None:
        """Make a group to kill all its processes at once, if no group was made and one can
        be had: for tasks that no PID namespace holds."""
        if KILL in self._places:
            self._make(KILL, [])
        elif self._places and not self.folders:
            self._make(next(iter(self._places)), [])

    def find(self) -> None:
        """Find those that an earlier process has made."""
        self.folders = {key: place for key, place in self._places.items() if os.path.isdir(place)}

    def entrances(self) -> dict[str, int]:
        """Descriptors by folder: a process that writes `0` to one is in that group from then on."""
        flags = os.O_WRONLY | os.O_CLOEXEC
        return {path: os.open(f"{path}/{INNER}/cgroup.procs", flags) for path in self.paths}

    def refuse(self, folder: str, why: str) -> None:
        """The kernel lets no process into this group: its limits are not held."""
        for key in [key for key, path in self.folders.items() if path == folder]:
            self._lose(key, why)

    def out_of_memory_kills(self) -> int:
        """How many of the task's processes the kernel has killed for its limit."""
        folder = self.folders.get("memory", "")
        # version 1 counts in the group of the process, version 2 in those above it too
        for files in (("memory.events",), ("memory.oom_control", f"{INNER}/memory.oom_control")):
            counts = [
                int(line.split()[1])
                for file in files
                for line in _lines(f"{folder}/{file}")
                if line.startswith("oom_kill ")
            ]
            if counts:
                return sum(counts)
        return 0

    def peak_memory_bytes(self) -> int:
        """The most memory that the task has used; 0 where it is not counted."""
        folder = self.folders.get("memory", "")
        for file in ("memory.peak", "memory.max_usage_in_bytes"):
            for line in _lines(f"{folder}/{file}"):
                return int(line)
        return 0

    def cpu_seconds(self) -> float:
        """CPU time of all its processes; 0 where it is not counted."""
        for key in (KILL, "cpu"):
            for line in _lines(f"{self.folders.get(key, '')}/cpu.stat"):
                name, _, microseconds = line.partition(" ")
                if name == "usage_usec":
                    return int(microseconds) / 1e6
        return 0.0

    def _is_version_2(self, key: str) -> bool:
        parent = os.path.dirname(self._places.get(key, ""))
        return os.path.exists(f"{parent}/cgroup.controllers")

    def _make(self, key: str, settings: list[tuple[str, str]]) -> None:
        folder = self.folders[key] = self._places[key]
        try:
            os.makedirs(folder, exist_ok=True)
            for file, value in settings:
                _set(folder, file, value)
            os.makedirs(f"{folder}/{INNER}", exist_ok=True)
        except OSError as error:
            self._lose(key, f"{error.filename}: {error.strerror}")

    def _lose(self, key: str, why: str) -> None:
        self.failed[key] = why
        folder = self.folders.pop(key)
        if folder not in self.folders.values():  # on version 2 it may serve other controllers still
            remove([folder])


def remove(paths: list[str], timeout_seconds: float = 1.0) -> bool:
    """Kill what is in the groups and in those below them and remove them; False when some process would
    not go in that time."""
    deadline = time.monotonic() + timeout_seconds
    left = paths
    while left := [path for path in left if not _end(path)]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def remove_strays(parents: dict[str, str], living: set[str]) -> list[str]:
    """Remove the groups of tasks that are not among `living` (names as given to `Groups`), and say
    which could not be."""
    found: list[str] = []
    for parent in dict.fromkeys(parents.values()):
        try:
            names = os.listdir(parent)
        except OSError:
            continue
        strays = [name for name in names if name not in living and os.path.isdir(f"{parent}/{name}")]
        found += [f"{parent}/{name}" for name in strays]
    return [path for path in found if not remove([path])]


def _settings(key: str, limits: dict[str, int | None], version_2: bool) -> list[tuple[str, str]]:
    """Files to write, each with its value; those that not every kernel has end in `?`."""
    memory, pids = limits.get("memory_bytes"), limits.get("pids")
    if key == "memory" and memory is not None:
        if version_2:
            return [("memory.max", str(memory)), ("memory.swap.max?", "0"), ("memory.oom.group?", "1")]
        return [
            ("memory.use_hierarchy?", "1"),  # always so since Linux 5.11
            ("memory.limit_in_bytes", str(memory)),
            ("memory.memsw.limit_in_bytes?", str(memory)),
        ]
    if key == "pids" and pids is not None:
        return [("pids.max", str(pids))]
    request, quota = limits.get("cpu_millis"), limits.get("cpu_limit_millis")
    if key != "cpu" or not (request or quota):
        return []
    shares = min(max(2, (request or 0) * 1024 // 1000), 262_144)
    microseconds = 0 if quota is None else max(1000, quota * _PERIOD_MICROSECONDS // 1000)
    if version_2:
        # shares of 2 to 262144 as weights of 1 to 10000, in Kubernetes' proportion
        found = [("cpu.weight", str(1 + (shares - 2) * 9999 // 262_142))]
        return found + ([("cpu.max", f"{microseconds} {_PERIOD_MICROSECONDS}")] if microseconds else [])
    found = [("cpu.shares", str(shares))]
    if microseconds:
        found.append(("cpu.cfs_period_us", str(_PERIOD_MICROSECONDS)))
        found.append(("cpu.cfs_quota_us", str(microseconds)))
    return found


def _set(folder: str, file: str, value: str) -> None:
    path = f"{folder}/{file.removesuffix('?')}"
    if not file.endswith("?") or os.path.exists(path):
        write(path, value)


def _end(path: str) -> bool:
    """Kill every process of the group and of those that the task has made below it, and remove those
    that are empty, deepest first; True when none is left. However deep they are nested (a task's own
    doing), one descriptor is open at a time and no path is longer than a name."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        here = os.open(path, flags)
    except FileNotFoundError:
        return True
    try:
        _kill_at_once(here)
        way: list[str] = []
        waiting = [_groups_in(here)]
        while True:
            if waiting[-1]:
                name = waiting[-1].pop()
                try:
                    here = _moved(here, os.open(name, flags, dir_fd=here))
                except FileNotFoundError:
                    continue
                way.append(name)
                waiting.append(_groups_in(here))
                continue
            _kill_each(here)
            if not way:
                break
            here = _moved(here, os.open("..", flags, dir_fd=here))
            waiting.pop()
            with contextlib.suppress(OSError):  # still in use: its processes are on their way out
                os.rmdir(way.pop(), dir_fd=here)
    finally:
        os.close(here)
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # still in use
    return True


def _moved(before: int, after: int) -> int:
    os.close(before)
    return after


def _groups_in(group: int) -> list[str]:
    with os.scandir(group) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def _kill_at_once(group: int) -> None:
    """On version 2 since Linux 5.14; elsewhere each process is killed by its id."""
    with contextlib.suppress(OSError):
        descriptor = os.open("cgroup.kill", os.O_WRONLY | os.O_CLOEXEC, dir_fd=group)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def _kill_each(group: int) -> None:
    try:
        descriptor = os.open("cgroup.procs", os.O_RDONLY | os.O_CLOEXEC, dir_fd=group)
    except OSError:
        return
    with open(descriptor, encoding="ascii") as file:
        for line in file:
            processes.kill(int(line))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:
        return []


def write(path: str, value: str) -> None:
    """Write a control file, which must be there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
