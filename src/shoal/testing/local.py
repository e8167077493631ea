"""A real home on this machine for a test: real agents, real supervisors, a server if asked for, and
nothing of it left afterwards.

    with LocalHome(tmp_path / "home", nodes=nodes(one={}, two={"cpu": 4000})) as local:
        start_group(local.cluster, ...)

Leaving the block takes everything down, and fails with `Leftovers` if a process, a mount, a control
group or a component is still there. Linux.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shoal.clock import SystemClock
from shoal.cluster.base import Task
from shoal.cluster.local import components, groups, processes, taskfiles
from shoal.cluster.local.cluster import LocalCluster
from shoal.cluster.local.components import SERVER, component_of, ensure_up
from shoal.cluster.local.home import Home
from shoal.cluster.local.nodes import NodeDecl
from shoal.cluster.local.shutdown import shut_down
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.task import TaskKey

__all__ = ["Leftovers", "LocalHome", "environment_with", "leftovers", "nodes", "wait_until"]

TIMEOUT_SECONDS = 30.0
"""For things that take milliseconds, on a machine that may be busy."""


class Leftovers(AssertionError):
    """Something of a home is still there after it was taken down."""


def nodes(**declared: Mapping[str, Any]) -> tuple[NodeDecl, ...]:  # Any: fields of a NodeDecl
    """Nodes by name, each with 2 cores and 1 GiB unless it says otherwise (`cpu` in thousandths of a
    core, `memory` in bytes)."""
    return tuple(
        NodeDecl(
            name=name,
            cpu=CpuMillis(fields.get("cpu", 2000)),
            memory=Bytes(fields.get("memory", 1 << 30)),
            gpus=tuple(fields.get("gpus", ())),
            labels=dict(fields.get("labels", {})),
        )
        for name, fields in declared.items()
    )


def wait_until(
    condition: Callable[[], bool], timeout_seconds: float = TIMEOUT_SECONDS, what: str = "it"
) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it did not in that time.
    """
    deadline = time.monotonic() + timeout_seconds
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true within {timeout_seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


class LocalHome:
    """A home that is up inside its `with` block. `environment` is added to that of the components
    (`SHOAL_FAULTS` and its like)."""

    def __init__(
        self,
        path: Path,
        nodes: Sequence[NodeDecl] | None = None,
        *,
        server: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.home = Home(path)
        self.server = server
        self._nodes = nodes
        self._environment = dict(environment or {})
        self._cluster: LocalCluster | None = None

    @property
    def cluster(self) -> LocalCluster:
        """A connection of its own to the agents."""
        if self._cluster is None:
            self._cluster = LocalCluster(self.home, SystemClock())
            cluster = self._cluster
            wait_until(lambda: all(node.ready for node in cluster.nodes()), what="every node is ready")
        return self._cluster

    def up(self, environment: Mapping[str, str] | None = None) -> None:
        """Start what is not up, with these variables added."""
        with environment_with(self._environment | dict(environment or {})):
            ensure_up(self.home, self._nodes, server=self.server)

    def pid(self, component: str) -> int:
        """The process of a component (`server`, or the name of a node); 0 when it is not up."""
        return self.home.component_lock(self._component(component)).holder() or 0

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal a component, and where that ends it wait until it has ended."""
        pid = self.pid(component)
        processes.send(pid, processes.start_ticks(pid), number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            wait_until(lambda: self.pid(component) != pid, what=f"the end of {component}")
            components.reap(pid)

    def task(self, key: TaskKey) -> Task | None:
        """The task as listed now; None when it is not."""
        return next((t for t in self.cluster.list().tasks if t.spec.key == key), None)

    def phase(self, key: TaskKey) -> str:
        """The task's phase; empty when it is not listed."""
        task = self.task(key)
        return task.phase if task is not None else ""

    def started(self, task: Task) -> taskfiles.Started:
        """The processes of a task that runs."""
        folder = self.home.node(task.spec.placement.node).tasks
        name = f"{task.spec.namespace}.{task.spec.name}"
        found = taskfiles.read(str(folder / name), taskfiles.STARTED, taskfiles.Started)
        if found is None:
            raise LookupError(f"task {task.spec.name} has not started")
        return found

    def close(self) -> None:
        """Take everything down and look whether it is gone.

        Raises:
            Leftovers: it is not.
        """
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        pids = [self.pid(SERVER), *(self.pid(path.name) for path in self._node_folders())]
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)  # a test may have stopped it
        shut_down(self.home, grace_seconds=0.5)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while left := [*leftovers(self.home), *(folder for folder, _ in _group_folders(self.home))]:
            if time.monotonic() > deadline:
                raise Leftovers("\n".join(left))
            for pid in filter(None, pids):
                components.reap(pid)
            time.sleep(0.02)

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _component(self, name: str) -> str:
        return name if name == SERVER else component_of(name)

    def _node_folders(self) -> list[Path]:
        return list(self.home.nodes.iterdir()) if self.home.nodes.is_dir() else []


def leftovers(home: Home) -> list[str]:
    """What is still there of a home that should be down: processes (its components, its tasks and
    whatever they started), mounts, control groups. One line each."""
    return [*_processes(home), *_mounts(home), *_groups(home)]


@contextlib.contextmanager
def environment_with(added: Mapping[str, str]) -> Generator[None, None, None]:
    """Set these variables for processes that are started within the block."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _processes(home: Home) -> list[str]:
    path = os.fsencode(home.path)
    marks = (b"SHOAL_HOME=" + path, b"SHOAL_OUTPUT=" + path + b"/")
    found: list[str] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib makes an object of each)
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = any(value.startswith(mark) for value in variables for mark in marks)
        if (ours and _is_component_or_task(words, variables)) or path + b"/" in words:
            found.append(f"process {name}: {words.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def _is_component_or_task(words: bytes, variables: list[bytes]) -> bool:
    return b"shoal." in words or any(value.startswith(b"SHOAL_SCRATCH=") for value in variables)


def _mounts(home: Home) -> list[str]:
    text = Path("/proc/self/mounts").read_text()
    return [f"mount {line}" for line in text.splitlines() if line.split()[1].startswith(f"{home.path}/")]


def _groups(home: Home) -> list[str]:
    """Of its tasks; while a home is up its nodes have a folder each for them."""
    return [f"control group {folder}" for folder, names in _group_folders(home) if names]


def _group_folders(home: Home) -> list[tuple[str, list[str]]]:
    """Each node's folders of control groups, with what is in them."""
    scopes = {f"shoal-{groups.scope(home.node(path.name))}" for path in home.nodes.glob("*")}
    found: list[tuple[str, list[str]]] = []
    folders = ["/sys/fs/cgroup"]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue  # it has been removed since
        if (name := folder.rpartition("/")[2]) in scopes:
            found.append((folder, names))
        elif not name.startswith("shoal-"):  # another home's, however deep its tasks nest groups
            folders += [f"{folder}/{each}" for each in names]
    return found
