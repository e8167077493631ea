"""Watches over all nodes of a local cluster: each keeps the newest state of what changed since it was
last asked, so a slow watcher misses steps of a task, never its present state."""

from __future__ import annotations

import threading
from collections.abc import Callable

from shoal.cluster.base import Task
from shoal.objects.task import TaskKey

__all__ = ["LocalWatch", "Watches"]


class Watches:
    """The watches that are open. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: tuple[LocalWatch, ...] = ()
        self._node_watches: tuple[LocalNodeWatch, ...] = ()

    def open(self) -> LocalWatch:
        """A new watch of tasks."""
        watch = LocalWatch(self)
        with self._lock:
            self._watches = (*self._watches, watch)
        return watch

    def open_nodes(self) -> LocalNodeWatch:
        """A new watch of nodes."""
        watch = LocalNodeWatch(self)
        with self._lock:
            self._node_watches = (*self._node_watches, watch)
        return watch

    def push(self, tasks: list[Task]) -> None:
        """These tasks changed."""
        for watch in self._watches if tasks else ():
            watch.push(tasks)

    def missed(self) -> None:
        """Changes of tasks may have been missed, and nodes may have changed."""
        for watch in self._watches:
            watch.push(None)
        for node_watch in self._node_watches:
            node_watch.wake()

    def drop(self, watch: LocalWatch | LocalNodeWatch) -> None:
        """It was closed."""
        with self._lock:
            self._watches = tuple(other for other in self._watches if other is not watch)
            self._node_watches = tuple(other for other in self._node_watches if other is not watch)


class LocalNodeWatch:
    """See `shoal.cluster.base.NodeWatch`."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self.wake: Callable[[], None] = _ignore

    def on_ready(self, wake: Callable[[], None]) -> None:
        """See `NodeWatch.on_ready`."""
        self.wake = wake

    def close(self) -> None:
        """See `NodeWatch.close`."""
        self._watches.drop(self)


class LocalWatch:
    """See `shoal.cluster.base.TaskWatch`."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._condition = threading.Condition()
        self._tasks: dict[TaskKey, Task] = {}
        self._relist = False
        self._closed = False
        self._wake: Callable[[], None] = _ignore

    def push(self, tasks: list[Task] | None) -> None:
        """See `Watches.push`; None: see `Watches.missed`."""
        with self._condition:
            if tasks is None:
                self._relist = True
            else:
                self._tasks.update((task.spec.key, task) for task in tasks)
            self._condition.notify_all()
            wake = self._wake
        wake()

    def wait(self, timeout_seconds: float) -> list[Task]:
        """See `TaskWatch.wait`."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._tasks or self._relist or self._closed, max(0.0, timeout_seconds)
            )
            tasks, self._tasks = list(self._tasks.values()), {}
        return tasks

    @property
    def relist(self) -> bool:
        """See `TaskWatch.relist`."""
        with self._condition:
            relist, self._relist = self._relist, False
        return relist

    def on_ready(self, wake: Callable[[], None]) -> None:
        """See `TaskWatch.on_ready`."""
        with self._condition:
            self._wake = wake
            ready = bool(self._tasks) or self._relist
        if ready:
            wake()

    def close(self) -> None:
        """See `TaskWatch.close`."""
        self._watches.drop(self)
        with self._condition:
            self._closed = True
            self._condition.notify_all()


def _ignore() -> None:
    """No callback was given."""
