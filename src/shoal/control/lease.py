"""Leadership: one of several servers drives the objects, and knows when it must stop.

The holder renews its lease in a thread and believes in it for `renew_deadline` seconds of its own
monotonic clock, counted from before the renewal was sent. That is shorter than the lease, so the holder
stops before anybody else may begin. A process that was stalled finds its deadline passed when it comes
back; what it was doing then belongs to an older *term* and may not write even after the lease has been
taken again, because what it had observed is old.

Between a guard's check and the write itself a process may still stall; the store's preconditions
(uid, generation, the writer's counter) and the never-reused names of tasks make such a write harmless.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from shoal import faults
from shoal.background import Backoff, SupervisedThread
from shoal.clock import Clock
from shoal.objects.errors import ShoalError
from shoal.store.base import Actor, Lease, Store

_LOG = logging.getLogger("shoal.control")


class NotLeader(Exception):
    """The lease is not held, or not the one under which this thread's work began."""


class Guard(Protocol):
    """What every write passes. Thread-safe; the term is remembered per thread."""

    def enter(self) -> bool:
        """Begin a piece of work on this thread: True when leader now."""
        ...

    def check(self) -> None:
        """Call before each write.

        Raises:
            NotLeader: the lease has been lost since `enter`.
        """

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` when leadership is won or given up, on any thread; it must not block."""


class AlwaysLeader:
    """The guard of a process that cannot have a rival."""

    def enter(self) -> bool:
        return True

    def check(self) -> None:
        """See `Guard.check`."""

    def on_change(self, callback: Callable[[], None]) -> None:
        """See `Guard.on_change`: never called."""


class LeaderLease:
    """A `Guard` over one lease of the store.

    `holder` names this process among its rivals. Where something else already keeps rivals away (a lock
    on the home directory) it may be the same after a restart, so that the new process need not wait for
    the old one's lease to run out.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        holder: str,
        *,
        actor: Actor,
        clock: Clock,
        duration_seconds: float = 15.0,
        renew_deadline_seconds: float = 10.0,
        retry_seconds: float = 2.0,
    ) -> None:
        if not retry_seconds < renew_deadline_seconds < duration_seconds:
            raise ValueError("a lease needs retry < renew deadline < duration")
        self._store = store
        self._name = name
        self._holder = holder
        self._actor = actor
        self._clock = clock
        self._duration = duration_seconds
        self._deadline = renew_deadline_seconds
        self._retry = retry_seconds
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._until = float("-inf")
        self._term = 0
        self._believed = False
        self._entered = threading.local()
        self._callbacks: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._thread: SupervisedThread | None = None
        self._error = ""

    def held(self) -> bool:
        """True until the renew deadline of the last renewal has passed."""
        with self._lock:
            return self._clock.monotonic() < self._until

    def enter(self) -> bool:
        with self._lock:
            self._entered.term = self._term
            return self._clock.monotonic() < self._until

    def check(self) -> None:
        with self._lock:
            if self._clock.monotonic() >= self._until:
                raise NotLeader(f"the lease {self._name} is not held")
            if getattr(self._entered, "term", self._term) != self._term:
                raise NotLeader(f"the lease {self._name} was lost in between")

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def step(self) -> float:
        """Take or renew the lease once; after how many seconds to call again."""
        sent = self._clock.monotonic()
        try:
            lease = self._store.acquire(self._name, self._holder, self._duration, actor=self._actor)
        except ShoalError as error:
            self._say(f"{type(error).__name__}: {error}")
        else:
            faults.point("lease.acquire.done")
            self._say("")
            self._take(lease, sent)
        self._notify()
        return self._retry

    def start(self) -> None:
        """Renew in a thread from now on."""
        backoff = Backoff(self._retry / 4, self._retry)  # in time for the renew deadline
        self._thread = SupervisedThread(
            "lease", self._renew_forever, self._stopping, clock=self._clock, backoff=backoff
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing and give the lease back, so that another need not wait."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._duration)
        with self._lock:
            lease, self._lease, self._until = self._lease, None, float("-inf")
        self._notify()
        if lease is not None:
            try:
                self._store.release(lease, actor=self._actor)
            except ShoalError as error:
                self._say(f"{type(error).__name__}: {error}")

    def _renew_forever(self) -> None:
        while not self._stopping.is_set():
            self._clock.wait(self._stopping, self.step())

    def _take(self, lease: Lease | None, sent: float) -> None:
        with self._lock:
            lapsed = self._clock.monotonic() >= self._until
            changed = lease is not None and (self._lease is None or lease.token != self._lease.token)
            if lease is not None and (lapsed or changed):
                self._term += 1
            self._lease = lease
            self._until = sent + self._deadline if lease is not None else float("-inf")

    def _notify(self) -> None:
        held = self.held()
        with self._lock:
            if held == self._believed:
                return
            self._believed = held
        _LOG.info("%s %s the lease %s", self._holder, "holds" if held else "has lost", self._name)
        for callback in self._callbacks:
            callback()

    def _say(self, error: str) -> None:
        if error and error != self._error:
            _LOG.warning("lease %s: %s", self._name, error)
        self._error = error
