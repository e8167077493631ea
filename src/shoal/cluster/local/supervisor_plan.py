"""What a launch asks for, worked out: the isolations, what the task is to see, its environment."""

from __future__ import annotations

import os
import sys

from shoal.cluster.local.isolation import devices, names
from shoal.cluster.local.isolation.mounts import View
from shoal.cluster.local.isolation.paths import within

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

__all__ = ["PRIVATE", "Plan"]

PRIVATE = "private"
"""The folder, in the task's, that holds its own /tmp and /var/tmp."""

_MANAGED = frozenset({"keys", "nodes", "run", "log", "logs", "output", "sandboxes", "tasks"})
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
        self.devices: tuple[str, ...] = tuple(launch.get("devices", ()))
        self.cgroup_parents: dict[str, str] = launch.get("cgroup_parents", {})
        self.cgroup_name = f"{launch['namespace']}.{launch['task']}"
        isolation: dict[str, Any] = launch.get("isolation", {})
        self.strict: bool = isolation.get("mode") == "strict"
        self.names: tuple[str, ...] = tuple(isolation.get("wanted", ())) or (
            names.STRICT if self.strict else names.DEFAULT
        )
        self.sandbox: str = isolation.get("sandbox", "")
        self.home: str = isolation.get("home", "")
        self._tasks_socket: str = isolation.get("tasks_socket", "")
        self._keep: tuple[str, ...] = tuple(isolation.get("keep", ()))
        self.env: dict[str, str] = launch["env"] | devices.environment(self.devices)

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
        own = [self.scratch, self.output]
        view.keep(_existing([*own, *self._kept_working_directory()]), writable=True)
        view.keep(_existing([self.rendezvous, *self._keep, self.env.get("VIRTUAL_ENV", "")]))
        view.keep(
            _existing([_PACKAGE_ROOT])
        )  # for what a task runs of Shoal itself: mpirun's remote shell
        socket_folder = os.path.dirname(self._tasks_socket)
        if socket_folder != self.home and os.path.exists(socket_folder):
            view.seal(socket_folder)
        view.keep([*self._named_paths(view), *self._programs(view)])
        environment = self.env.get("VIRTUAL_ENV", "")
        view.protect(_existing([_PACKAGE_ROOT, sys.prefix, environment, *self._keep]))
        view.device_files = devices.files(self.devices)
        return view

    def _kept_working_directory(self) -> list[str]:
        """The working directory, unless it is in what belongs to Shoal: there only what is kept by
        name can be seen."""
        home, cwd = os.path.realpath(self.home), os.path.realpath(self.cwd)
        if not self.home or not within(cwd, home):
            return [cwd]
        managed = cwd == home or cwd[len(home) + 1 :].split("/")[0] in _MANAGED
        return [] if managed else [cwd]

    def _programs(self, view: View) -> list[str]:
        """Where programs are found in /tmp, by the command's first word or by PATH: a virtual environment
        whole, for its python is a link that finds the rest beside itself."""
        shared = [place for place, cover in view.covers().items() if cover.name == "tmp"]
        places = [os.path.dirname(self.argv[0])] if self.argv[0].startswith("/") else []
        places += self.env.get("PATH", "").split(":")
        found: list[str] = []
        for place in map(os.path.realpath, filter(os.path.isabs, places)):
            if (
                place not in shared
                and any(within(place, each) for each in shared)
                and os.path.isdir(place)
            ):
                above = os.path.dirname(place)
                found.append(above if os.path.exists(f"{above}/pyvenv.cfg") else place)
        return found

    def _named_paths(self, view: View) -> list[str]:
        """What the command's own words name in /tmp: `python /tmp/train.py` is to find its script."""
        home = os.path.realpath(self.home) if self.home else "\0"
        shared = [place for place, cover in view.covers().items() if cover.name == "tmp"]
        found: list[str] = []
        for word in self.argv:
            if word.startswith("/") and "\0" not in word and os.path.exists(word):
                path = os.path.realpath(word)
                covered = path not in shared and any(within(path, place) for place in shared)
                if covered and not within(path, home) and not within(home, path):
                    found.append(path)
        return found


def _existing(paths: list[str]) -> list[str]:
    return [path for path in paths if path and os.path.exists(path)]
