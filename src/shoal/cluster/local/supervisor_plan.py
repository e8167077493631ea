"""What a launch asks for, worked out: the isolations, what the task is to see, its environment."""

from __future__ import annotations

import os
import sys

from shoal.cluster.local import supervisor_files
from shoal.cluster.local.isolation import namespaces
from shoal.cluster.local.isolation.mounts import View, is_of_the_system, read_mounts, within

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

PRIVATE = "private"
"""The folder, in the task's, that holds its own /tmp and /var/tmp."""

_PACKAGE_ROOT = __file__.removesuffix("/shoal/cluster/local/supervisor_plan.py")


class Plan:
    """One task's launch. `folder` is the task's."""

    def __init__(self, folder: str, launch: dict[str, Any]) -> None:
        self.folder = folder
        self.argv: list[str] = list(launch["argv"])
        self.cwd: str = launch["cwd"] or "/"
        self.scratch: str = launch["scratch"]
        self.output: str = launch["output"]
        self.rendezvous: str = launch["rendezvous"]
        self.log: dict[str, Any] = launch["log"]
        self.limits: dict[str, int | None] = launch.get("limits", {})
        self.process_limit: int | None = None
        """Held by RLIMIT_NPROC, where no control group holds `limits.pids`."""
        self.devices: tuple[str, ...] = tuple(launch.get("devices", ()))
        self.cgroup_parents: dict[str, str] = launch.get("cgroup_parents", {})
        self.cgroup_name = f"{launch['namespace']}.{launch['task']}"
        isolation: dict[str, Any] = launch.get("isolation", {})
        self.strict: bool = isolation.get("mode") == "strict"
        self.names: tuple[str, ...] = tuple(isolation.get("wanted", ())) or (
            namespaces.STRICT if self.strict else namespaces.DEFAULT
        )
        self.sandbox: str = isolation.get("sandbox", "")
        self.home: str = isolation.get("home", "")
        self._other_homes: tuple[str, ...] = tuple(isolation.get("other_homes", ()))
        self._tasks_socket: str = isolation.get("tasks_socket", "")
        self._keep: tuple[str, ...] = tuple(isolation.get("keep", ()))
        secret: dict[str, str] = supervisor_files.read(folder, "secrets.json") or {}
        self.env: dict[str, str] = launch["env"] | secret | environment(self.devices)

    @property
    def private(self) -> str:
        """The folder of what the task has in place of what is shared."""
        return f"{self.folder}/{PRIVATE}"

    def make_private_folders(self) -> None:
        """Make the task's own /tmp and /var/tmp."""
        for name in ("tmp", "var-tmp"):
            os.makedirs(f"{self.private}/{name}", exist_ok=True)
            os.chmod(f"{self.private}/{name}", 0o1777)

    def view(self, granted: Collection[str]) -> View:
        """What the task is to see, given the isolations that can be had."""
        view = View(granted, self.private, self.home, self.limits.get("memory_bytes"))
        view.hide(_existing([*self._other_homes]))
        environment = self.env.get("VIRTUAL_ENV", "")
        view.keep(_resolved([self.scratch, self.output]), writable=True)
        view.keep(_resolved([self.rendezvous]))
        view.keep(self._allowed([self.cwd]), writable=True)
        view.keep(self._allowed([environment]))
        # the last is for what a task runs of Shoal itself: mpirun's remote shell
        view.keep(_resolved([*self._keep, _PACKAGE_ROOT]))
        socket_folder = os.path.dirname(self._tasks_socket)
        if socket_folder != self.home and os.path.exists(socket_folder):
            view.seal(socket_folder)
        view.keep(self._allowed(self._named_in_tmp(view)))
        view.protect(_existing([_PACKAGE_ROOT, sys.prefix, environment, *self._keep]))
        view.device_files = files(self.devices)
        return view

    def _allowed(self, paths: list[str]) -> list[str]:
        """Those of the paths that a job may ask to see, resolved. It names its folders, environment and
        command as it likes, so nothing of /proc, /sys, /dev and /run, and nothing of a home, whichever
        mount it is named by: of that a task sees its own folders, which the platform names."""
        homes: set[tuple[int, int] | None] = {
            key
            for home in _existing([self.home, *self._other_homes])
            for key in _keys(os.path.realpath(home))
        }
        homes.add(None)
        mounts = read_mounts()
        return [
            path
            for path in _resolved(paths)
            if not is_of_the_system(path, mounts) and homes.isdisjoint(_keys_above(path))
        ]

    def _named_in_tmp(self, view: View) -> list[str]:
        """What the command's words and its PATH name in /tmp: `python /tmp/train.py` finds its script.
        A virtual environment is kept whole, for its python is a link that finds the rest beside it."""
        shared = [place for place, cover in view.covers().items() if cover.name == "tmp"]
        words = [word for word in self.argv if word.startswith("/") and "\0" not in word]
        found = [os.path.realpath(word) for word in _existing(words)]
        programs = [os.path.dirname(self.argv[0]), *self.env.get("PATH", "").split(":")]
        for place in map(os.path.realpath, filter(os.path.isabs, programs)):
            above = os.path.dirname(place)
            found.append(above if os.path.exists(f"{above}/pyvenv.cfg") else place)
        return [
            path for path in found if path not in shared and any(within(path, place) for place in shared)
        ]


def _keys(home: str) -> list[tuple[int, int]]:
    """What identifies a home and the folders and files directly in it: device and inode, which are the
    same under each path that a bind mount gives them."""
    try:
        places = [home, *(f"{home}/{name}" for name in os.listdir(home))]
    except PermissionError:
        places = [home]  # what this user cannot enter, its tasks cannot either
    return [key for place in places if (key := _key(place)) is not None]


def _key(path: str) -> tuple[int, int] | None:
    """The device and inode of what is at the path; None when it has gone by now."""
    try:
        state = os.lstat(path)
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


def _keys_above(path: str) -> list[tuple[int, int] | None]:
    """Those of the resolved path and of all folders that it lies in."""
    parts = path.split("/")
    return [_key("/".join(parts[:count])) for count in range(2, len(parts) + 1)]


def _resolved(paths: list[str]) -> list[str]:
    return [os.path.realpath(path) for path in _existing(paths)]


def _existing(paths: list[str]) -> list[str]:
    return [path for path in paths if path and "\0" not in path and os.path.exists(path)]


def environment(devices: tuple[str, ...]) -> dict[str, str]:
    """The variables that CUDA and NVIDIA's tools heed; without devices nothing is visible."""
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(devices),
        "NVIDIA_VISIBLE_DEVICES": ",".join(devices) or "void",
    }


def files(devices: tuple[str, ...], root: str = "") -> list[str]:
    """The device files that these GPUs need, of those that there are. `root` is for tests."""
    if not devices:
        return []
    try:
        namespaces = os.listdir(f"{root}/dev")
    except OSError:
        return []
    shared = [name for name in namespaces if name.startswith("nvidia") and not name[6:].isdigit()]
    own = {f"nvidia{minor}" for minor in _minors(devices, root)}
    return [f"/dev/{name}" for name in sorted(shared + [name for name in namespaces if name in own])]


def _minors(devices: tuple[str, ...], root: str) -> list[str]:
    """Numbers of the device files; without the driver's own numbers they are the indices."""
    gpus = f"{root}/proc/driver/nvidia/gpus"
    by_id: dict[str, str] = {}
    try:
        # CUDA counts in the order of bus addresses, which is how these folders are named
        for index, address in enumerate(sorted(os.listdir(gpus))):
            facts = _facts(f"{gpus}/{address}/information")
            minor = facts.get("Device Minor", str(index))
            by_id[str(index)] = by_id[facts.get("GPU UUID", "")] = minor
    except OSError:
        return list(devices)
    return [by_id.get(device, device) for device in devices]


def _facts(path: str) -> dict[str, str]:
    with open(path, encoding="ascii", errors="replace") as file:
        lines = [line.partition(":") for line in file]
    return {name.strip(): value.strip() for name, _, value in lines}
