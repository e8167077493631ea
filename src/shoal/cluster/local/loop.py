"""The agent's one thread: it waits for descriptors and timers, and ends each turn in one place.

Everything that an agent knows is touched by this thread alone, so nothing in it needs a lock. What
takes long (removing a large folder, ending what a dead supervisor left) is done by a helper thread
that hands its result back through `call`.

At the end of a turn a `CommitBatch` commits the ledger once, notifies watchers, and then runs what
follows. Nothing is seen or done that a crash could make untrue, for it happens after the commit that
says so; and many requests that come together cost one flush of the disk. If the commit fails, nothing
of the turn has happened: what was to follow is dropped, and the waiting callers get the error.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from types import FrameType

from shoal.cluster.local.ledger import Ledger
from shoal.objects.errors import Unavailable
from shoal.objects.task import TaskKey


class Timer:
    """Something that is to be called once; `cancel` it if it no longer should."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never call it; idempotent."""
        self.callback = None


class Loop:
    """Runs callbacks until stopped. Only `call` and `stop` may be used from other threads.

    After the callbacks of a turn, `end_turn` runs: it is where the agent commits its ledger once for
    all of them.
    """

    def __init__(self, end_turn: Callable[[], None] = lambda: None) -> None:
        self.end_turn = end_turn
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._called: deque[Callable[[], None]] = deque()
        self._running = True
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.add(self._wake_read, selectors.EVENT_READ, self._drain)

    def add(self, descriptor: int, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(events)` whenever the descriptor is ready; again to change either."""
        if descriptor in self._selector.get_map():
            self._selector.modify(descriptor, events, callback)
        else:
            self._selector.register(descriptor, events, callback)

    def remove(self, descriptor: int) -> None:
        """No more of this descriptor; idempotent. Before it is closed."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call it once that time has passed."""
        timer = Timer(callback)
        self._order += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._order, timer))
        return timer

    def soon(self, callback: Callable[[], None]) -> None:
        """Call it in a turn of its own, after what waits already: so that many slow things do not
        keep quick ones waiting."""
        self._soon.append(callback)

    def call(self, callback: Callable[[], None]) -> None:
        """Call it in the loop's thread. Thread-safe."""
        self._called.append(callback)
        with contextlib.suppress(BlockingIOError):  # the pipe is full: it will wake anyway
            os.write(self._wake_write, b"x")

    def work(
        self,
        job: Callable[[], Callable[[], None]],
        failed: Callable[[Exception], Callable[[], None]] | None = None,
    ) -> None:
        """Run `job` in a thread of its own, then what it returns in the loop's thread. If it raises, the
        loop runs what `failed` returns instead; without `failed` it raises the exception."""
        target = functools.partial(_work, self, job, failed or _raising)
        threading.Thread(target=target, name="helper", daemon=True).start()

    def stop(self) -> None:
        """End `run` after this turn. Thread-safe, also from a signal handler."""
        self._running = False
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def on_signal(self, number: signal.Signals, callback: Callable[[], None]) -> None:
        """Call it in a turn of the loop when the signal comes."""

        def handle(_: int, __: FrameType | None) -> None:
            self.call(callback)

        signal.signal(number, handle)

    def run(self) -> None:
        """Until `stop`."""
        while self._running:
            for key, events in self._selector.select(self._patience()):
                # one before it may have removed it, or put another in its place
                if self._selector.get_map().get(key.fd) is key:
                    key.data(events)
            while self._called:
                self._called.popleft()()
            if self._soon:
                self._soon.popleft()()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()
            self.end_turn()

    def _patience(self) -> float | None:
        if self._soon or self._called:
            return 0.0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _drain(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 65536)


def _work(
    loop: Loop,
    job: Callable[[], Callable[[], None]],
    failed: Callable[[Exception], Callable[[], None]],
) -> None:
    try:
        done = job()
    except Exception as error:  # noqa: BLE001 (its owner decides what becomes of it)
        done = failed(error)
    loop.call(done)


def _raising(error: Exception) -> Callable[[], None]:
    return functools.partial(_raise, error)


def _raise(error: Exception) -> None:
    raise error


class CommitBatch:
    """See the module's docstring. `tell` is given the tasks that changed, with True for those that
    are new; `undone` is called when memory went back to what the disk has. Belongs to the loop's
    thread."""

    def __init__(
        self,
        ledger: Ledger,
        tell: Callable[[dict[TaskKey, bool]], None],
        undone: Callable[[Unavailable], None],
    ) -> None:
        self._ledger = ledger
        self._tell = tell
        self._undone = undone
        self._changed: dict[TaskKey, bool] = {}
        self._after: deque[Callable[[], None]] = deque()
        self._otherwise: list[Callable[[Unavailable], None]] = []

    def after(self, effect: Callable[[], None]) -> None:
        """Do this once everything so far is durable, in the order of asking."""
        self._after.append(effect)

    def otherwise(self, fail: Callable[[Unavailable], None]) -> None:
        """Do this instead of what follows in this turn, if the commit fails."""
        self._otherwise.append(fail)

    def changed(self, key: TaskKey, *, new: bool = False) -> None:
        """Notify watchers of the task's state at the end of the turn."""
        self._changed[key] = new or self._changed.get(key, False)

    def end(self) -> None:
        """Commit, notify, and do what follows; again while that changes something."""
        while self._ledger.staged or self._after or self._changed:
            try:
                self._ledger.commit()
            except Unavailable as error:
                self._undo(error)
                continue
            self._otherwise.clear()
            changed, self._changed = self._changed, {}
            if changed:
                self._tell(changed)
            effects, self._after = self._after, deque()
            for effect in effects:
                effect()

    def _undo(self, error: Unavailable) -> None:
        otherwise, self._otherwise = self._otherwise, []
        self._after.clear()
        self._changed.clear()
        self._undone(error)
        for fail in otherwise:
            fail(error)
