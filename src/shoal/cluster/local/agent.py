"""The node agent: `python -m shoal.cluster.local.agent --home HOME --node NAME`.

One process per logical node, the judge of what runs there. It can be killed at any moment: tasks run
on under their supervisors, and the next agent finds them again. SIGTERM ends it alike; only
`ShutDown` ends its tasks too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import sys

from shoal.clock import SteadyClock
from shoal.cluster.local import components, groups, home, nodes, processes, recovery
from shoal.cluster.local.execs import Execs
from shoal.cluster.local.home import Home, Lock, Presence
from shoal.cluster.local.isolation import peers, probe, syscalls
from shoal.cluster.local.loop import Loop
from shoal.cluster.local.node import Isolations, Node, report
from shoal.cluster.local.readiness import Readiness
from shoal.cluster.local.requests import Requests
from shoal.cluster.local.serving import Serving
from shoal.cluster.local.usage import Meter
from shoal.cluster.local.watchdog import Watchdog

__all__ = ["cgroup_scope", "main", "welcome"]

LOCK_SECONDS = 1.0
REAP_SECONDS = 5.0
PRESENCE_SECONDS = 1.0
"""How often an agent looks whether its home is still there."""
FILES = 65_536


def main() -> int:
    """Run until it is asked to end; the process' exit code."""
    parser = argparse.ArgumentParser(prog="shoal.cluster.local.agent")
    parser.add_argument("--home", required=True)
    parser.add_argument("--node", required=True)
    arguments = parser.parse_args()
    os.umask(0o077)
    processes.close_inherited_on_exec()
    place = Home(arguments.home).create()
    os.chdir("/")
    lock = place.component_lock(components.component_of(arguments.node))
    try:
        lock.acquire(LOCK_SECONDS)
    except TimeoutError as error:
        report(f"node {arguments.node} has its agent already: {error}")
        return 0
    with lock:
        return _serve(place, arguments.node, lock)


def welcome(pid: int, uid: int, inside: str | None) -> bool:
    """The owner (or root), and not from within a task, of whichever home. `inside` is the folder of the
    task that this agent itself runs in: a home that a task has made is that task's to use."""
    if pid <= 0 or uid not in (os.geteuid(), 0):
        return False
    return peers.task_folder(pid) == inside


def cgroup_scope(place: Home, name: str) -> str:
    """What the node's control groups are called by."""
    return groups.scope(place.node(name))


def _serve(place: Home, name: str, lock: Lock) -> int:
    declaration = next((node for node in nodes.load(place) if node.name == name), None)
    if declaration is None:
        report(f"node {name} is not declared in {place.nodes_json}")
        return 2
    with contextlib.suppress(OSError):  # not on this system: orphans are then init's
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    _raise_limits()
    loop = Loop()
    node = Node(place, declaration, SteadyClock(), loop, _isolations(place, name))
    recovery.recover(node)
    meter = Meter(node)
    execs = Execs(node)
    Readiness(node, execs)
    requests = Requests(node, execs, meter, os.getpid())
    listener = home.listen(node.paths.socket)
    inside = peers.task_folder(os.getpid())
    serving = Serving(
        loop, listener, requests.handle, report, lambda pid, uid: welcome(pid, uid, inside)
    )
    node.on_change = serving.send_changes
    node.on_state = serving.send_state
    meter.open()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, loop.stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _reap(node)
    _check_home(node, serving, lock, Presence(lock, [node.paths.socket]))
    watchdog = Watchdog(place, lambda: _kept(place))
    watchdog.open()
    try:
        loop.run()
    finally:
        watchdog.close()
        serving.close()
        node.close()
    return 0


def _check_home(node: Node, serving: Serving, lock: Lock, presence: Presence) -> None:
    """Make the socket anew when it is gone. End when the home is: then its tasks have nothing to return
    to, and end too."""
    why = presence.lost()
    if why and not presence.home_is_ours:
        report(f"this agent ends: {why}")
        node.kill_all()
        node.loop.stop()
        return
    if why:
        report(f"{why}; it is made anew")
        try:
            serving.listen(home.listen(node.paths.socket))
            presence = Presence(lock, [node.paths.socket])
        except OSError as error:
            report(f"{node.paths.socket} cannot be made: {error}")
    node.loop.later(PRESENCE_SECONDS, lambda: _check_home(node, serving, lock, presence))


def _raise_limits() -> None:
    """Each task takes a descriptor or two, each client more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _isolations(place: Home, name: str) -> Isolations:
    found = probe.probe(place.run / "isolations.json")
    lacking = [f"{isolation}: {why}" for isolation, why in found.items() if why != "enforced"]
    parents = groups.prepare(place.node(name).create())
    return Isolations(states=found, strict_refusal="; ".join(lacking), cgroup_parents=parents)


def _kept(place: Home) -> list[str]:
    """The server, once there was one: a home may have agents alone."""
    has_had = place.component_lock(components.SERVER).path.exists()
    return [components.SERVER] if has_had else []


def _reap(node: Node) -> None:
    node.reap()
    node.loop.later(REAP_SECONDS, lambda: _reap(node))


if __name__ == "__main__":
    sys.exit(main())
