"""The processes of a home: one server and an agent per declared node. Started here, kept alive, ended.

Each is a process of its own, in a session of its own, with its output in `log/`; it holds the lock of
its name for as long as it lives, so there is never a second one, whichever process starts it. All
starting and ending in a home happens under one lock (`run/components.lock`), so callers that race see
one another's work. While `run/down` exists nothing is started again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from shoal.cluster.local import groups, nodes, processes
from shoal.cluster.local import home as homes
from shoal.cluster.local.home import Home, Lock
from shoal.cluster.local.nodes import NodeDecl
from shoal.objects.errors import Conflict, Unavailable

SERVER = "server"

_NODE_PREFIX = "node-"
_POLL_SECONDS = 0.005
_FOREIGN = ("SHOAL_API", "SHOAL_TOKEN", "SHOAL_JOB", "SHOAL_NAMESPACE", "SHOAL_ROLE", "SHOAL_INDEX")
"""What a task's environment has: a component started from within a task belongs to no task."""


@dataclass(frozen=True)
class Started:
    """What `ensure_up` had to start; nothing when all was up."""

    server: bool = False
    nodes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.server or bool(self.nodes)


def ensure_up(
    home: Home,
    declared: Sequence[NodeDecl] | None = None,
    *,
    server: bool = True,
    timeout_seconds: float = 30.0,
) -> Started:
    """Start what is not up of the home, and return once all of it answers.

    `declared` replaces the home's nodes; None keeps them, or declares the machine as one node. The
    agent of a changed node is started anew, which its tasks do not notice.

    Raises:
        Conflict: a node that is no longer declared still has tasks.
        Unavailable: a component does not come up; says where it said why. Or this is not Linux.
    """
    if sys.platform != "linux":
        raise Unavailable(
            f"jobs run on Linux only, and this is {sys.platform}",
            hint="use a server on a Linux machine: shoal login",
        )
    home.create()
    lock = Lock(home.run / "components.lock")
    deadline = time.monotonic() + timeout_seconds
    try:
        lock.acquire(timeout_seconds)
    except TimeoutError as error:
        raise Unavailable(
            "another process has been starting or stopping this home for too long", hint=str(error)
        ) from error
    with lock:
        home.down.unlink(missing_ok=True)
        _declare(home, declared, deadline)
        missing = [c for c in components_of(home) if (server or c != SERVER) and not is_up(home, c)]
        started = {component: start(home, component) for component in missing}
        for component, pid in started.items():
            _wait_up(home, component, pid, deadline)
    return Started(server=SERVER in started, nodes=tuple(node_of(c) for c in started if c != SERVER))


def components_of(home: Home) -> list[str]:
    """The names of all components that the home should have."""
    return [SERVER, *(component_of(node.name) for node in nodes.load(home))]


def component_of(node: str) -> str:
    """The component name of a node's agent."""
    return _NODE_PREFIX + node


def node_of(component: str) -> str:
    """The node of an agent's component name."""
    return component.removeprefix(_NODE_PREFIX)


def is_up(home: Home, component: str) -> bool:
    """True when the component lives and can be connected to."""
    if home.component_lock(component).holder() is None:
        return False
    path = home.api_socket if component == SERVER else home.node(node_of(component)).socket
    try:
        homes.connect(path, 1.0).close()
    except OSError:
        return False
    return True


def start(home: Home, component: str) -> int:
    """Start one component and return its pid at once. Of two, one finds the lock taken and goes.

    Raises:
        OSError: no process can be started.
    """
    module = "shoal.server" if component == SERVER else "shoal.cluster.local.agent"
    words = [sys.executable, "-P", "-m", module, "--home", str(home.path)]
    if component != SERVER:
        words += ["--node", node_of(component)]
    environment = {k: v for k, v in os.environ.items() if k not in _FOREIGN}
    environment["SHOAL_HOME"] = str(home.path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(home.component_log(component), flags, 0o600)
    try:
        with processes.SPAWNING:
            return os.posix_spawn(
                sys.executable,
                words,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD),
            )
    finally:
        os.close(log)


@dataclass(frozen=True)
class Running:
    """A component's process."""

    pid: int
    ticks: int
    """When it began: a pid alone may come to mean another."""
    lock: Lock

    def ended(self) -> bool:
        """True once it is gone, and collected if it was our child. Its first thread may be gone before
        the others, so the lock has to be free too."""
        gone = reap(self.pid) or not processes.alive(self.pid, self.ticks)
        return gone and self.lock.holder() != self.pid


def running(home: Home, component: str) -> Running | None:
    """The process that has the component's lock; None when it is free."""
    lock = home.component_lock(component)
    deadline = time.monotonic() + 1.0
    while (pid := lock.holder()) == 0 and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)  # it has not yet written its pid
    if not pid:
        return None
    found = Running(pid, processes.start_ticks(pid), lock)
    return found if lock.holder() == pid else None  # so the ticks are its own


def terminate(home: Home, component: str, timeout_seconds: float = 10.0) -> bool:
    """End one component, by SIGTERM and after the timeout by SIGKILL; True when it was up. An agent
    leaves its tasks as they are.

    Raises:
        Unavailable: it does not end.
    """
    process = running(home, component)
    if process is None:
        return False
    for number, patience in ((signal.SIGTERM, timeout_seconds), (signal.SIGKILL, 5.0)):
        processes.send(process.pid, process.ticks, number)
        if await_end(process, patience):
            return True
    raise Unavailable(f"the {component} of this home (process {process.pid}) does not end")


def await_end(process: Running, timeout_seconds: float) -> bool:
    """True when the process has ended within that time."""
    deadline = time.monotonic() + timeout_seconds
    while not process.ended():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def reap(pid: int) -> bool:
    """Collect a child that has ended; False while it lives, True also when it is not our child."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not processes.start_ticks(pid)


def _declare(home: Home, declared: Sequence[NodeDecl] | None, deadline: float) -> None:
    before = {node.name: node for node in nodes.load(home)}
    if declared is None:
        up = any(running(home, component_of(name)) is not None for name in before)
        if nodes.is_default(home) and not up:
            nodes.save(home, nodes.declare(), by_default=True)  # the machine may have changed
        return
    after = {node.name: node for node in declared}
    if after == before:
        return
    busy = [name for name in sorted(before.keys() - after.keys()) if _has_tasks(home, name)]
    if busy:
        names, many = " ".join(busy), len(busy) > 1
        raise Conflict(
            f"node{'s' * many} {', '.join(busy)} still {'have' if many else 'has'} tasks, or ends of "
            f"tasks that were not reported yet, so {'they' if many else 'it'} cannot go",
            hint=f"bring all of it up (shoal up), empty what goes (shoal drain {names}), then again",
        )
    nodes.save(home, declared)
    for name, node in before.items():
        if after.get(name) != node:
            terminate(home, component_of(name), max(0.1, deadline - time.monotonic()))
        if name not in after:
            groups.release(home.node(name))


def _has_tasks(home: Home, node: str) -> bool:
    tasks = home.node(node).tasks
    return tasks.is_dir() and any(tasks.iterdir())


def _wait_up(home: Home, component: str, pid: int, deadline: float) -> None:
    """Raises:
    Unavailable: it ended, or the deadline passed.
    """
    while not is_up(home, component):
        # one that found the lock taken ends, and the one that took it comes up
        ended = reap(pid) and home.component_lock(component).holder() is None
        if ended or time.monotonic() > deadline:
            raise Unavailable(
                f"the {component} of this home {'ended at once' if ended else 'does not answer'}"
                f"{_last_line(home, component)}",
                hint=f"see {home.component_log(component)}",
            )
        time.sleep(_POLL_SECONDS)


def _last_line(home: Home, component: str) -> str:
    try:
        text = home.component_log(component).read_bytes()[-2000:].decode(errors="replace").strip()
    except OSError:
        return ""
    return f": {text.splitlines()[-1]}" if text else ""
