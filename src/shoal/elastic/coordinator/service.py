"""The coordinator as a process: sockets and time on one side, the record on the other.

One thread receives and sends; the keeper's thread writes. Everything that the machine decides goes
through the keeper in order, so nothing is sent that a lost write could take back. `Telemetry`
says how the job is doing, in numbers that people and the scheduler read.
"""

from __future__ import annotations

import hmac
import queue
import statistics
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal import faults
from shoal.clock import Clock
from shoal.elastic import wire
from shoal.elastic.coordinator import events, machine, messages
from shoal.elastic.coordinator.keeper import Keeper, Replaced
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.records import Kept, Records
from shoal.elastic.coordinator.server import Server
from shoal.elastic.coordinator.state import Settings, State
from shoal.elastic.coordinator.turn import Close, Effect, End, Grant, Report, Save, Tell, Wake

__all__ = ["Outcome", "Service", "Telemetry"]

_STEPS = 256
_RECOVERIES = 16
_CHANGES = 64


class Telemetry:
    """What is measured between reports. Not thread-safe."""

    def __init__(self) -> None:
        self._step_seconds: deque[float] = deque(maxlen=_STEPS)
        self._began: tuple[float, int] | None = None
        self._worlds: deque[tuple[float, int]] = deque(maxlen=_CHANGES)
        self._origin: float | None = None

    def heard(self, progress: events.Report, now: float) -> None:
        """A member has said how fast it steps."""
        if progress.step_seconds > 0:
            self._step_seconds.append(progress.step_seconds)
        if self._began is None:
            self._began = now, progress.step

    def report(self, state: State, now: float, message: str) -> dict[str, Any]:
        """What to send. `goodput`: committed steps times the median step time, over the time since the
        first word of progress; `worldOverTime`: pairs of seconds since the start and size."""
        record = state.record
        world = record.view.size if record.view is not None and state.paused is None else 0
        self._origin = self._origin if self._origin is not None else now
        if not self._worlds or self._worlds[-1][1] != world:
            self._worlds.append((round(now - self._origin, 3), world))
        median = statistics.median(self._step_seconds) if self._step_seconds else 0.0
        return {
            "world": world,
            "epoch": record.epoch,
            "step": record.step,
            "goodput": self._goodput(record.step, median, now),
            "stepSeconds": round(median, 6),
            "lostSteps": state.lost_steps,
            "worldOverTime": [list(each) for each in self._worlds],
            "recoveries": [
                {
                    "epoch": each.epoch,
                    "world": each.world,
                    "seconds": round(each.seconds, 6),
                    "decidedSeconds": round(each.published_at - each.began_at, 6),
                    "how": each.how,
                    "lostSteps": each.lost_steps,
                    "lost": list(each.reasons),
                }
                for each in state.recoveries[-_RECOVERIES:]
                if each.seconds is not None
            ],
            "state": _state(state),
            "message": message,
        }

    def _goodput(self, step: int, median: float, now: float) -> float | None:
        if self._began is None or now <= self._began[0] or not median:
            return None
        began, first = self._began
        return round(max(step - first, 0) * median / (now - began), 4)


def _state(state: State) -> str:
    record = state.record
    if record.ended is not None:
        return "failed" if record.ended.failed else "ended"
    if state.paused is not None:
        return "paused"
    return "running" if record.view is not None else "waiting"


_REPORT_SECONDS = 2.0
_FLUSH_SECONDS = 1.0
_AFTER_END_SECONDS = 5.0

_FromKeeper = tuple[Effect, ...] | Kept | Replaced | BaseException


@dataclass(frozen=True)
class Outcome:
    """Why a service ended. `ended`: the job is over; `replaced`: another coordinator has taken over."""

    reason: str
    ended: bool = False
    failed: bool = False
    replaced: bool = False


class Service:
    """`run` serves until the job is over, another coordinator has taken over, or `stop` is called."""

    def __init__(
        self,
        records: Records,
        kept: Kept,
        record: Record,
        settings: Settings,
        clock: Clock,
        bind: tuple[str, int],
    ) -> None:
        """`record` is what `kept` says, or a new job's; `bind` is host and port (0: any).

        Raises:
            OSError: the address cannot be had.
        """
        self._clock = clock
        self._key = record.key
        self._server = Server(*bind, self._on_message, self._on_dropped)
        self._state = machine.resume(record, settings, clock.monotonic())
        self._telemetry = Telemetry()
        self._roles: dict[int, str] = {}
        self._wake_at: float | None = None
        self._inbox: queue.SimpleQueue[_FromKeeper] = queue.SimpleQueue()
        self._keeper = Keeper(records, kept.version, clock, *(self._post,) * 4)
        self._outcome: Outcome | None = None
        self._end_at: float | None = None
        self._stopping: str | None = None
        self._listening: Callable[[], None] | None = None

    @property
    def address(self) -> str:
        """`host:port` where it listens."""
        return self._server.address

    def stop(self, reason: str) -> None:
        """End this process, not the job: another coordinator may go on. From any thread or a signal."""
        self._stopping = reason
        self._server.wake()

    def run(self, listening: Callable[[], None]) -> Outcome:
        """Serve. `listening` is called once the record says where."""
        self._listening = listening
        self._keeper.start()
        try:
            self._step(events.Started(self.address))
            return self._loop()
        finally:
            self._keeper.close(_FLUSH_SECONDS)
            self._server.shut()

    def _loop(self) -> Outcome:
        report_at = self._clock.monotonic() + _REPORT_SECONDS
        while True:
            now = self._clock.monotonic()
            moments = [report_at, self._wake_at, self._end_at]
            due = min(moment for moment in moments if moment is not None)
            # Messages that have come are handled before silence is judged.
            self._server.serve(now, max(due - now, 0.0))
            self._carry_out()
            now = self._clock.monotonic()
            if self._wake_at is not None and now >= self._wake_at:
                self._wake_at = None
                self._step(events.Tick())
            if now >= report_at and self._outcome is None:  # the last report says why it is over
                report_at = now + _REPORT_SECONDS
                self._report("")
            if self._stopping is not None and self._outcome is None:
                self._finish(Outcome(self._stopping), _FLUSH_SECONDS)
            if self._outcome is not None and self._is_over(now):
                return self._outcome

    def _is_over(self, now: float) -> bool:
        if self._end_at is None or now >= self._end_at:
            return True
        # Members close their connections once they have read that it is over.
        gone = not self._roles if self._outcome is not None and self._outcome.ended else True
        return gone and not self._server.unsent

    def _finish(self, outcome: Outcome, at_most_seconds: float) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._end_at = self._clock.monotonic() + at_most_seconds

    # from the sockets

    def _on_message(self, number: int, message: wire.Message) -> None:
        role = self._roles.get(number)
        if role is None or message["type"] == "hello":
            self._greet(number, message)
            return
        understand = messages.worker_event if role == "worker" else messages.sidecar_event
        event = understand(number, message)
        if event is not None:
            self._step(event)

    def _greet(self, number: int, message: wire.Message) -> None:
        event = messages.hello(number, message)
        key = message.get("key")
        if not isinstance(key, str) or not hmac.compare_digest(key.encode(), self._key.encode()):
            raise messages.Misshapen("a hello with another key")
        self._server.greet(number)
        self._roles[number] = "worker" if isinstance(event, events.WorkerHello) else "sidecar"
        self._step(event)

    def _on_dropped(self, number: int) -> None:
        if self._roles.pop(number, None) is not None:
            self._step(events.Dropped(number))

    # decisions

    def _step(self, event: events.Event) -> None:
        now = self._clock.monotonic()
        if isinstance(event, events.Report) and event.step >= 0:
            self._telemetry.heard(event, now)
        self._state, effects = machine.step(self._state, event, now)
        deferred: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Wake):
                self._wake_at = effect.at
            else:
                deferred.append(effect)
        if deferred:
            self._keeper.put(tuple(deferred))

    # from the keeper

    def _post(self, item: _FromKeeper) -> None:
        self._inbox.put(item)
        self._server.wake()

    def _carry_out(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, Replaced):
                self._finish(Outcome(item.reason, replaced=True), _FLUSH_SECONDS)
            elif isinstance(item, BaseException):
                raise item
            elif isinstance(item, Kept):
                self._step(events.Wanted(item.target, item.minimum, item.maximum))
            else:
                self._tell(item)

    def _tell(self, effects: tuple[Effect, ...]) -> None:
        if self._listening is not None:
            # The first save has put the address into the record.
            listening, self._listening = self._listening, None
            listening()
        for effect in effects:
            match effect:
                case Tell(connection=connection, message=message):
                    self._server.send(connection, message)
                case Close(connection=connection):
                    self._roles.pop(connection, None)
                    self._server.close(connection)
                case Report(message=message):
                    self._report(message)
                case End(reason=reason, failed=failed):
                    self._report(reason)
                    self._finish(Outcome(reason, ended=True, failed=failed), _AFTER_END_SECONDS)
                    faults.point("coordinator.end.told")
                case Save() | Wake() | Grant():
                    raise AssertionError("the keeper saves and asks, and ticks are not put to it")

    def _report(self, message: str) -> None:
        self._keeper.report(self._telemetry.report(self._state, self._clock.monotonic(), message))
