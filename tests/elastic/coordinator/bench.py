"""A machine on a table: events go in at moments that a test chooses, what is told comes out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.elastic.coordinator import events, machine
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.state import Settings, State
from shoal.elastic.coordinator.turn import End, Report, Save, Tell
from shoal.elastic.view import Cursor, View


class Bench:
    """A coordinator without a process. Workers are known by name; `w1` of name `a` is `self.at["a"]`."""

    def __init__(
        self, minimum: int = 1, maximum: int | None = None, record: Record | None = None, **settings: Any
    ) -> None:
        base = record or Record(key="key")
        record = replace(base, minimum=minimum, maximum=maximum)
        self.now = 100.0
        self.state: State = machine.resume(record, Settings(**settings), self.now)
        self.saved: list[Record] = []
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.reports: list[str] = []
        self.end: End | None = None
        self.connections: dict[str, int] = {}
        self.sidecars: dict[str, int] = {}
        self.incarnations: dict[str, int] = {}
        self._number = 0
        self.do(events.Started("here:1"))

    def do(self, event: events.Event) -> None:
        self.state, effects = machine.step(self.state, event, self.now)
        names = {number: name for name, number in self.connections.items()}
        for effect in effects:
            match effect:
                case Save(record=record):
                    self.saved.append(record)
                case Tell(connection=connection, message=message):
                    name = names.get(connection, f"?{connection}")
                    self.told.setdefault(name, []).append(message)
                    if message["type"] == "welcome":
                        self.incarnations[name] = message["incarnation"]
                case Report(message=text):
                    self.reports.append(text)
                case End():
                    self.end = effect
                case _:
                    pass

    def join(self, *names: str, sidecars: bool = True) -> None:
        for name in names:
            self.hello(name, 0, 0, -1)
            if sidecars:
                self.sidecar(name)

    def hello(self, name: str, incarnation: int, epoch: int, step: int) -> None:
        self._number += 1
        self.connections[name] = self._number
        self.do(events.WorkerHello(self._number, name, incarnation, f"{name}:1", epoch, step))

    def sidecar(self, name: str) -> None:
        self._number += 1
        self.sidecars[name] = self._number
        self.do(events.SidecarHello(self._number, name, self.incarnations[name]))

    def drop(self, name: str, which: str = "both") -> None:
        if which in ("both", "worker"):
            self.do(events.Dropped(self.connections[name]))
        if which in ("both", "sidecar"):
            self.do(events.Dropped(self.sidecars[name]))

    def says(self, name: str, make: Any, *fields: Any) -> None:
        self.do(make(self.connections[name], *fields))

    def sidecar_says(self, name: str, what: Any, seconds: float = 0.0) -> None:
        self.do(events.SidecarSaid(self.sidecars[name], what, seconds))

    def caught_up(self, *names: str, step: int = 0) -> None:
        for name in names:
            self.says(name, events.CaughtUp, step)

    def switched(self, epoch: int, step: int, *names: str) -> None:
        for name in names:
            self.says(name, events.Switched, epoch, step, Cursor(0, step))

    def recovered(self, epoch: int, step: int, *names: str, how: str = "nothing") -> None:
        for name in names:
            self.says(name, events.Recovered, epoch, step, Cursor(0, step), 0.05, how)

    def start(self, *names: str) -> None:
        """Join, and be in the first view."""
        self.join(*names)
        assert self.members == list(names)
        self.recovered(self.epoch, 0, *names)

    def progress(self, name: str, step: int) -> None:
        self.says(name, events.Report, step, Cursor(0, step), 0.1, 1, 1)

    def broken(self, name: str, epoch: int) -> None:
        """Its operations in the group of this epoch fail."""
        self.says(name, events.Report, -1, Cursor(), 0.0, 0, 0, epoch, epoch)

    def pass_time(self, seconds: float, silent: tuple[str, ...] = ()) -> None:
        """Sidecars beat, but for the silent; the machine is woken when it asked to be."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(until, self.now + 0.05)
            for name, number in self.sidecars.items():
                if name not in silent:
                    self.do(events.Beat(number, 0.0))
            if self.state.wake_at is not None and self.now >= self.state.wake_at:
                self.do(events.Tick())

    @property
    def view(self) -> View:
        view = self.state.record.view
        assert view is not None
        return view

    @property
    def epoch(self) -> int:
        return self.view.epoch

    @property
    def members(self) -> list[str]:
        return [member.name for member in self.view.members]

    @property
    def planned(self) -> list[str] | None:
        record = self.state.record
        if not record.planned or record.planned[-1].epoch == self.state.abandoned:
            return None
        return [member.name for member in record.planned[-1].members]

    def last(self, name: str, kind: str) -> dict[str, Any] | None:
        return next((m for m in reversed(self.told.get(name, [])) if m["type"] == kind), None)

    def restarted(self, **settings: Any) -> Bench:
        """Another coordinator, from what this one has kept."""
        other = Bench(self.state.record.minimum, self.state.record.maximum, self.saved[-1], **settings)
        other.incarnations = dict(self.incarnations)
        return other
