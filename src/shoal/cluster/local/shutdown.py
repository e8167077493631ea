"""Takes a home down: nothing of it runs any more, and nothing starts it again but a person.

1. `run/down` is there, so that no watchdog restarts what ends now.
2. The server ends, before it could replace tasks that are about to end.
3. Every agent stops its tasks (reason `Shutdown`), keeps how they ended for the next time, and ends; all
   at the same time, so that it takes one grace period. An agent that is not up but has tasks is started
   for that.
4. What still runs for this path, such as what was left when the home was removed under it, is killed.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shoal import faults
from shoal.cluster.local import components, groups, home, nodes, processes, protocol, taskfiles
from shoal.cluster.local.components import SERVER, component_of
from shoal.cluster.local.home import Home, Lock
from shoal.objects.errors import ShoalError, Unavailable

MARGIN_SECONDS = 15.0
"""Beyond the grace, for killing and cleaning up."""


@dataclass(frozen=True)
class Stopped:
    """What `shut_down` had to end; nothing when all was down."""

    server: bool = False
    nodes: tuple[str, ...] = ()
    orphans: int = 0
    """Processes of this path that belonged to a home that was removed."""

    def __bool__(self) -> bool:
        return self.server or bool(self.nodes) or bool(self.orphans)


def shut_down(home: Home, *, grace_seconds: float = 10.0) -> Stopped:
    """End everything of the home, its tasks with SIGTERM and after the grace with SIGKILL.

    Raises:
        Unavailable: something does not end; the rest has.
    """
    if not home.run.is_dir():
        return Stopped(orphans=_kill_orphans(home))
    lock = Lock(home.run / "components.lock")
    try:
        lock.acquire(MARGIN_SECONDS)
    except TimeoutError as error:
        raise Unavailable(
            "another process has been starting or stopping this home for too long", hint=str(error)
        ) from error
    with lock:
        home.down.touch(mode=0o600)
        faults.point("shutdown.marked")
        server = components.terminate(home, SERVER)
        faults.point("shutdown.server.ended")
        names = _nodes(home)
        with ThreadPoolExecutor(len(names) or 1, "end-node") as pool:
            results = list(pool.map(partial(_end_node_and_groups, home, grace_seconds), names))
        ended = [name for name, result in zip(names, results, strict=True) if result is True]
        problems = [result for result in results if isinstance(result, str)]
    if problems:
        raise Unavailable(f"not everything could be ended: {'; '.join(problems)}")
    return Stopped(server=server, nodes=tuple(ended), orphans=_kill_orphans(home))


def _kill_orphans(home: Home) -> int:
    """Components first, which would start others; a supervisor takes its task along."""
    found: set[int] = set()
    deadline = time.monotonic() + MARGIN_SECONDS
    while left := processes.of_home(str(home.path)):
        found.update(left)
        for pid in left:
            processes.kill(pid)
        if time.monotonic() > deadline:
            raise Unavailable(f"processes {', '.join(map(str, left))} of this home do not end")
        time.sleep(0.02)
    return len(found)


def _nodes(home: Home) -> list[str]:
    """Those that are declared, and those that once were and left tasks that run, or an agent."""
    found = {node.name for node in nodes.load(home)}
    if home.nodes.is_dir():
        found |= {path.name for path in home.nodes.iterdir() if path.is_dir()}
    return sorted(found)


def _end_node_and_groups(place: Home, grace_seconds: float, name: str) -> bool | str:
    """True when there was something to end; a sentence when it does not end."""
    try:
        ended = _end_node(place, name, grace_seconds)
        groups.release(place.node(name))
    except ShoalError as error:
        return f"node {name}: {error.message}"
    return ended


def _end_node(place: Home, name: str, grace_seconds: float) -> bool:
    """True when there was something to end."""
    component = component_of(name)
    up = place.component_lock(component).holder() is not None
    if not up and not any(_runs(folder) for folder in _entries(place.node(name).tasks)):
        return False
    deadline = time.monotonic() + grace_seconds + MARGIN_SECONDS
    if not up:
        components.start(place, component)
    path = place.node(name).socket
    while not components.is_up(place, component):
        if time.monotonic() > deadline:
            raise Unavailable("its agent does not answer")
        time.sleep(0.01)
    process = components.running(place, component)
    with home.connect(path, max(1.0, deadline - time.monotonic())) as connection:
        protocol.ask(connection, protocol.ShutDown(grace_seconds=grace_seconds), type(None))
    if process is not None and not components.await_end(process, MARGIN_SECONDS):
        components.terminate(place, component, 0.0)
    return True


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _runs(folder: Path) -> bool:
    """True while something of the task lives: its supervisor, or what that left."""
    return Lock(folder / taskfiles.LOCK).holder() is not None
