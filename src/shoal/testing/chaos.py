"""Harm to a running home: components and supervisors that die, stop, crawl, or cannot reach each other,
and disks that fill up; at a named point (`shoal.faults`), on demand, or at random.

    with LocalHome(path, nodes(one={}, two={}), server=True) as local:
        chaos = Chaos(local.home)                 # prints its seed
        chaos.kill("server")                      # SIGKILL; an agent starts it again
        with chaos.stopped("one"): ...            # SIGSTOP: its node does not answer
        with chaos.partitioned("two"): ...        # its agent is unreachable, its tasks go on
        marks = chaos.arm("one", "agent.admit.recorded", tmp_path / "marks")
        chaos.strike()                            # a random component

Random blows are drawn from a seed that is printed, so that the same choices can be made again; what they
meet depends on the machine. Components are `server` and the names of nodes. Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shoal.cluster.local import components, processes, supervisor_processes
from shoal.cluster.local.components import SERVER, component_of
from shoal.cluster.local.home import Home, Lock
from shoal.cluster.local.launch import SUPERVISOR
from shoal.testing.local import environment_with, wait_until

__all__ = ["Blow", "Chaos", "Victim", "fill", "full_disk"]

Kind = Literal["server", "agent", "supervisor"]

_PERIOD_SECONDS = 0.1
_PAGE_BYTES = 4096
_MOST_BYTES_TO_FILL = 256 << 20
_PIDFD_GETFD = 438  # the same number on every architecture


@dataclass(frozen=True)
class Blow:
    """What was done to which process, and when (wall time)."""

    at: float
    what: str
    whom: str


@dataclass(frozen=True)
class Victim:
    """A live supervisor: its process, and its task (`NAMESPACE.NAME`)."""

    task: str
    pid: int
    ticks: int


class Chaos:
    """See the module's docstring. `blows` is the record of all that was done. Not thread-safe."""

    def __init__(self, home: Home, *, seed: int = 0, say: Callable[[str], object] = print) -> None:
        """`seed` 0 draws one."""
        self.home = home
        self.seed = seed or random.SystemRandom().randrange(1, 1 << 32)
        self.random = random.Random(self.seed)
        self.blows: list[Blow] = []
        say(f"chaos: seed {self.seed}")

    def pid(self, component: str) -> int:
        """The component's process; 0 when it is not up."""
        return self.home.component_lock(_component(component)).holder() or 0

    def supervisors(self) -> list[Victim]:
        """Every supervisor of the home, by its task's name."""
        found: dict[int, str] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib makes an object of each)
            words = processes.command_line(int(name)) if name.isdigit() else []
            at = words.index(SUPERVISOR) + 1 if SUPERVISOR in words else len(words)
            if at < len(words) and Path(words[at]).is_relative_to(self.home.nodes):
                found[int(name)] = Path(words[at]).name
        # a task's init is a fork of its supervisor and has its words
        own = {pid: task for pid, task in found.items() if supervisor_processes.parent(pid) not in found}
        victims = [Victim(task, pid, processes.start_ticks(pid)) for pid, task in own.items()]
        return sorted((v for v in victims if v.ticks), key=lambda victim: victim.task)

    def kill(self, component: str) -> bool:
        """SIGKILL to a component; False when it is not up. Others of its home start it again."""
        return self._signal(component, signal.SIGKILL, "kill")

    def kill_supervisor(self, victim: Victim) -> bool:
        """SIGKILL to a supervisor; False when it has gone."""
        if not processes.send(victim.pid, victim.ticks, signal.SIGKILL):
            return False
        self._note("kill", f"supervisor of {victim.task}")
        return True

    def strike(self, kinds: Sequence[Kind] = ("server", "agent", "supervisor")) -> Blow | None:
        """Kill one of these, at random; None when the one that was drawn is not there now."""
        kind = self.random.choice(kinds)
        if kind == "supervisor":
            victims = self.supervisors()
            hit = bool(victims) and self.kill_supervisor(self.random.choice(victims))
        elif kind == "agent":
            names = sorted(path.name for path in self.home.nodes.iterdir())
            hit = self.kill(self.random.choice(names))
        else:
            hit = self.kill(SERVER)
        return self.blows[-1] if hit else None

    @contextlib.contextmanager
    def stopped(self, component: str) -> Generator[None, None, None]:
        """SIGSTOP for the length of the block: it holds its locks and sockets, and does not answer."""
        if not self._signal(component, signal.SIGSTOP, "stop"):
            raise LookupError(f"{component} is not up")
        try:
            yield
        finally:
            self._signal(component, signal.SIGCONT, "continue")

    @contextlib.contextmanager
    def slowed(self, component: str, share: float = 0.9) -> Generator[None, None, None]:
        """It stands still for that share of every tenth of a second."""
        over = threading.Event()
        pid = self.pid(component)
        ticks = processes.start_ticks(pid)

        def slow() -> None:
            while not over.is_set():
                processes.send(pid, ticks, signal.SIGSTOP)
                over.wait(share * _PERIOD_SECONDS)
                processes.send(pid, ticks, signal.SIGCONT)
                over.wait((1 - share) * _PERIOD_SECONDS)

        thread = threading.Thread(target=slow, name=f"slow-{component}")
        self._note("slow", component)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextlib.contextmanager
    def partitioned(self, node: str) -> Generator[None, None, None]:
        """The node's agent is unreachable and connections to it are cut; it goes on, as do its tasks.

        Raises:
            PermissionError: the kernel does not let this process into the agent's descriptors.
        """
        path = self.home.node(node).socket
        hidden = path.with_name(".partitioned")
        path.rename(hidden)
        (path / "partitioned").mkdir(parents=True)  # so that the agent cannot listen there again
        try:
            _cut(self.pid(node), f".{path.name}.{self.pid(node)}")
            self._note("partition", node)
            yield
        finally:
            (path / "partitioned").rmdir()
            path.rmdir()
            hidden.rename(path)

    def arm(
        self,
        component: str,
        point: str,
        marks: Path,
        *,
        action: str = "kill",
        nth: int = 1,
        also: Sequence[str] = (),
    ) -> Path:
        """Start the component anew, so that it (of an agent, also the supervisors it starts) does
        `action` at the nth visit of the named point. That happens once in all; the file that is returned
        is there from then on. Later starts of the component are unarmed.

        `marks` is a folder for that file; tasks with a point in their init must be able to write it.
        `also` are more entries as `shoal.faults` takes them.
        """
        marks.mkdir(exist_ok=True)
        name = _component(component)
        faults = ",".join([f"{point}:{action}:{nth}", *also])
        variables = {"SHOAL_FAULTS": faults, "SHOAL_FAULTS_ONCE": str(marks)}
        lock = Lock(self.home.run / "components.lock")  # so that no other component starts it
        lock.acquire(30.0)
        with lock, environment_with(variables):
            old = components.running(self.home, name)
            if old is not None:
                processes.send(old.pid, old.ticks, signal.SIGKILL)
                components.await_end(old, 10.0)
            pid = components.start(self.home, name)
            wait_until(
                lambda: components.reap(pid) or components.is_up(self.home, name),
                what=f"{component} is up again, or dead",
            )
        self._note(f"arm {point}:{action}:{nth}", component)
        return marks / f"{point}:{action}:{nth}"

    def _signal(self, component: str, number: signal.Signals, what: str) -> bool:
        running = components.running(self.home, _component(component))
        if running is None or not processes.send(running.pid, running.ticks, number):
            return False
        self._note(what, component)
        return True

    def _note(self, what: str, whom: str) -> None:
        self.blows.append(Blow(time.time(), what, whom))


@contextlib.contextmanager
def full_disk(folder: Path) -> Generator[None, None, None]:
    """The folder's file system has no room left for the length of the block.

    Raises:
        ValueError: it is so large that it is hardly a test's own.
    """
    filler = fill(folder)
    try:
        yield
    finally:
        filler.unlink()


def _component(name: str) -> str:
    return name if name == SERVER else component_of(name)


def _cut(pid: int, bound_to: str) -> None:
    """Shut down the connections of that process that came in through the socket of that name."""
    inodes = {
        words[6]
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]
        if len(words := line.split()) == 8 and words[7].endswith(bound_to) and words[5] == "03"
    }
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = entry.readlink().name
            except FileNotFoundError:
                continue  # it has been closed since
            if target.removeprefix("socket:[").removesuffix("]") not in inodes:
                continue
            copy = libc.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
            if copy < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(entry))
            with socket.socket(fileno=copy) as connection, contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(process)


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Take all the room of the folder's file system but so much: the file that does, to be removed.

    Raises:
        ValueError: the file system is so large that it is hardly a test's own.
    """
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize > _MOST_BYTES_TO_FILL:
        raise ValueError(f"{folder} is on a large file system; a small tmpfs is what this is for")
    filler = folder / ".filler"
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(_PAGE_BYTES))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        file.truncate(max(0, file.tell() - leave_bytes))
    return filler
