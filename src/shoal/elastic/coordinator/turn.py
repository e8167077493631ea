"""One step of the coordinator in the making: the state as it becomes, and the effects so far.

Effects are plain data, carried out in the order in which they are listed. A `Save` must have succeeded
before anything after it is done; if it is refused nothing after it ever is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from shoal.elastic import wire
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.state import Peer, State
from shoal.elastic.view import Cursor, Member, View

__all__ = ["Close", "Effect", "End", "Grant", "Report", "Save", "Tell", "Turn", "Wake"]


@dataclass(frozen=True)
class Save:
    """Keep this record durably. `why` names the act (`view`, `plan`, `join` ...)."""

    record: Record
    why: str


@dataclass(frozen=True)
class Tell:
    """Send a message over a connection."""

    connection: int
    message: wire.Message


@dataclass(frozen=True)
class Close:
    """Close a connection, after the messages that were sent to it."""

    connection: int


@dataclass(frozen=True)
class Wake:
    """Give a `Tick` at this moment (monotonic seconds); earlier wishes are void. None: no wish."""

    at: float | None


@dataclass(frozen=True)
class Report:
    """Something changed that people want to see soon; `message` is one sentence."""

    message: str


@dataclass(frozen=True)
class Grant:
    """Ask the platform, which gives and takes workers, for so many."""

    size: int


@dataclass(frozen=True)
class End:
    """The job is over; all workers have been sent that."""

    reason: str
    failed: bool


Effect = Save | Tell | Close | Wake | Report | Grant | End


class Turn:
    """Used within one call of `machine.step` and thrown away: the functions around it stay pure."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.effects: list[Effect] = []

    # what is known

    @property
    def record(self) -> Record:
        """The record as it will be kept."""
        return self.state.record

    def peer(self, incarnation: int) -> Peer | None:
        """What is known of it."""
        return self.state.peers.get(incarnation)

    def alive(self, member: Member) -> bool:
        """A member that is not counted lost and has not gone out."""
        peer = self.peer(member.incarnation)
        return member.incarnation not in self.state.lost and peer is not None and not peer.departed

    def survivors(self) -> tuple[Member, ...]:
        """Members of the view and of the planned ones that take part, the oldest first."""
        return tuple(
            member
            for member in self.record.members
            if self.alive(member) and member.incarnation not in self.finished
        )

    @property
    def finished(self) -> set[int]:
        """The incarnations that have exhausted their data and ended with exit code 0."""
        return {incarnation for incarnation, peer in self.state.peers.items() if peer.done}

    @property
    def minimum(self) -> int:
        """How many members a view needs: those that have finished are not missed."""
        return max(1, self.record.minimum - len(self.finished))

    def joiners(self) -> tuple[Peer, ...]:
        """Workers that are in no view, want to be, and are here; the oldest first."""
        known = {member.incarnation for member in self.record.members}
        return tuple(
            peer
            for incarnation, peer in sorted(self.state.peers.items())
            if incarnation not in known
            and incarnation not in self.state.lost
            and peer.worker is not None
            and peer.leaving_at is None
        )

    # what changes

    def set(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    def update(self, peer: Peer) -> None:
        """Keep what is newest of a peer."""
        self.state = self.state.with_peer(peer)

    def forget(self, incarnation: int) -> None:
        """It is in no view and its process is gone: nothing of it is kept."""
        peers = {i: peer for i, peer in self.state.peers.items() if i != incarnation}
        ends = {c: i for c, i in self.state.connections.items() if i != incarnation}
        self.set(peers=peers, connections=ends)

    def lose(self, incarnation: int, reason: str) -> None:
        """Count a member lost."""
        if incarnation in self.state.lost:
            return
        began = self.state.began_at if self.state.began_at is not None else self.now
        self.set(lost={**self.state.lost, incarnation: reason}, began_at=began)

    def save(self, why: str, **changes: Any) -> None:
        """Change fields of the record, and keep it before anything else is sent."""
        record = replace(self.record, **changes)
        self.state = replace(self.state, record=record)
        self.effects.append(Save(record, why))

    def tell(self, incarnation: int, message: wire.Message) -> None:
        """Send to a worker, if it is connected; what matters is sent again when it comes back."""
        peer = self.peer(incarnation)
        if peer is not None and peer.worker is not None:
            self.effects.append(Tell(peer.worker, message))

    def answer(self, connection: int, message: wire.Message) -> None:
        """Send over a connection."""
        self.effects.append(Tell(connection, message))

    def close(self, connection: int) -> None:
        """Have no more to do with a connection."""
        self.effects.append(Close(connection))

    def report(self, message: str) -> None:
        """Let people know."""
        self.effects.append(Report(message))

    def heard_step(self, peer: Peer, step: int, cursor: Cursor) -> None:
        """A member has applied `step`: what follows for what is committed.

        A step is committed once every member has applied it. That holds for the least of what all say,
        and for any step before one that a member has applied: the last bucket of a step is complete only
        when everybody gave to it, after having applied the one before.
        """
        if step >= 0 and peer.incarnation in self.record.stateless:
            left = tuple(each for each in self.record.stateless if each != peer.incarnation)
            self.save("state", stateless=left)
        if step > peer.applied:
            # The sender's step has moved: it is not stuck.
            self.update(replace(peer, applied=step, cursor=cursor, stalled_at=None))
        view = self.record.view
        if view is None or view.rank_of(peer.name, peer.incarnation) is None:
            return
        heard = [self.state.peers.get(member.incarnation) for member in view.members]
        applied = [each.applied if each is not None else -1 for each in heard]
        bound = max(min(applied), max(applied) - 1)
        known = [
            (each.applied, each.cursor) for each in heard if each is not None and each.applied <= bound
        ]
        best = max(known, key=lambda pair: pair[0], default=(-1, Cursor()))
        if best[0] <= self.record.step:
            return
        first = self.record.step == 0
        record = replace(self.record, step=best[0], cursor=best[1])
        self.state = replace(self.state, record=record)
        # That anything was committed at all must survive at once: it forbids a silent start at step 0.
        if first or self.now >= self.state.saved_step_at + self.state.settings.step_save_seconds:
            self.set(saved_step_at=self.now)
            self.effects.append(Save(record, "step"))

    def adopt(self, epoch: int) -> None:
        """A planned view has turned out to be in use."""
        view = next((each for each in self.record.planned if each.epoch == epoch), None)
        if view is None:
            return
        later = tuple(each for each in self.record.planned if each.epoch > epoch)
        former = self.record.view.members if self.record.view is not None else ()
        # Joiners switch when their donor says so, which may have died before: they report it themselves.
        stateless = tuple(
            member.incarnation
            for member in view.members
            if member not in former or member.incarnation in self.record.stateless
        )
        self.save("switch", view=view, planned=later, stateless=stateless, founders=())
        self.set(trouble_at=None, unbuilt={}, unbuilt_epoch=0, unbuilt_at=None, retry_at=None)
        self.trim()
        self.report(f"epoch {epoch} is in use: {_names(view)}")

    def trim(self) -> None:
        """Forget blobs of groups that are not built any more, and peers that are gone and in no view."""
        in_use = self.record.view.epoch if self.record.view is not None else 0
        members = {member.incarnation for member in self.record.members}
        blobs = {key: data for key, data in self.state.blobs.items() if key[0] >= in_use}
        gone = [
            incarnation
            for incarnation, peer in self.state.peers.items()
            if incarnation not in members
            and peer.worker is None
            and peer.sidecar is None
            and (incarnation in self.state.lost or peer.departed)
        ]
        self.set(blobs=blobs)
        for incarnation in gone:
            self.forget(incarnation)


def _names(view: View) -> str:
    return ", ".join(member.name for member in view.members)
