"""The runner: calls each controller for the keys that changed, until nothing is left to do.

Level-triggered: a controller gets the key of an object, never what happened to it, so a change
seen twice or a crash in between costs nothing. A key runs on one thread at a time. Errors are retried
with exponential backoff and seeded jitter; each is logged when it changes and listed by `failures`.
Nothing runs before every cache has listed once, or while the lease is not held.

Production calls `start` and `stop`; a test with a virtual clock calls `run_once`.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from shoal import metrics
from shoal.background import Backoff, SupervisedThread
from shoal.clock import Clock
from shoal.control.lease import Guard, NotLeader
from shoal.metrics import WORKQUEUE_ADDS, WORKQUEUE_LATENCY
from shoal.objects.errors import Conflict

__all__ = ["Backoff", "Cache", "Controller", "Failure", "Key", "Runner", "Source", "WorkQueue"]

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-wide kinds."""
_LOG = logging.getLogger("shoal.control")
_CONFLICTS_AT_ONCE = 5
"""So many conflicts in a row are answered by reading again at once; then backoff applies."""
FAILING_AFTER = 5
"""So many failures of a key in a row are more than a passing trouble."""
_CACHE_BACKOFF = Backoff(0.05, 5.0)
"""Nothing is decided on while a cache fails, so it is tried again sooner than a key."""
_IDLE_SECONDS = 1.0
_PATIENCE_STEPS = 100_000


class WorkQueue:
    """Thread-safe. Delays are measured with the clock's monotonic time."""

    def __init__(self, clock: Clock, name: str = "") -> None:
        """`name` is the controller's, for metrics."""
        self._clock = clock
        self._adds = WORKQUEUE_ADDS.labels(name)
        self._latency = WORKQUEUE_LATENCY.labels(name)
        self._added: dict[Key, float] = {}
        self._lock = threading.Lock()
        self._something = threading.Event()
        self._ready: deque[Key] = deque()
        self._waiting: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def add(self, key: Key) -> None:
        """Have the key taken as soon as it does not run."""
        with self._lock:
            self._add(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Have the key taken after that time, unless it is added sooner; replaces an earlier delay."""
        if seconds <= 0:
            self.add(key)
            return
        with self._lock:
            due = self._clock.monotonic() + seconds
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))
            self._something.set()

    def add_within(self, key: Key, seconds: float) -> None:
        """Have the key taken after that time at the latest: an earlier delay stays."""
        if seconds <= 0:
            self.add(key)
            return
        with self._lock:
            due = self._clock.monotonic() + seconds
            if key not in self._waiting and due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._heap, (due, key))
                self._something.set()

    def take(self) -> Key | None:
        """The next key that is ready, None when there is none. `done` must follow."""
        with self._lock:
            self._promote()
            if not self._ready:
                self._something.clear()
                return None
            key = self._ready.popleft()
            self._waiting.discard(key)
            self._latency.observe(self._clock.monotonic() - self._added.pop(key))
            self._running.add(key)
            self._due.pop(key, None)
            return key

    def done(self, key: Key) -> None:
        """The key has run; if it was added during the run it is ready again."""
        with self._lock:
            self._running.discard(key)
            if key in self._again:
                self._again.discard(key)
                self._add(key)

    def wait(self, timeout_seconds: float) -> None:
        """Return when something may be ready, or at the timeout."""
        due = self.next_due()
        if due is not None:
            timeout_seconds = min(timeout_seconds, due)
        if timeout_seconds > 0:
            self._clock.wait(self._something, timeout_seconds)

    def wake(self) -> None:
        """End every `wait` now."""
        self._something.set()

    def next_due(self) -> float | None:
        """Seconds until a key is ready: 0 when one is, None when none waits."""
        with self._lock:
            if self._ready:
                return 0.0
            self._drop_stale()
            if not self._heap:
                return None
            return max(0.0, self._heap[0][0] - self._clock.monotonic())

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready) + len(self._running)

    def _add(self, key: Key) -> None:
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._added[key] = self._clock.monotonic()
            self._adds.inc()
            self._something.set()

    def _promote(self) -> None:
        now = self._clock.monotonic()
        self._drop_stale()
        while self._heap and self._heap[0][0] <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self._add(key)
            self._drop_stale()

    def _drop_stale(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)


class Cache(Protocol):
    """What a controller reads: filled by `sync`, which one thread at a time calls."""

    @property
    def name(self) -> str:
        """For logs and `failures`."""
        ...

    @property
    def synced(self) -> bool:
        """True once everything has been listed."""
        ...

    @property
    def ready(self) -> threading.Event:
        """Set when `sync` may have something to take in."""
        ...

    def sync(self) -> bool:
        """Take in what has come, without waiting for more; True if anything changed.

        Raises:
            ShoalError: the other side did not answer; call again later.
        """
        ...

    def sync_after(self) -> float:
        """Seconds after which `sync` should be called even if `ready` is not set."""
        ...

    def on_change(self, callback: Callable[[Any, Any], None]) -> None:
        """Call `callback(old, new)` for each change (None: was, or is, not there), on the thread that
        made it, with no lock held."""

    def close(self) -> None:
        """End its watch; idempotent."""


@dataclass(frozen=True)
class Source:
    """A cache that a controller listens to: `keys(old, new)` are the keys to look at after a change.

    With a delay, changes that come close together cost one look.
    """

    cache: Cache
    keys: Callable[[Any, Any], Iterable[Key]]
    delay_seconds: float = 0.0
    undecodable: Callable[[Callable[[Key], None]], None] | None = None
    """Registers a callback for the keys of objects that cannot be decoded, where the controller takes
    them too."""


class Controller(Protocol):
    """Drives the objects of one kind. `reconcile` runs on several threads, for different keys."""

    @property
    def name(self) -> str:
        """Unique in a runner."""
        ...

    def sources(self) -> Sequence[Source]:
        """What it listens to; asked once."""
        ...

    def reconcile(self, key: Key, now: float) -> float | None:
        """Look at the object and do what is missing; `now` is wall time. Returns after how many
        seconds it wants to be called again though nothing changes; None: not at all.

        Raises:
            Conflict: another writer was first; it is called again at once.
            Exception: anything else is retried with backoff.
        """
        ...


@dataclass(frozen=True)
class Failure:
    """A key, or a cache (its key is empty), that fails now."""

    source: str
    key: Key
    error: str
    count: int
    since: float

    def __str__(self) -> str:
        what = "/".join(part for part in (self.source, *self.key) if part)
        return f"{what} failed {self.count} times in a row, last with {self.error}"


class Runner:
    """Runs controllers over their caches; see the module's docstring."""

    def __init__(
        self,
        controllers: Sequence[tuple[Controller, int]],
        *,
        clock: Clock,
        guard: Guard,
        seed: int = 0,
        backoff: Backoff | None = None,
        on_failing: Callable[[Failure], None] | None = None,
    ) -> None:
        """`controllers` are given with the number of threads that each may use. `on_failing` is called
        once for each key or cache that has failed `FAILING_AFTER` times in a row."""
        self._clock = clock
        self._guard = guard
        self._seed = seed
        self._backoff = backoff or Backoff()
        self._on_failing = on_failing
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, Key], Failure] = {}
        self._conflicts: dict[tuple[str, Key], int] = {}
        self._stopping = threading.Event()
        self._awake = threading.Event()
        self._threads: list[SupervisedThread] = []
        self._workers: list[ControllerWorkers] = []
        self._caches: list[Cache] = []
        for controller, threads in controllers:
            made = ControllerWorkers(controller, WorkQueue(clock, controller.name), threads)
            metrics.WORKQUEUE_DEPTH.labels(controller.name).set_function(made.queue.__len__)
            self._workers.append(made)
            for source in controller.sources():
                source.cache.on_change(_enqueue(made.queue, source))
                if source.undecodable is not None:
                    source.undecodable(made.queue.add)
                if not any(source.cache is known for known in self._caches):
                    self._caches.append(source.cache)
        guard.on_change(self._wake_all)

    def start(self) -> None:
        """Start a thread per cache and the threads of each controller."""
        for cache in self._caches:
            self._spawn(f"cache-{cache.name}", partial(self._sync_forever, cache))
        for workers in self._workers:
            for number in range(workers.threads):
                name = f"{workers.controller.name}-{number}"
                self._spawn(name, partial(self._work_forever, workers))

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """End all threads, letting each finish the key it has; True when all have ended in time."""
        self._stopping.set()
        self._wake_all()
        for cache in self._caches:
            cache.ready.set()
        deadline = self._clock.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        for cache in self._caches:
            cache.close()
        return not any(thread.is_alive() for thread in self._threads)

    def run_once(self, patience: int = _PATIENCE_STEPS) -> int:
        """Pump the caches and reconcile on this thread until nothing is ready now; how many calls.

        Raises:
            RuntimeError: still something to do after `patience` calls: controllers chase each other.
        """
        for calls in range(patience):
            for cache in self._caches:
                self._sync(cache)
            if not self._may_run() or not self._step_any(calls):
                return calls
        raise RuntimeError(f"not settled after {patience} calls")

    def next_due(self) -> float | None:
        """Seconds until a key is ready or a cache must be synced; None when nothing waits."""
        waits = [due for workers in self._workers if (due := workers.queue.next_due()) is not None]
        return min(waits, default=None)

    def failures(self) -> tuple[Failure, ...]:
        """What fails now, oldest first."""
        with self._lock:
            return tuple(sorted(self._failures.values(), key=lambda f: (f.since, f.source, f.key)))

    def failing(self) -> tuple[Failure, ...]:
        """Of `failures`, those that are more than a passing trouble."""
        return tuple(each for each in self.failures() if each.count >= FAILING_AFTER)

    @property
    def synced(self) -> bool:
        """True once every cache has listed everything."""
        return all(cache.synced for cache in self._caches)

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = SupervisedThread(name, target, self._stopping, clock=self._clock)
        self._threads.append(thread)
        thread.start()

    def _wake_all(self) -> None:
        self._awake.set()
        for workers in self._workers:
            workers.queue.wake()

    def _may_run(self) -> bool:
        return self.synced and self._guard.enter()

    def _step_any(self, offset: int) -> bool:
        for position in range(len(self._workers)):
            if self._step(self._workers[(offset + position) % len(self._workers)]):
                return True
        return False

    def _sync_forever(self, cache: Cache) -> None:
        while not self._stopping.is_set():
            was_synced = cache.synced
            wait = self._sync(cache)
            if cache.synced and not was_synced:
                self._wake_all()
            if not self._stopping.is_set():  # `sync` may have cleared what `stop` has set
                self._clock.wait(cache.ready, wait)

    def _sync(self, cache: Cache) -> float:
        name = f"cache-{cache.name}"
        try:
            cache.sync()
        except Exception as error:  # noqa: BLE001 - recorded and retried; a dead cache stops everything
            cache.ready.clear()
            return _CACHE_BACKOFF.after(self._failed(name, ("", ""), error), f"{self._seed}:{name}")
        self._succeeded(name, ("", ""))
        return cache.sync_after()

    def _work_forever(self, workers: ControllerWorkers) -> None:
        while not self._stopping.is_set():
            if not self._may_run():
                self._awake.clear()
                if not self._may_run() and not self._stopping.is_set():
                    self._clock.wait(self._awake, _IDLE_SECONDS)
            elif not self._step(workers) and not self._stopping.is_set():
                workers.queue.wait(_IDLE_SECONDS)

    def _step(self, workers: ControllerWorkers) -> bool:
        key = workers.queue.take()
        if key is None:
            return False
        try:
            self._reconcile(workers, key)
        finally:
            workers.queue.done(key)
        return True

    def _reconcile(self, workers: ControllerWorkers, key: Key) -> None:
        name, begun = workers.controller.name, self._clock.monotonic()
        try:
            again = workers.controller.reconcile(key, self._clock.now())
        except NotLeader:
            workers.queue.add(key)
        except Exception as error:  # noqa: BLE001 - one object's trouble must not stop the others
            metrics.RECONCILE_FAILURES.labels(name).inc()
            workers.queue.add_after(key, self._retry_after(name, key, error))
        else:
            metrics.RECONCILE_SECONDS.labels(name).observe(self._clock.monotonic() - begun)
            self._succeeded(name, key)
            if again is not None:
                # a change that came during the call, and waits for others to come close to it, is sooner
                workers.queue.add_within(key, again)

    def _retry_after(self, name: str, key: Key, error: Exception) -> float:
        if isinstance(error, Conflict):
            with self._lock:
                conflicts = self._conflicts[name, key] = self._conflicts.get((name, key), 0) + 1
            if conflicts <= _CONFLICTS_AT_ONCE:
                return 0.0
        metrics.WORKQUEUE_RETRIES.labels(name).inc()
        return self._backoff.after(self._failed(name, key, error), f"{self._seed}:{name}:{key}")

    def _failed(self, name: str, key: Key, error: Exception) -> int:
        text = f"{type(error).__name__}: {error}"
        with self._lock:
            last = self._failures.get((name, key))
            same = last is not None and last.error == text
            count = last.count + 1 if last else 1
            since = last.since if last else self._clock.now()
            failure = self._failures[name, key] = Failure(name, key, text, count, since)
        if not same:
            _LOG.warning("%s %s failed: %s", name, "/".join(key), text, exc_info=error)
        if count == FAILING_AFTER and self._on_failing is not None:
            self._on_failing(failure)
        return count

    def _succeeded(self, name: str, key: Key) -> None:
        with self._lock:
            self._conflicts.pop((name, key), None)
            last = self._failures.pop((name, key), None)
        if last is not None:
            _LOG.info("%s %s works again after %d failures", name, "/".join(key), last.count)


@dataclass(frozen=True)
class ControllerWorkers:
    """A controller, the queue of its keys and its number of threads."""

    controller: Controller
    queue: WorkQueue
    threads: int


def _enqueue(queue: WorkQueue, source: Source) -> Callable[[Any, Any], None]:
    def changed(old: Any, new: Any) -> None:
        for key in source.keys(old, new):
            queue.add_within(key, source.delay_seconds)

    return changed
