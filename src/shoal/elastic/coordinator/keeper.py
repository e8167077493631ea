"""The thread that writes the record, so that a slow write holds up no heartbeat.

Effects go through it in order: those that follow a save are given back when it is durable, and never if
it was refused. A write that could not be confirmed is tried again for as long as it takes: until then
nothing is sent, and steps go on without us.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal import faults
from shoal.clock import Clock
from shoal.elastic.coordinator import record as records_format
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.records import Kept, Records, Refused, Unavailable
from shoal.elastic.coordinator.turn import Effect, Grant, Save

__all__ = ["Keeper", "Replaced"]

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.5
_MOST_WAITING = 64


@dataclass(frozen=True)
class Replaced:
    """Another coordinator has written the record."""

    reason: str


class Keeper:
    """Owns `records` from `start` to `close`. `ready` is called on its thread with effects that may be
    carried out now; `news` with what a look at the records showed, when new; `replaced` or `broken`
    at most once, as the last."""

    def __init__(
        self,
        records: Records,
        version: str,
        clock: Clock,
        ready: Callable[[tuple[Effect, ...]], None],
        news: Callable[[Kept], None],
        replaced: Callable[[Replaced], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._records = records
        self._version = version
        self._clock = clock
        self._ready = ready
        self._news = news
        self._replaced = replaced
        self._broken = broken
        self._todo: queue.SimpleQueue[tuple[Effect, ...] | dict[str, Any] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._wish: tuple[int | None, int | None, int | None] | None = None
        self._thread = threading.Thread(target=self._run, name="shoal-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, effects: tuple[Effect, ...]) -> None:
        """Carry out the saves among these, in order, after all that was put before."""
        self._todo.put(effects)

    def report(self, report: dict[str, Any]) -> None:
        """Pass on a report when there is time; it is dropped if it cannot be delivered, or too many
        wait."""
        if self._todo.qsize() < _MOST_WAITING:
            self._todo.put(report)

    def close(self, timeout_seconds: float) -> bool:
        """Finish what was put, for at most so long; whether it was finished."""
        self._todo.put(None)
        self._thread.join(timeout_seconds)
        self._closing.set()
        if not self._thread.is_alive():
            self._records.close()
            return True
        return False

    def _run(self) -> None:
        try:
            self._serve()
        except Refused as error:
            self._replaced(Replaced(str(error)))
        except BaseException as error:
            # No message would be sent any more: the service ends with it rather than wait.
            self._broken(error)
            raise

    def _serve(self) -> None:
        look_at = self._clock.monotonic() + self._records.poll_seconds
        while True:
            wait = max(look_at - self._clock.monotonic(), 0.0)
            try:
                item = self._todo.get(timeout=wait)
            except queue.Empty:
                self._look()
                look_at = self._clock.monotonic() + self._records.poll_seconds
                continue
            if item is None:
                return
            if isinstance(item, dict):
                self._pass_on(item)
            else:
                self._carry_out(item)

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        free: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Grant):
                self._grant(effect.size)
                continue
            if not isinstance(effect, Save):
                free.append(effect)
                continue
            if free:
                self._ready(tuple(free))
                free = []
            if not self._save(effect.record):
                return
            faults.point(f"coordinator.{effect.why}.saved")
        self._ready(tuple(free))

    def _save(self, record: Record) -> bool:
        data = records_format.to_bytes(record)
        pause = _FIRST_PAUSE_SECONDS
        unsure = False
        while not self._closing.is_set():
            try:
                self._version = self._records.save(self._version, data)
                return True
            except Unavailable:
                unsure = True
            except Refused:
                # It may be our own write that was kept, and its answer that was lost.
                if not unsure or not self._is_ours(data):
                    raise
                return True
            self._clock.wait(self._closing, pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        return False

    def _is_ours(self, data: bytes) -> bool:
        while not self._closing.is_set():
            try:
                kept = self._records.load()
            except Unavailable:
                self._clock.wait(self._closing, _LONGEST_PAUSE_SECONDS)
                continue
            if kept.data != data:
                return False
            self._version = kept.version
            return True
        return False

    def _look(self) -> None:
        try:
            kept = self._records.load()
        except Unavailable:
            return
        if kept.version != self._version:
            raise Refused("another coordinator has written the record")
        wish = (kept.target, kept.minimum, kept.maximum)
        if kept.minimum is not None and wish != self._wish:
            self._wish = wish
            self._news(kept)

    def _grant(self, size: int) -> None:
        try:
            self._records.grant(size)
        except (Unavailable, Refused) as error:
            self._pass_on({"message": f"there will not be {size} workers: {error}"})

    def _pass_on(self, report: dict[str, Any]) -> None:
        try:
            self._records.report(report)
        except Unavailable:
            return
