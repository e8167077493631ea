"""`LocalCluster`: all nodes of a home as one `shoal.cluster.base.Cluster`.

**Admission** of a group has one step per node and one decision. Every node is asked at once to admit its
part; when all have answered, the group is admitted, or one refused and what the others admitted is
released. Until then its tasks are `Pending`; a refused group stays listed here until it is acknowledged.
Both are kept in this process alone: what a server that died was about to do, the next `ensure` does.

Nothing but connections and unfinished admissions is kept: what runs, the agents know. `ensure`,
`bootstrap`, `stop` and `acknowledge` send a request and return; an agent does what it is sent in order.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shoal import faults
from shoal.clock import Clock
from shoal.cluster.base import (
    Listing,
    NodeState,
    NodeWatch,
    Outcome,
    Refusal,
    Refused,
    Session,
    StopReason,
    Task,
    TaskWatch,
    Usage,
    Watches,
)
from shoal.cluster.local import nodes, protocol, session
from shoal.cluster.local.home import Home
from shoal.cluster.local.isolation import relay
from shoal.cluster.local.link import OVERDUE_SECONDS, Link, Pending
from shoal.cluster.local.nodes import NodeDecl
from shoal.history import segments
from shoal.objects.errors import Conflict, NotFound, ShoalError, Unavailable
from shoal.objects.task import Endpoint, TaskBootstrap, TaskKey, TaskSpec

_RETRY_SECONDS = 1.0
"""A node that could not record an admission (its disk is full) is asked again after so long."""


class _Admission:
    """A group that awaits answers of nodes, or that was refused. Guarded by the cluster's lock."""

    def __init__(self, group: tuple[TaskSpec, ...]) -> None:
        self.parts: dict[str, tuple[TaskSpec, ...]] = {}
        for spec in group:
            self.parts[spec.placement.node] = (*self.parts.get(spec.placement.node, ()), spec)
        self.waiting = set(self.parts)
        self.refusal: Refusal | None = None
        self.retry_at: float | None = None
        """Monotonic; set when a node did not answer: the admission is asked for again."""
        self.problem = ""
        """Why a node could not record it."""

    @property
    def under_way(self) -> bool:
        """True while asking again changes nothing."""
        return self.retry_at is None or time.monotonic() < self.retry_at


class LocalCluster:
    """See the module's docstring and `shoal.cluster.base.Cluster`. Close it when done."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._lock = threading.Lock()
        self._watches = Watches()
        self._links: dict[str, Link] = {}
        self._admissions: dict[TaskKey, tuple[_Admission, Task]] = {}
        """Pending and refused tasks."""
        self._declared: dict[str, NodeDecl] = {}
        self._read_at = -1
        self._refresh()

    def nodes(self) -> tuple[NodeState, ...]:
        """See `Cluster.nodes`. Never waits: an agent that stands still is known after a second."""
        links = self._refresh()
        return tuple(
            self._declared[name].state(link.state, link.message)
            for name, link in sorted(links.items())
            if name in self._declared
        )

    def list(self) -> Listing:
        links = self._refresh()
        probes = {name: link.ping() for name, link in links.items()}
        deadline = time.monotonic() + OVERDUE_SECONDS
        unreachable = {
            name
            for name, probe in probes.items()
            if probe is None or not probe.wait(max(0.0, deadline - time.monotonic()))
        }
        with self._lock:  # first: a group that is admitted goes from here once the agents list it
            here = {key: task for key, (_, task) in self._admissions.items()}
        refused = {key for key, task in here.items() if task.refusal is not None}
        there = {
            task.spec.key: task
            for name in sorted(links.keys() - unreachable)
            for task in links[name].tasks()
            if task.spec.key not in refused
        }
        pending = (
            task
            for key, task in here.items()
            if key not in there and (task.refusal or task.spec.placement.node not in unreachable)
        )
        return Listing(tasks=(*there.values(), *pending), unreachable_nodes=tuple(sorted(unreachable)))

    def ensure(self, group: tuple[TaskSpec, ...]) -> None:
        links = self._refresh()
        admission = _Admission(group)
        for name in admission.parts.keys() & links.keys():
            if not links[name].answering:
                raise _unavailable(name)
        refusal = _beyond_this_cluster(group, links.keys())
        with self._lock:
            known = [spec.key for spec in group if self._is_known(spec, links)]
            asked = (self._admissions.get(key, (None, None))[0] for key in known)
            problem = next((each.problem for each in asked if each is not None), "")
            if problem:
                raise Unavailable(problem)
            if len(known) == len(group):
                return
            pending = [Task(spec=spec, phase="Pending") for spec in group if not self._runs(spec, links)]
            for task in pending:
                self._admissions[task.spec.key] = (admission, task)
        self._watches.push(pending)
        if refusal is not None:
            self._refuse(admission, refusal, links)
            return
        for name, specs in admission.parts.items():
            answered = functools.partial(self._answered, admission, name)
            try:
                links[name].post(protocol.Admit(specs=specs)).then(answered)
            except Unavailable:
                answered(None)
        faults.point("cluster.ensure.sent")

    def bootstrap(self, tasks: Mapping[TaskKey, TaskBootstrap]) -> None:
        links = self._refresh()
        parts: dict[str, list[protocol.LaunchTask]] = defaultdict(list)
        for key, bootstrap in tasks.items():
            for name, link in links.items():
                if link.find(key) is not None:
                    parts[name].append(protocol.LaunchTask(task=key, bootstrap=bootstrap))
        unreachable: Unavailable | None = None
        for name, launches in parts.items():
            try:
                links[name].post(protocol.Launch(tasks=tuple(launches)))
            except Unavailable as error:
                unreachable = error
        faults.point("cluster.bootstrap.sent")
        if unreachable is not None:
            raise unreachable

    def stop(self, task: TaskKey, *, grace_seconds: float, reason: StopReason) -> None:
        with self._lock:
            admission, _ = self._admissions.get(task, (None, None))
            stalled = admission is not None and not admission.refusal and admission.retry_at is not None
            if stalled:  # nothing is under way: it is not wanted any more
                del self._admissions[task]
        if stalled:
            self._watches.missed()
        self._post(task, protocol.StopTask(task=task, grace_seconds=grace_seconds, reason=reason))

    def acknowledge(self, task: TaskKey) -> None:
        with self._lock:
            admission, _ = self._admissions.get(task, (None, None))
            if admission is not None and admission.refusal is not None:
                del self._admissions[task]
                return
        self._post(task, protocol.Acknowledge(task=task))

    def watch(self) -> TaskWatch:
        return self._watches.open()

    def watch_nodes(self) -> NodeWatch:
        return self._watches.open_nodes()

    def logs(self, task: TaskKey) -> Iterator[bytes]:
        for folder in _log_folders(self._home.logs / task.namespace, task.name):
            for _, _, data in segments.Reader(str(folder)).read():
                yield data

    def exec(self, task: TaskKey, command: tuple[str, ...], *, tty: bool = False) -> Session:
        link = self._holder(task)
        if link is None:
            raise NotFound(f"no task {task.name} runs")
        return session.open_session(self._home.node(link.node).socket, task, command, tty)

    def forward(self, task: TaskKey, port: int) -> Session:
        """See `Cluster.forward`: a command beside the task makes the connection, in its network."""
        return self.exec(task, (sys.executable, "-I", "-S", relay.__file__, str(port)))

    def usage(self, tasks: Iterable[TaskKey]) -> dict[TaskKey, Usage]:
        parts: dict[str, list[TaskKey]] = defaultdict(list)
        links = self._refresh()
        for key in tasks:
            for name, link in links.items():
                if link.find(key) is not None:
                    parts[name].append(key)
        asked: list[tuple[list[TaskKey], Pending]] = []
        for name, keys in parts.items():
            with contextlib.suppress(Unavailable):  # left out, as the contract says
                asked.append((keys, links[name].post(protocol.Measure(tasks=tuple(keys)))))
        deadline = time.monotonic() + OVERDUE_SECONDS
        found: dict[TaskKey, Usage] = {}
        for keys, pending in asked:
            with contextlib.suppress(Unavailable):
                patience = max(0.0, deadline - time.monotonic())
                usages = pending.result(tuple[Usage | None, ...], patience)
                found.update((key, use) for key, use in zip(keys, usages, strict=True) if use)
        return found

    def cleanup_job(self, namespace: str, job_uid: str, *, outputs: bool) -> None:
        """See `Cluster.cleanup_job`. Logs are history's, which removes them itself."""
        request = protocol.ForgetJob(namespace=namespace, job_uid=job_uid, outputs=outputs)
        failed: Unavailable | None = None
        asked: list[Pending] = []
        for link in self._refresh().values():
            try:
                asked.append(link.post(request))
            except Unavailable as error:
                failed = error
        deadline = time.monotonic() + OVERDUE_SECONDS
        for pending in asked:
            try:
                pending.result(type(None), max(0.0, deadline - time.monotonic()))
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

    def _is_known(self, spec: TaskSpec, links: Mapping[str, Link]) -> bool:
        """Asking for the task again changes nothing. With the lock held."""
        admission, _ = self._admissions.get(spec.key, (None, None))
        if admission is not None:
            return admission.under_way
        return any(link.find(spec.key) is not None for link in links.values())

    def _runs(self, spec: TaskSpec, links: Mapping[str, Link]) -> bool:
        """The task was started, so no refusal takes it back."""
        found = (link.find(spec.key) for link in links.values())
        return any(task is not None and (task.bootstrapped or task.outcome) for task in found)

    def _answered(self, admission: _Admission, node: str, pending: Pending | None) -> None:
        """One node has admitted its part or refused it; None: it was not asked."""
        retry_at: float | None = None
        refusal: Refusal | None = None
        problem = ""
        try:
            if pending is None:
                retry_at = 0.0
            else:
                pending.result(tuple[Endpoint, ...], 0.0)
        except Refused as error:
            refusal = Refusal(node=error.node, reason=error.reason, message=error.message)
        except Conflict as error:
            refusal = Refusal(node=node, reason="NameUsed", message=error.message)
        except ShoalError as error:  # the connection is lost, or the ledger cannot be written
            retry_at = time.monotonic() + _RETRY_SECONDS
            problem = error.message
        with self._lock:
            admission.problem = admission.problem or problem
            admission.waiting.discard(node)
            admission.refusal = admission.refusal or refusal
            if retry_at is not None:
                admission.retry_at = retry_at
            if admission.waiting:
                return
            refusal = admission.refusal
            if refusal is None:
                if admission.retry_at is None:
                    self._forget(admission)
                    faults.point("cluster.ensure.admitted")
                return
            links = dict(self._links)
        self._refuse(admission, refusal, links)

    def _forget(self, admission: _Admission) -> None:
        for key in [key for key, (each, _) in self._admissions.items() if each is admission]:
            del self._admissions[key]

    def _refuse(self, admission: _Admission, refusal: Refusal, links: Mapping[str, Link]) -> None:
        """Release what is admitted of the group, also by an earlier admission that was cut."""
        outcome = Outcome(reason="Refused", exit_code=-1, message=refusal.message)
        refused: list[Task] = []
        with self._lock:
            admission.refusal = refusal
            for key, (each, task) in list(self._admissions.items()):
                if each is admission:
                    ended = Task(
                        spec=task.spec,
                        phase="Ended",
                        outcome=outcome,
                        refusal=refusal,
                        ended=self._clock.now(),
                    )
                    self._admissions[key] = (admission, ended)
                    refused.append(ended)
        for name in admission.parts.keys() & links.keys():
            keys = tuple(task.spec.key for task in refused if task.spec.placement.node == name)
            # a node that does not answer keeps them admitted, and shows them when it is back
            with contextlib.suppress(Unavailable):
                links[name].post(protocol.Release(tasks=keys))
        faults.point("cluster.ensure.refused")
        self._watches.push(refused)

    def _post(self, task: TaskKey, request: Any) -> None:  # Any: one of two requests
        link = self._holder(task)
        if link is not None:
            link.post(request)

    def _holder(self, task: TaskKey) -> Link | None:
        """The link to the node that has the task, or is asked to admit it; None when no node has it.

        Raises:
            Unavailable: a node that does not answer may have it.
        """
        links = self._refresh()
        for link in links.values():
            if link.find(task) is not None:
                return link
        with self._lock:
            _, pending = self._admissions.get(task, (None, None))
        if pending is not None:
            return links.get(pending.spec.placement.node)
        for name, link in links.items():
            if not link.answering:
                raise _unavailable(name)
        return None

    def _changed(self, tasks: list[Task] | None) -> None:
        """Called by links: see `Link`."""
        if tasks is None:
            self._watches.missed()
            return
        with self._lock:
            refused = {key for key, (_, task) in self._admissions.items() if task.refusal}
        self._watches.push([task for task in tasks if task.spec.key not in refused])

    def _refresh(self) -> dict[str, Link]:
        """Links to all nodes that are declared now."""
        try:
            changed_at = self._home.nodes_json.stat().st_mtime_ns
        except FileNotFoundError:
            changed_at = 0
        if changed_at == self._read_at:
            return self._links
        closing: list[Link] = []
        with self._lock:
            if changed_at != self._read_at:
                self._declared = {node.name: node for node in nodes.load(self._home)}
                self._read_at = changed_at
                links = {name: self._links.get(name) or self._open(name) for name in self._declared}
                closing = [link for name, link in self._links.items() if name not in links]
                self._links = links
            found = self._links
        for link in closing:
            link.close()
        self._watches.missed()
        return found

    def _open(self, node: str) -> Link:
        return Link(node, self._home.node(node).socket, self._changed, self._beat)

    def _beat(self) -> None:
        with contextlib.suppress(ShoalError, ValueError):  # raised by `list`, where it is reported
            self._refresh()


def _beyond_this_cluster(group: tuple[TaskSpec, ...], names: Iterable[str]) -> Refusal | None:
    """Why no node of this cluster can run the group, whatever is free; None when one may."""
    known = set(names)
    for spec in group:
        node = spec.placement.node
        if node not in known:
            return Refusal(node=node, reason="NodeUnknown", message=f"there is no node {node} here")
        wants: dict[str, object] = {
            "an image": spec.image,
            "volumes": spec.volumes,
            "a pod template": spec.template,
        }
        asked = [name for name, value in wants.items() if value]
        if asked:
            message = (
                f"role {spec.role} asks for {' and '.join(asked)}, which need a cluster that runs "
                "containers; this one runs processes"
            )
            return Refusal(node=node, reason="Unsupported", message=message)
        probe = spec.readiness
        if probe is not None and not probe.command and spec.isolation == "strict":
            message = (
                f"role {spec.role}: a readiness probe by tcp or http cannot reach a task that is "
                "isolated strictly; use a command"
            )
            return Refusal(node=node, reason="Unsupported", message=message)
    return None


def _unavailable(node: str) -> Unavailable:
    return Unavailable(f"node {node} does not answer")


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
