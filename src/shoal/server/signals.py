"""Waking coroutines from any thread, and ending all streams when the server stops."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakSet

__all__ = ["Signal", "Signals"]


class Signal:
    """One coroutine's alarm: `set` from any thread, `wait` on the loop it was made for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiter, now or at its next `wait`. Never blocks."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
