"""The tasks and nodes of a cluster as this process knows them.

A task that is not listed is gone only if its node answered: `knows(node)` says so. Tasks of silent
nodes stay as they were last seen. A task never goes back to an earlier phase (lists and changes may
cross), and one that was acknowledged stays away until a list that was begun later lacks it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from shoal.clock import Clock
from shoal.cluster.base import Cluster, NodeState, NodeWatch, Task, TaskWatch
from shoal.control.cache import WatchedCache
from shoal.objects.errors import Unavailable
from shoal.objects.task import TaskKey

_RELIST_SECONDS = 10.0
"""A full list so often, whatever the watch says."""
UNUSABLE = "Unusable"
"""The condition of a node that the scheduler leaves out because no decision can be made with it."""
_NODE_RELIST_SECONDS = 1.0
"""So often the tasks of a node that answers, and is not listed yet, are asked for."""
_LONGEST_WAIT_SECONDS = 60.0
_ORDER = {"Pending": 0, "Admitted": 1, "Running": 2, "Terminating": 3, "Ended": 4}


class TaskCache(WatchedCache[Task, TaskWatch]):
    """See the module's docstring. Reads from any thread, `sync` from one at a time."""

    def __init__(
        self, cluster: Cluster, *, clock: Clock, relist_seconds: float = _RELIST_SECONDS
    ) -> None:
        super().__init__("tasks")
        self._cluster = cluster
        self._clock = clock
        self._relist_seconds = relist_seconds
        self._lock = threading.Lock()
        self._tasks: dict[TaskKey, Task] = {}
        self._of_job: dict[str, dict[TaskKey, Task]] = {}
        self._uids: dict[tuple[str, str], set[str]] = {}
        self._forgotten: dict[TaskKey, str] = {}
        self._unreachable: frozenset[str] = frozenset()
        self._list_callbacks: list[Callable[[], None]] = []
        self._relist_at = 0.0
        self._asked = threading.Event()

    @property
    def complete(self) -> bool:
        """True when every node answered the last list."""
        return self._synced and not self._unreachable

    @property
    def unreachable_nodes(self) -> frozenset[str]:
        """The nodes that did not answer the last list."""
        return self._unreachable

    def knows(self, node: str) -> bool:
        """True when a task that is not here, and would be on that node, is gone."""
        return self._synced and node not in self._unreachable

    def of_job(self, job_uid: str) -> tuple[Task, ...]:
        """The tasks of a job that are not yet acknowledged, as last seen."""
        with self._lock:
            return tuple(self._of_job.get(job_uid, {}).values())

    def uids(self, namespace: str, name: str) -> frozenset[str]:
        """The uids of all jobs of that name that have tasks: more than one when a job was deleted, and
        made anew, while a node did not answer."""
        with self._lock:
            return frozenset(self._uids.get((namespace, name), ()))

    def get(self, key: TaskKey) -> Task | None:
        """One task, as last seen."""
        return self._tasks.get(key)

    def all(self) -> tuple[Task, ...]:
        """All tasks, as last seen."""
        with self._lock:
            return tuple(self._tasks.values())

    def on_list(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each full list: nodes may have come, gone silent or answered again."""
        self._list_callbacks.append(callback)

    def relist(self) -> None:
        """Have everything listed again soon: a node has fallen silent, or answers again."""
        self._asked.set()
        self.ready.set()

    def acknowledge(self, key: TaskKey) -> None:
        """`Cluster.acknowledge`, and the task is no longer here.

        Raises:
            Unavailable: its node does not answer; the task stays.
        """
        self._cluster.acknowledge(key)
        with self._lock:
            old = self._tasks.get(key)
            if old is None or old.phase != "Ended":
                return
            self._forgotten[key] = old.spec.placement.node
            self._drop(key)
        self._notify(key, old, None)

    def sync(self) -> bool:
        self.ready.clear()
        self._notify_again()
        if self._watch is None:
            self._watch = self._cluster.watch()
            self._watch.on_ready(self.ready.set)
            self._relist_at = 0.0
        changed = self._watch.wait(0)
        due = not self._synced or self._clock.monotonic() >= self._relist_at
        if self._watch.relist or self._asked.is_set() or due:
            self._asked.clear()
            return self._relist()
        self._apply([task for task in changed if self._passes(task)], [])
        return bool(changed)

    def sync_after(self) -> float:
        return self._due_after(self._relist_at - self._clock.monotonic())

    def _relist(self) -> bool:
        with self._lock:
            forgotten = dict(self._forgotten)
        listing = self._cluster.list()
        self._relist_at = self._clock.monotonic() + self._relist_seconds
        there = {task.spec.key: task for task in listing.tasks}
        unreachable = frozenset(listing.unreachable_nodes)
        with self._lock:
            for key, node in forgotten.items():
                if key not in there and node not in unreachable:
                    self._forgotten.pop(key, None)
            gone = [
                key
                for key, task in self._tasks.items()
                if key not in there and task.spec.placement.node not in unreachable
            ]
        changed = self._apply([task for task in listing.tasks if self._passes(task)], gone)
        turned, self._unreachable = unreachable ^ self._unreachable, unreachable
        for key in forgotten.keys() & there.keys():
            with suppress(Unavailable):  # asked again by the next list
                self._cluster.acknowledge(key)  # the first one was lost with its connection
        news = changed or bool(turned) or not self._synced
        self._synced = True
        for task in self.all() if turned else ():
            if task.spec.placement.node in turned:
                self._notify(task.spec.key, task, task)  # only what may be concluded is new
        for callback in self._list_callbacks:
            callback()
        return news

    def _passes(self, task: Task) -> bool:
        key = task.spec.key
        with self._lock:
            if key in self._forgotten:
                return False
            old = self._tasks.get(key)
            return old is None or (old != task and _ORDER[task.phase] >= _ORDER[old.phase])

    def _apply(self, tasks: list[Task], gone: list[TaskKey]) -> bool:
        changes: list[tuple[TaskKey, Task | None, Task | None]] = []
        with self._lock:
            for task in tasks:
                key = task.spec.key
                changes.append((key, self._tasks.get(key), task))
                self._tasks[key] = task
                self._of_job.setdefault(task.spec.job_uid, {})[key] = task
                self._uids.setdefault((key.namespace, task.spec.job), set()).add(task.spec.job_uid)
            for key in gone:
                if key in self._tasks:
                    changes.append((key, self._tasks[key], None))
                    self._drop(key)
        for change in changes:
            self._notify(*change)
        return bool(changes)

    def _drop(self, key: TaskKey) -> None:
        task = self._tasks.pop(key)
        of_job = self._of_job[task.spec.job_uid]
        del of_job[key]
        if not of_job:
            del self._of_job[task.spec.job_uid]
            uids = self._uids[key.namespace, task.spec.job]
            uids.discard(task.spec.job_uid)
            if not uids:
                del self._uids[key.namespace, task.spec.job]


class NodeStates(WatchedCache[NodeState, NodeWatch]):
    """A cache of `Cluster.nodes`: asked when a watch signals a change, and after each list of all tasks.

    A node that begins or ceases to answer has its tasks listed again, and is ready only once they are:
    a controller that is called for it finds the tasks as they are.
    """

    def __init__(self, cluster: Cluster, tasks: TaskCache, *, clock: Clock) -> None:
        super().__init__("node-states")
        self._cluster = cluster
        self._tasks = tasks
        self._clock = clock
        self._states: dict[str, NodeState] = {}
        self._unusable: dict[str, str] = {}
        self._due = 0.0
        self.ready.set()
        tasks.on_list(self.ready.set)

    def get(self, name: str) -> NodeState | None:
        """The node as the cluster knows it."""
        return self._states.get(name)

    def unusable(self, reasons: Mapping[str, str]) -> None:
        """The nodes, by name, that the scheduler leaves out now, and why. Thread-safe."""
        if reasons != self._unusable:
            self._unusable = dict(reasons)
            self.ready.set()

    def sync(self) -> bool:
        self._notify_again()
        if self._watch is None:
            self._watch = self._cluster.watch_nodes()
            self._watch.on_ready(self.ready.set)
        now = self._clock.monotonic()
        if not self.ready.is_set() and now < self._due:
            return False
        self.ready.clear()
        found = self._cluster.nodes()
        unlisted = [s.name for s in found if s.ready and not self._tasks.knows(s.name)]
        fallen = [s.name for s in found if not s.ready and self._was_ready(s.name)]
        if (unlisted and now >= self._due) or any(self._tasks.knows(name) for name in fallen):
            self._tasks.relist()
        if not unlisted:
            self._due = math.inf
        elif now >= self._due:
            self._due = now + _NODE_RELIST_SECONDS
        unusable = self._unusable
        new: dict[str, NodeState] = {}
        for state in found:
            problems = state.problems
            if why := unusable.get(state.name):
                problems = {**problems, UNUSABLE: f"it is left out of scheduling decisions: {why}"}
            ready = state.ready and state.name not in unlisted
            new[state.name] = msgspec.structs.replace(state, ready=ready, problems=problems)
        old, self._states = self._states, new
        self._synced = True
        changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        for name in changed:
            self._notify(name, old.get(name), new.get(name))
        return bool(changed)

    def sync_after(self) -> float:
        return self._due_after(min(self._due - self._clock.monotonic(), _LONGEST_WAIT_SECONDS))

    def _was_ready(self, name: str) -> bool:
        old = self._states.get(name)
        return old is not None and old.ready
