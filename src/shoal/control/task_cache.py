"""The tasks of a cluster as this process knows them.

A task that is not listed is gone only if its node answered: `knows(node)` says so. Tasks of silent
nodes stay as they were last seen. A task never goes back to an earlier phase (lists and changes may
cross), and one that was acknowledged stays away until a list that was begun later lacks it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from shoal.clock import Clock
from shoal.cluster.base import Cluster, Task, TaskWatch
from shoal.objects.errors import Unavailable
from shoal.objects.task import TaskKey

_RELIST_SECONDS = 10.0
"""A full list so often, whatever the watch says."""
_ORDER = {"Pending": 0, "Admitted": 1, "Running": 2, "Terminating": 3, "Ended": 4}


class TaskCache:
    """See the module's docstring. Reads from any thread, `sync` from one at a time."""

    name = "tasks"

    def __init__(
        self, cluster: Cluster, *, clock: Clock, relist_seconds: float = _RELIST_SECONDS
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._relist_seconds = relist_seconds
        self._lock = threading.Lock()
        self._tasks: dict[TaskKey, Task] = {}
        self._of_job: dict[str, dict[TaskKey, Task]] = {}
        self._uids: dict[tuple[str, str], set[str]] = {}
        self._forgotten: dict[TaskKey, str] = {}
        self._unreachable: frozenset[str] = frozenset()
        self._callbacks: list[Callable[[Task | None, Task | None], None]] = []
        self._list_callbacks: list[Callable[[], None]] = []
        self._watch: TaskWatch | None = None
        self._synced = False
        self._relist_at = 0.0
        self._asked = threading.Event()
        self.ready = threading.Event()

    @property
    def synced(self) -> bool:
        """See `Cache.synced`. Nodes may be silent all the same."""
        return self._synced

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

    def on_change(self, callback: Callable[[Task | None, Task | None], None]) -> None:
        """See `Cache.on_change`."""
        self._callbacks.append(callback)

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
        self._notify(old, None)

    def sync(self) -> bool:
        """See `Cache.sync`."""
        self.ready.clear()
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
        """See `Cache.sync_after`."""
        return max(0.001, self._relist_at - self._clock.monotonic())

    def close(self) -> None:
        """See `Cache.close`."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

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
                self._notify(task, task)  # the same, but what may be concluded about it is not
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
        changes: list[tuple[Task | None, Task | None]] = []
        with self._lock:
            for task in tasks:
                key = task.spec.key
                changes.append((self._tasks.get(key), task))
                self._tasks[key] = task
                self._of_job.setdefault(task.spec.job_uid, {})[key] = task
                self._uids.setdefault((key.namespace, task.spec.job), set()).add(task.spec.job_uid)
            for key in gone:
                if key in self._tasks:
                    changes.append((self._tasks[key], None))
                    self._drop(key)
        for old, new in changes:
            self._notify(old, new)
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

    def _notify(self, old: Task | None, new: Task | None) -> None:
        for callback in self._callbacks:
            callback(old, new)
