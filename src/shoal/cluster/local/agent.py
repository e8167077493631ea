"""The node agent: `python -m shoal.cluster.local.agent --home HOME --node NAME`.

One process per logical node, the judge of what runs there. It can be killed at any moment: tasks run
on under their supervisors, and the next agent finds them again. SIGTERM ends it alike; only
`ShutDown` ends its tasks too.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from shoal import __version__, statefiles
from shoal.clock import SteadyClock
from shoal.cluster.local import (
    components,
    groups,
    home,
    nodes,
    processes,
    protocol,
    recovery,
    supervisor_processes,
)
from shoal.cluster.local.execs import Execs, Readiness
from shoal.cluster.local.home import Home, Lock, Presence
from shoal.cluster.local.isolation import probe, syscalls
from shoal.cluster.local.loop import Loop
from shoal.cluster.local.node import Isolations, Node, report
from shoal.cluster.local.protocol import Answer, Call, frame
from shoal.cluster.local.serving import Client, Serving
from shoal.cluster.local.usage import Meter
from shoal.cluster.local.watchdog import Watchdog
from shoal.objects.errors import ShoalError, VersionSkew

LOCK_SECONDS = 1.0
REAP_SECONDS = 5.0
PRESENCE_SECONDS = 1.0
"""How often an agent looks whether its home is still there."""
POLL_SECONDS = 0.02
_SCRIPTS = ("/cluster/local/supervisor.py", "/cluster/local/isolation/enter.py")
_MOST_ANCESTORS = 10_000


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
    return task_folder(pid) == inside


def _serve(place: Home, name: str, lock: Lock) -> int:
    declaration = next((node for node in nodes.load(place) if node.name == name), None)
    if declaration is None:
        report(f"node {name} is not declared in {place.nodes_json}")
        return 2
    with contextlib.suppress(OSError):  # not on this system: orphans are then init's
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    processes.raise_file_limit()
    loop = Loop()
    node = Node(place, declaration, SteadyClock(), loop, _isolations(place, name))
    statefiles.on_damage(lambda sentence: loop.call(lambda: node.damaged(sentence)))
    recovery.recover(node)
    meter = Meter(node)
    execs = Execs(node)
    Readiness(node, execs)
    requests = Requests(node, execs, meter, os.getpid())
    listener = home.listen(node.paths.socket)
    inside = task_folder(os.getpid())
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
        meter.close()
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


class Requests:
    """Carries clients' calls to the node. Belongs to the loop's thread."""

    def __init__(self, node: Node, execs: Execs, meter: Meter, pid: int) -> None:
        self._node = node
        self._execs = execs
        self._meter = meter
        self._pid = pid

    def handle(self, client: Client, call: Call) -> None:
        """Do what is asked; the answer follows once it is durable."""
        fail = functools.partial(client.fail, call.id)
        self._node.turn.otherwise(fail)
        try:
            self._handle(client, call)
        except ShoalError as error:
            self._node.turn.after(functools.partial(fail, error))

    def _handle(self, client: Client, call: Call) -> None:
        node, request = self._node, call.request
        result: Any = None  # Any: each request has its own
        match request:
            case protocol.Hello():
                result = self._greet(request)
            case protocol.Ping():
                pass
            case protocol.Describe():
                result = node.state()
            case protocol.Watch():
                node.turn.after(functools.partial(self._watch, client))
            case protocol.Admit():
                result = node.admit(request.specs)
            case protocol.Release():
                node.release(request.tasks)
            case protocol.Launch():
                node.launch(request.tasks)
            case protocol.StopTask():
                node.stop(request.task, request.grace_seconds, request.reason)
            case protocol.Acknowledge():
                node.acknowledge(request.task)
            case protocol.ForgetJob():
                node.forget_job(request.namespace, request.job_uid, request.outputs)
            case protocol.Measure():
                result = self._meter.usages(request.tasks)
            case protocol.Exec():
                self._execs.start(client, call.id, request)
                return
            case protocol.ShutDown():
                self._shut_down(request.grace_seconds, functools.partial(client.answer, call.id))
                return
        node.turn.after(functools.partial(client.answer, call.id, result))

    def _greet(self, request: protocol.Hello) -> protocol.Greeting:
        name = self._node.declaration.name
        if request.version != protocol.VERSION:
            raise VersionSkew(
                f"the agent of node {name} is of Shoal {__version__} and does not work with this one",
                hint="shoal down, then shoal up",
            )
        return protocol.Greeting(version=protocol.VERSION, node=name, pid=self._pid, shoal=__version__)

    def _watch(self, client: Client) -> None:
        client.watching = True
        client.send(frame(Answer(changes=self._node.snapshot())))

    def _shut_down(self, grace_seconds: float, answer: Callable[[], None]) -> None:
        """Stop every task; when the last has ended, answer and exit."""
        for key in list(self._node.ledger.tasks):
            self._node.stop(key, grace_seconds, "Shutdown")
        if any(record.holds_capacity for record in self._node.ledger.tasks.values()):
            self._node.loop.later(
                POLL_SECONDS, functools.partial(self._shut_down, grace_seconds, answer)
            )
            return
        self._node.turn.after(answer)
        self._node.turn.after(self._node.loop.stop)


def task_folder(pid: int) -> str | None:
    """The folder (`launch`) of the task that the process belongs to; None when it is no task's."""
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return None
        folder = supervisor_processes.argument_of(pid, *_SCRIPTS)
        if folder is not None:
            return folder
        pid = supervisor_processes.parent(pid)
    return None


if __name__ == "__main__":
    sys.exit(main())
