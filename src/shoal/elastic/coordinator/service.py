"""The coordinator as a process: sockets and time on one side, the record on the other.

One thread receives and sends; the keeper's thread writes. Everything that the machine decides goes
through the keeper in order, so nothing is sent that a lost write could take back.
"""

from __future__ import annotations

import hmac
import queue
from collections.abc import Callable
from dataclasses import dataclass

from shoal import faults
from shoal.clock import Clock
from shoal.elastic import wire
from shoal.elastic.coordinator import events, machine, messages
from shoal.elastic.coordinator.effects import Close, Effect, End, Grant, Report, Save, Tell, Wake
from shoal.elastic.coordinator.keeper import Keeper, Replaced
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.records import Kept, Records
from shoal.elastic.coordinator.reporting import Telemetry
from shoal.elastic.coordinator.server import Server
from shoal.elastic.coordinator.state import Settings

__all__ = ["Outcome", "Service"]

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
