"""Event loop and threads: blocking calls off the loop, and coroutines woken from any thread.

Each kind of work has a bounded pool of its own, so store calls never queue behind the reading of logs
or behind a node that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakSet

__all__ = ["BlockingPool", "Signal", "Signals"]

P = ParamSpec("P")
R = TypeVar("R")


class BlockingPool:
    """A bounded pool of threads; `call` waits for its turn."""

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns or raises. When the caller is cancelled the call runs on and its
        result is dropped."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Start no further call; running ones end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Signal:
    """One coroutine's alarm: `set` from any thread, `wait` on the loop it was made for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter, now or at its next `wait`. Never blocks."""
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until set, or for the timeout; True when it was set. Resets it."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Signals:
    """The signals of all open streams; each looks at `stopping` whenever it is woken."""

    def __init__(self) -> None:
        self.stopping = False
        self._open: WeakSet[Signal] = WeakSet()

    def new(self) -> Signal:
        """A signal for the calling coroutine."""
        signal = Signal(asyncio.get_running_loop())
        self._open.add(signal)
        return signal

    def stop(self) -> None:
        """Wake every stream, to end. On the loop."""
        self.stopping = True
        for signal in list(self._open):
            signal.set()
