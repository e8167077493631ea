"""Blows, dealt to the processes of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.soak.places import Places
from tests.soak.plan import Blow

__all__ = ["Dealt", "Harm"]

_PUTS_OUT = ("kill", "stop", "notice", "both")
"""After these somebody else must be there who has the state: with the last of them it would be lost.
Nor do they fall while half of the workers are on their way back already: on a slow machine there would
soon be one, whose peers never come."""


@dataclass(frozen=True)
class Dealt:
    """A blow, when it fell (monotonic), and on whom."""

    at: float
    kind: str
    whom: str


@dataclass
class Harm:
    """`later(seconds, act)` has something done after a while: what lasts is ended so."""

    places: Places
    later: Callable[[float, Callable[[], object]], None]
    dealt: list[Dealt] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    coordinator_up: bool = True

    def strike(self, blow: Blow, now: float, spared: str, *, spare_coordinator: bool) -> None:
        """Deal a blow, if there is somebody whom it may hit; the spared ones it does not."""
        kind = blow.kind
        if spare_coordinator and kind in ("coordinator", "both"):
            kind = "kill"
        whom = self._hit(kind, self._victim(kind, blow, spared), blow)
        if whom:
            self.dealt.append(Dealt(now, kind, whom))
        else:
            self.missed[kind] += 1

    def repair(self) -> None:
        """End what lasts."""
        for name in list(self.places.stopped):
            self.places.go_on(name)
        self._coordinator_back()

    def _victim(self, kind: str, blow: Blow, spared: str) -> str:
        places = self.places
        steady = set(places.steady())
        calm = len(set(places.living()) - steady) < len(places.names) / 2
        found = [
            name
            for name in places.living()
            if name not in places.stopped | places.leaving | {spared}
            and (kind not in _PUTS_OUT or (calm and steady - {name}))
        ]
        return found[int(blow.chance * len(found))] if found else ""

    def _hit(self, kind: str, victim: str, blow: Blow) -> str:
        """Whom it has hit; nobody, where there is nobody now."""
        if kind == "resize":
            self._resize(blow.size)
            self.later(blow.seconds, lambda: self._resize(len(self.places.names)))
            return f"{blow.size}"
        if kind in ("coordinator", "both"):
            if not self.coordinator_up or (kind == "both" and not victim):
                return ""
            self.places.job.kill("coordinator")
            self.coordinator_up = False
            self.later(blow.seconds, self._coordinator_back)
            if kind == "both":
                self.places.kill(victim)
            return f"coordinator {victim if kind == 'both' else ''}".strip()
        return victim if victim and self._hit_worker(kind, victim, blow) else ""

    def _hit_worker(self, kind: str, victim: str, blow: Blow) -> bool:
        match kind:
            case "kill":
                self.places.kill(victim)
            case "stop" | "pause":
                self.places.stop(victim)
                self.later(blow.seconds, lambda: self.places.go_on(victim))
            case "notice":
                self.places.notice(victim)
            case "sidecar":
                return self.places.job.kill_sidecar(victim)
            case other:
                raise ValueError(other)
        return True

    def _coordinator_back(self) -> None:
        if not self.coordinator_up:
            self.places.job.start_coordinator()
            self.coordinator_up = True

    def _resize(self, size: int) -> None:
        self.places.wanted = size
        if size < len(self.places.names):
            self.places.anyone_may_leave()
        path = self.places.job.folder / "resize"
        new = path.with_suffix(".new")
        new.write_text(str(size))
        new.replace(path)
