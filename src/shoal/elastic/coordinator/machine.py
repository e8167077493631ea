"""The coordinator's state machine: `step(state, event, now)` gives the next state and what to do. Pure.

What production runs is what the model check drives (`tests/elastic/coordinator/test_model.py`): there is
no clock, no socket, and no randomness in here.
"""

from __future__ import annotations

from dataclasses import replace

from shoal.elastic.coordinator import arrivals, changes, events, evidence, heard, watching
from shoal.elastic.coordinator.record import Record
from shoal.elastic.coordinator.state import Peer, Settings, State
from shoal.elastic.coordinator.turn import Effect, Turn, Wake
from shoal.elastic.view import View

__all__ = ["resume", "step"]


def resume(record: Record, settings: Settings, now: float) -> State:
    """The state of a coordinator that has just loaded `record` (a new one for a new job).

    Members of its views are known, and not connected yet: they have `settings.restart_seconds` to be.
    """
    peers = {
        member.incarnation: Peer(
            member.name,
            member.incarnation,
            member.address,
            since=now,
            dropped_at=now,
            worker_dropped_at=now,
            heard_at=now,
            applied=record.step,
            cursor=record.cursor,
        )
        for member in record.members
    }
    until = now + settings.restart_seconds if peers else None
    return State(settings, record, peers, recovering_until=until, expect=settings.expect)


def step(state: State, event: events.Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """What `event` at `now` (monotonic seconds, never less than before) leads to.

    Effects are to be carried out in order; see `turn`.
    """
    turn = Turn(state, now)
    if state.wake_at is not None and now > state.wake_at + state.settings.late_tick_seconds:
        _forgive(turn)
    if isinstance(event, events.Beat):
        _beat(turn, event)
        if not _pressing(turn):
            return turn.state, tuple(turn.effects)
    else:
        _handle(turn, event)
        if _changes_nothing(state, turn, event):
            return turn.state, tuple(turn.effects)
    _settle(turn)
    return turn.state, tuple(turn.effects)


def _forgive(turn: Turn) -> None:
    """This process itself was late (it was stopped, or starved): silence before now does not count."""
    for peer in turn.state.peers.values():
        turn.update(
            replace(
                peer,
                heard_at=turn.now,
                dropped_at=turn.now,
                worker_dropped_at=turn.now,
                stopped_at=turn.now if peer.stopped_at is not None else None,
                accused=replace(peer.accused, at=turn.now) if peer.accused is not None else None,
            )
        )
    turn.set(wake_at=None)


def _pressing(turn: Turn) -> bool:
    """Whether a moment that was asked for has passed, or a witness is wanted: a beat must not delay what
    is due, and may be what was waited for."""
    state = turn.state
    wanted = turn.now < state.asked_at + state.settings.ask_again_seconds
    return wanted or state.wake_at is None or turn.now >= state.wake_at


def _changes_nothing(before: State, turn: Turn, event: events.Event) -> bool:
    """Whether this is one of the words that all members say again and again, and no decision hangs on
    it: weighing takes time for each of them, at each of their words."""
    if not isinstance(event, (events.Report, events.Gossips)) or _pressing(turn):
        return False
    old, new = before.peer_at(event.connection), turn.state.peer_at(event.connection)
    if old is None or new is None:
        return True
    same = (old.gossip, old.stalled_at, old.broken) == (new.gossip, new.stalled_at, new.broken)
    former, record = before.record, turn.record
    return same and former.view is record.view and former.stateless == record.stateless


def _beat(turn: Turn, event: events.Beat) -> None:
    peer = turn.state.peer_at(event.connection)
    if peer is not None:
        # Lateness wears off slowly: a machine that was starved once is likely to be again.
        late = max(event.late_seconds, 0.9 * peer.late_seconds)
        turn.update(replace(_heard(peer, turn.now), late_seconds=late if late > 0.001 else 0.0))
        watching.beats(turn, turn.state.peers[peer.incarnation])


def _heard(peer: Peer, now: float) -> Peer:
    return replace(peer, heard_at=now, accused=None)


def _handle(turn: Turn, event: events.Event) -> None:
    match event:
        case events.Started(address=address):
            turn.save("address", address=address)
        case events.Tick():
            pass
        case events.Wanted():
            _wanted(turn, event)
        case events.Dropped(connection=connection):
            arrivals.dropped(turn, connection)
        case events.WorkerHello():
            arrivals.worker_hello(turn, event)
        case events.SidecarHello():
            arrivals.sidecar_hello(turn, event)
        case events.Publish():
            if turn.record.ended is None:
                heard.publish(turn, event)
        case events.Beat():
            pass
        case _:
            _word(turn, event)


def _word(turn: Turn, event: events.Event) -> None:
    """A message of a known peer. Of one that is lost or fenced only the reason of its failure counts:
    its samples must be known when they end the next worker, whichever evidence of its end came first."""
    connection: int = getattr(event, "connection", 0)
    if turn.record.ended is not None:
        return
    peer = turn.state.peer_at(connection)
    if peer is None or peer.incarnation in turn.state.lost:
        known = (peer.name, peer.incarnation) if peer is not None else turn.state.fenced.get(connection)
        if known is not None and isinstance(event, events.Failed):
            heard.failed_after_loss(turn, *known, event)
        return
    peer = _heard(peer, turn.now)
    if isinstance(event, events.SidecarSaid):
        turn.update(peer)
        heard.sidecar_said(turn, peer, event)
    elif isinstance(event, (events.Failed, events.Done, events.Left)):  # a sidecar may report the end
        turn.update(peer)
        heard.worker_said(turn, peer, event)
    elif isinstance(event, (events.Gossips, events.Silent, events.Heard)):
        if peer.sidecar == connection:
            turn.update(peer)
            watching.said(turn, peer, event)
    elif peer.worker == connection:
        turn.update(peer)
        heard.worker_said(turn, peer, event)


def _wanted(turn: Turn, event: events.Wanted) -> None:
    record = turn.record
    minimum = event.minimum if event.minimum is not None else record.minimum
    maximum = event.maximum if event.maximum is not None else record.maximum
    turn.set(expect=event.expect or 0)
    if (minimum, maximum) != (record.minimum, record.maximum):
        turn.save("sizes", minimum=minimum, maximum=maximum)


def _settle(turn: Turn) -> None:
    """Weigh the evidence, publish what follows, and ask to be woken when something may be due."""
    moments = [_weigh(turn), _stalls(turn), _troubles(turn), _cuts(turn), changes.advance(turn)]
    moments.append(watching.advance(turn))
    if turn.record.ended is not None:
        moments = []
    due = min((moment for moment in moments if moment is not None), default=None)
    if due != turn.state.wake_at:
        turn.set(wake_at=due)
        turn.effects.append(Wake(due))


def _weigh(turn: Turn) -> float | None:
    members = {member.incarnation for member in turn.record.members}
    alive = [peer for peer in turn.state.peers.values() if peer.incarnation not in turn.state.lost]
    alive = [peer for peer in alive if not peer.done]
    voting = [peer for peer in alive if peer.incarnation in members and not peer.departed]
    view = turn.record.view
    in_use = {member.incarnation for member in view.members} if view is not None else set[int]()
    holders = in_use - set(turn.record.stateless) | in_use & set(turn.record.founders)
    verdict = evidence.judge(voting, holders, turn.state, turn.now)
    for incarnation, reason in verdict.lost.items():
        turn.lose(incarnation, reason)
    moments = [] if verdict.due is None else [verdict.due]
    if verdict.unheard:
        moments.append(watching.ask_for_words(turn, holders))
    for peer in alive:
        if peer.incarnation in members:
            continue
        suspicion = evidence.suspicion(peer, turn.state)
        if turn.now < suspicion.due:
            moments.append(suspicion.due)
        else:
            arrivals.fence(turn, peer.incarnation, suspicion.reason)
    return min(moments, default=None)


def _stalls(turn: Turn) -> float | None:
    """A member without progress holds up all others, so that they stall too: one that stalls alone is
    lost."""
    view = turn.record.view
    if view is None or view.size < 2:
        return None
    alive = [turn.state.peers[member.incarnation] for member in view.members if turn.alive(member)]
    stalled = [peer for peer in alive if peer.stalled_at is not None]
    if not stalled:
        return None
    due = min(peer.stalled_at or 0.0 for peer in stalled) + turn.state.settings.stalled_seconds
    if turn.now < due:
        return due
    if len(stalled) < len(alive):
        for peer in stalled:
            turn.lose(peer.incarnation, "it makes no progress")
        return None
    # The culprit cannot be identified: in a new group the one that hangs does not answer.
    turn.set(renew="no member makes progress", began_at=turn.state.began_at or turn.now)
    for peer in stalled:
        turn.update(replace(peer, stalled_at=None))
    return None


def _troubles(turn: Turn) -> float | None:
    """Operations fail and no member is known to be lost: a new view of the same members, soon.

    At once if they fail for all members, unless the view has only just been published.
    """
    state, view = turn.state, turn.record.view
    if view is None or state.renew is not None:
        return None
    alive = [state.peers[member.incarnation] for member in view.members if turn.alive(member)]
    broken = [peer for peer in alive if _is_broken(peer, view)]
    if not broken:
        turn.set(trouble_at=None)
        return None
    patience = state.settings.trouble_seconds
    since = state.trouble_at if state.trouble_at is not None else turn.now
    turn.set(trouble_at=since, began_at=state.began_at if state.began_at is not None else turn.now)
    published = state.recoveries[-1].published_at if state.recoveries else float("-inf")
    fresh = turn.now < published + patience
    due = since if len(broken) == len(alive) and not fresh else since + patience
    if turn.now < due:
        return due
    turn.set(renew="an operation failed and no member is lost")
    return None


def _is_broken(peer: Peer, view: View) -> bool:
    """Whether it needs a view after this one: it cannot follow a switch once its group is broken."""
    return peer.broken == view.epoch or (0 < peer.broken < view.epoch and view.kind == "switch")


def _cuts(turn: Turn) -> float | None:
    state = turn.state
    if state.unbuilt_at is None:
        return None
    views = (turn.record.view, *turn.record.planned)
    building = next((each for each in views if each and each.epoch == state.unbuilt_epoch), None)
    waiting = [m for m in building.members if turn.alive(m)] if building is not None else []
    due = state.unbuilt_at + state.settings.unbuilt_seconds
    if turn.now < due and any(member.incarnation not in state.unbuilt for member in waiting):
        return due
    heard.cut_off(turn)
    return None
