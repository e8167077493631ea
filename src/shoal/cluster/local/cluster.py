"""`LocalCluster`: all nodes of a home as one `shoal.cluster.base.Cluster`.

**Start** has two phases. Every node of the group admits its part, or what was admitted is released
everywhere; then, with all endpoints known, `tell` says what each task is told, and every node launches
its part. Each phase does nothing twice, so a start that was cut anywhere is repeated as a whole.

The cluster keeps no state but connections: what runs, the agents know. Nothing waits on an agent
without a deadline.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal import faults
from shoal.clock import Clock
from shoal.cluster.base import Listing, NodeState, Refused, Session, StopReason, Tell, Usage
from shoal.cluster.local import nodes, protocol, session
from shoal.cluster.local.home import Home
from shoal.cluster.local.link import OVERDUE_SECONDS, Link
from shoal.cluster.local.nodes import NodeDecl
from shoal.cluster.local.watching import LocalWatch, Watches
from shoal.history import segments
from shoal.objects.errors import NotFound, Unavailable
from shoal.objects.task import Endpoint, TaskKey, TaskSpec

__all__ = ["LocalCluster"]


class LocalCluster:
    """See the module's docstring and `shoal.cluster.base.Cluster`. Close it when done."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._lock = threading.Lock()
        self._watches = Watches()
        self._links: dict[str, Link] = {}
        self._declared: dict[str, NodeDecl] = {}
        self._read_at = -1
        self._refresh()

    def nodes(self) -> tuple[NodeState, ...]:
        """See `Cluster.nodes`. Never waits: an agent that stands still is known at the next call after a
        second."""
        links = self._refresh()
        for link in links.values():
            link.look()
        return tuple(
            link.state
            or NodeState(
                name=name,
                ready=False,
                capacity=self._declared[name].capacity,
                message=link.message or "its agent does not answer",
                labels=self._declared[name].labels,
            )
            for name, link in sorted(links.items())
        )

    def list(self) -> Listing:
        """See `Cluster.list`."""
        links = self._refresh()
        probes = {name: link.ping() for name, link in links.items()}
        deadline = time.monotonic() + OVERDUE_SECONDS
        silent = {
            name
            for name, probe in probes.items()
            if probe is None or not probe.wait(max(0.0, deadline - time.monotonic()))
        }
        return Listing(
            tasks=tuple(task for name in sorted(links.keys() - silent) for task in links[name].tasks()),
            unreachable_nodes=tuple(sorted(silent)),
        )

    def start(self, group: tuple[TaskSpec, ...], tell: Tell) -> None:
        """See `Cluster.start`."""
        parts = _by_node(group)
        links = self._refresh()
        for name in parts.keys() - links.keys():
            self._release(parts, links)
            raise Refused(name, "NodeUnknown", f"there is no node {name} here")
        endpoints = self._admit(parts, links)
        faults.point("cluster.start.admitted")
        told = tell(group, tuple(endpoints[spec.key] for spec in group))
        launches = {
            name: links[name].submit(
                protocol.Launch(
                    tasks=tuple(
                        protocol.LaunchTask(task=spec.key, told=told[spec.name]) for spec in specs
                    )
                )
            )
            for name, specs in parts.items()
        }
        faults.point("cluster.start.sent")
        for launch in launches.values():
            launch.result(type(None))
        faults.point("cluster.start.launched")

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        """See `Cluster.stop`."""
        request = protocol.StopTask(task=task, grace_seconds=grace_seconds, reason=reason)
        self._of(task, request)

    def acknowledge(self, task: TaskKey) -> None:
        """See `Cluster.acknowledge`."""
        self._of(task, protocol.Acknowledge(task=task))

    def watch(self) -> LocalWatch:
        """See `Cluster.watch`."""
        return self._watches.open()

    def logs(self, task: TaskKey) -> Iterator[bytes]:
        """See `Cluster.logs`."""
        for folder in _log_folders(self._home.logs / task.namespace, task.name):
            for _, _, data in segments.Reader(str(folder)).read():
                yield data

    def exec(self, task: TaskKey, command: tuple[str, ...], *, tty: bool = False) -> Session:
        """See `Cluster.exec`."""
        link = self._holder(task)
        if link is None:
            raise NotFound(f"no task {task.name} runs")
        return session.open_session(self._home.node(link.node).socket, task, command, tty)

    def usage(self, task: TaskKey) -> Usage:
        """See `Cluster.usage`."""
        link = self._holder(task)
        if link is None:
            raise NotFound(f"no task {task.name} is here")
        return link.submit(protocol.Measure(task=task)).result(Usage)

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        """See `Cluster.cleanup_job`. Logs are history's, which forgets them itself.

        Raises:
            Unavailable: a node does not answer; the others have done it.
        """
        request = protocol.ForgetJob(namespace=namespace, job_uid=job_uid, outputs=outputs)
        failed: Unavailable | None = None
        for link in self._refresh().values():
            try:
                link.submit(request).result(type(None))
            except Unavailable as error:
                failed = error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Let go of the agents, which go on; idempotent."""
        with self._lock:
            links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def _admit(
        self, parts: dict[str, tuple[TaskSpec, ...]], links: dict[str, Link]
    ) -> dict[TaskKey, Endpoint]:
        """Admit all or none.

        Raises:
            Refused: none is.
            Unavailable: what is, stays, for the repeated start.
        """
        asked = {name: links[name].submit(protocol.Admit(specs=specs)) for name, specs in parts.items()}
        endpoints: dict[TaskKey, Endpoint] = {}
        refused: Refused | None = None
        silent: Unavailable | None = None
        for name, pending in asked.items():
            try:
                answers = pending.result(tuple[Endpoint, ...])
            except Refused as error:
                refused = error
            except Unavailable as error:
                silent = error
            else:
                endpoints.update(zip((spec.key for spec in parts[name]), answers, strict=True))
        if refused is not None:
            self._release(parts, links)
            raise refused
        if silent is not None:
            raise silent
        return endpoints

    def _release(self, parts: dict[str, tuple[TaskSpec, ...]], links: dict[str, Link]) -> None:
        """Take back what is admitted of the group, also by an earlier start that was cut."""
        for name in parts.keys() & links.keys():
            keys = tuple(spec.key for spec in parts[name])
            # a node that does not answer keeps them admitted, and shows them when it is back
            with contextlib.suppress(Unavailable):
                links[name].submit(protocol.Release(tasks=keys)).result(type(None))

    def _of(self, task: TaskKey, request: Any) -> None:  # Any: one of two requests
        link = self._holder(task)
        if link is not None:
            link.submit(request).result(type(None))

    def _holder(self, task: TaskKey) -> Link | None:
        """The link to the node that has the task; None when no node has it.

        Raises:
            Unavailable: a node that does not answer may have it.
        """
        links = self._refresh()
        for link in links.values():
            if link.find(task) is not None:
                return link
        silent = self.list().unreachable_nodes
        found = next((link for link in links.values() if link.find(task) is not None), None)
        if found is None and silent:
            raise Unavailable(f"node {silent[0]} does not answer, and may have task {task.name}")
        return found

    def _refresh(self) -> dict[str, Link]:
        """Links to all nodes that are declared now."""
        try:
            changed_at = self._home.nodes_json.stat().st_mtime_ns
        except FileNotFoundError:
            changed_at = 0
        closing: list[Link] = []
        with self._lock:
            if changed_at != self._read_at:
                self._read_at = changed_at
                self._declared = {node.name: node for node in nodes.load(self._home)}
                links = {name: self._links.get(name) or self._open(name) for name in self._declared}
                closing = [link for name, link in self._links.items() if name not in links]
                self._links = links
            found = self._links
        for link in closing:
            link.close()
        return found

    def _open(self, node: str) -> Link:
        return Link(node, self._home.node(node).socket, self._watches.tell)


def _by_node(group: tuple[TaskSpec, ...]) -> dict[str, tuple[TaskSpec, ...]]:
    parts: dict[str, tuple[TaskSpec, ...]] = {}
    for spec in group:
        parts[spec.placement.node] = (*parts.get(spec.placement.node, ()), spec)
    return parts


def _log_folders(logs: Path, task: str) -> list[Path]:
    """The folders that a task's log may be in: its name holds all but the whole of the job's uid."""
    rest, _, incarnation = task.rpartition("-")
    rest, _, index = rest.rpartition("-")
    if not logs.is_dir():
        return []
    found: list[Path] = []
    for job in sorted(logs.iterdir()):
        name, mark, role = rest.partition(f"-{job.name[:8]}-")
        folder = job / f"{role}-{index}-{incarnation}"
        if mark and folder.is_dir() and segments.job_name(str(logs.parent), logs.name, job.name) == name:
            found.append(folder)
    return found
