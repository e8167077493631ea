"""Decides the next view from the members that are here, lost or leaving.

Called after everything that may matter. Three kinds of change, in this order: a view after a loss, a
planned view, the first view.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from shoal.elastic.coordinator import arrivals
from shoal.elastic.coordinator.record import Ended
from shoal.elastic.coordinator.state import Peer, Recovery
from shoal.elastic.coordinator.turn import End, Turn
from shoal.elastic.view import Cursor, Kind, Member, View

__all__ = ["advance", "end", "lose_state"]


def advance(turn: Turn) -> float | None:
    """Publish or plan what is due. Returns when to look again; None: when something happens."""
    if turn.record.ended is not None:
        return None
    view = turn.record.view
    if view is not None and _all_done(turn, view):
        end(turn, "all epochs are over", failed=False)
        return None
    if view is None or not turn.survivors():
        return _first(turn)
    hold = _hold(turn)
    if hold is not None:
        return hold
    broken = any(_is_lost(turn, member) for member in view.members)
    empty = not any(turn.alive(member) for member in view.members)
    if broken or empty or turn.state.renew is not None:
        return _loss(turn, view)
    return _planned(turn, view) if not turn.finished else None


def end(turn: Turn, reason: str, failed: bool) -> None:
    """Record that the job is over, then send it to all workers."""
    if turn.record.ended is not None:
        return
    turn.save("end", ended=Ended(reason, failed))
    for incarnation in sorted(turn.state.peers):
        turn.tell(incarnation, arrivals.stop_message(reason, failed))
    turn.effects.append(End(reason, failed))


def _is_lost(turn: Turn, member: Member) -> bool:
    return member.incarnation in turn.state.lost


def _all_done(turn: Turn, view: View) -> bool:
    """Every member has finished and its process has ended, but for those that were planned out. A member
    that was lost or that has failed in the meantime has not finished: its restart decides."""
    peers = [turn.peer(member.incarnation) for member in view.members]
    finished = {peer.incarnation for peer in peers if peer is not None and peer.done and peer.ended}
    left = (peer is not None and (peer.departed or peer.incarnation in finished) for peer in peers)
    return bool(finished) and all(left)


def _hold(turn: Turn) -> float | None:
    """After a start of this process: wait until all members are back, or have had their time."""
    until = turn.state.recovering_until
    if until is None:
        return None
    waiting = [
        member
        for member in turn.survivors()
        if turn.state.peers[member.incarnation].worker is None
        and turn.state.peers[member.incarnation].sidecar is None
    ]
    if waiting and turn.now < until:
        return until
    turn.set(recovering_until=None)
    return None


# after a loss


def _loss(turn: Turn, view: View) -> float | None:
    record = turn.record
    if turn.state.retry_at is not None:
        if turn.now < turn.state.retry_at:
            return turn.state.retry_at
        turn.set(retry_at=None)
    base = turn.survivors()
    holders = [member for member in base if member in view.members and _has_state(turn, member)]
    if not holders:
        return _adrift(turn, base)
    staying = [member for member in base if turn.state.peers[member.incarnation].leaving_at is None]
    # A leaving member may be out already, and far behind: it counts only if no other has a state.
    if any(member in holders for member in staying):
        base = tuple(staying)
    direct: list[Peer] = []
    if len(base) < turn.minimum:
        waiting = turn.joiners()
        direct = list(waiting if record.capacity is None else waiting[: record.capacity - len(base)])
    if len(base) + len(direct) < turn.minimum:
        _pause(turn, len(base) + len(direct))
        return None
    members = (*base, *(_member(peer) for peer in direct))
    # A joiner that follows a donor is not in before it has said so: what it follows may be gone.
    stateless = tuple(member.incarnation for member in members if member not in holders)
    _publish(turn, "loss", members, stateless)
    return None


def _has_state(turn: Turn, member: Member) -> bool:
    return member.incarnation not in turn.record.stateless


def _adrift(turn: Turn, base: tuple[Member, ...]) -> float | None:
    """No member is left that is known to hold the state of the view.

    Joiners of a planned view may be: if it is in use after all they say so at once, and hold everything;
    else what they hold may lack committed steps, and they begin from the checkpoint like newcomers.
    """
    since = turn.state.adrift_at
    if since is None:
        since = turn.now
        turn.set(adrift_at=since)
    due = since + turn.state.settings.trouble_seconds
    if turn.record.planned and turn.now < due:
        return due
    return _first(turn, base)


def _pause(turn: Turn, have: int) -> None:
    paused = (have, turn.minimum)
    if turn.state.paused == paused:
        return
    turn.set(paused=paused)
    for member in turn.survivors():
        turn.tell(member.incarnation, arrivals.paused_message(*paused))
    turn.report(f"paused: {have} of at least {turn.minimum} workers are here")


def _publish(
    turn: Turn,
    kind: Kind,
    members: tuple[Member, ...],
    stateless: tuple[int, ...],
    founders: tuple[int, ...] = (),
) -> None:
    """Keep a view that is in use from now on, then send it to its members; others are fenced."""
    record, state = turn.record, turn.state
    former = record.members
    ordered = tuple(sorted(members, key=lambda member: member.incarnation))
    view = View(record.epoch + 1, kind, ordered, record.step, record.cursor)
    turn.save(
        "view", epoch=view.epoch, view=view, planned=(), stateless=stateless, founders=founders
    )  # fmt: skip
    message = arrivals.view_message(turn)
    for member in ordered:
        turn.tell(member.incarnation, message)
        peer = state.peers[member.incarnation]
        turn.update(replace(peer, donor=None, stalled_at=None, broken=0))
    kept = {member.incarnation for member in ordered}
    reasons: list[str] = []
    for member in former:
        if member.incarnation not in kept and member.incarnation not in turn.finished:
            reason = state.lost.get(member.incarnation, "it was leaving")
            reasons.append(f"{member.name}: {reason}")
            arrivals.fence(turn, member.incarnation, f"epoch {view.epoch} goes on without it: {reason}")
    if state.renew is not None:
        reasons.append(state.renew)
    if kind == "loss" or former:
        began = state.began_at if state.began_at is not None else turn.now
        earlier = state.recoveries
        if earlier and earlier[-1].seconds is None:
            # this view takes its place: what was lost then is lost in the same pause
            *earlier, unfinished = earlier
            began, reasons = min(began, unfinished.began_at), [*unfinished.reasons, *reasons]
        known = sum(each.lost_steps for each in earlier)
        recovery = Recovery(
            view.epoch, view.size, began, turn.now, tuple(reasons), state.lost_steps - known
        )
        turn.set(recoveries=(*earlier[-63:], recovery))
    turn.set(
        lost={},
        began_at=None,
        trouble_at=None,
        renew=None,
        unbuilt={},
        unbuilt_epoch=0,
        unbuilt_at=None,
        abandoned=0,
        paused=None,
        adrift_at=None,
    )
    turn.trim()
    names = ", ".join(member.name for member in ordered)
    because = f" ({'; '.join(reasons)})" if reasons else ""
    turn.report(f"epoch {view.epoch}: {names}{because}")


# planned


def _planned(turn: Turn, view: View) -> float | None:
    record, state = turn.record, turn.state
    newest = record.planned[-1] if record.planned else None
    pending = newest if newest is not None and newest.epoch != state.abandoned else None
    wanted, stuck = _wanted(turn)
    _give_donors(turn)
    _ask_to_leave(turn)
    if pending is not None and not _spoilt(pending, wanted):
        return None
    if wanted != view.members:
        if not stuck and (others_by := _others_by(turn, view, wanted)) is not None:
            return others_by
        _plan(turn, wanted)
        return None
    if pending is not None:
        _abandon(turn, pending)
    return _let_go(turn, stuck, view)


def _wanted(turn: Turn) -> tuple[tuple[Member, ...], list[Peer]]:
    """The members of the next view, and those that want to leave and cannot, because of the minimum."""
    record, peers = turn.record, turn.state.peers
    staying = list(turn.survivors())
    ready = [_member(peer) for peer in turn.joiners() if peer.caught_up_at is not None]
    room = None if record.capacity is None else record.capacity - len(_not_leaving(turn, staying))
    staying += ready if room is None else ready[: max(room, 0)]
    stuck: list[Peer] = []
    leavers = [peers[m.incarnation] for m in staying if peers[m.incarnation].leaving_at is not None]
    for peer in sorted(leavers, key=lambda each: (each.leaving_at or 0.0, -each.incarnation)):
        if len(staying) - 1 >= turn.minimum:
            staying = [member for member in staying if member.incarnation != peer.incarnation]
        else:
            stuck.append(peer)
    return tuple(sorted(staying, key=lambda member: member.incarnation)), stuck


def _others_by(turn: Turn, view: View, wanted: tuple[Member, ...]) -> float | None:
    """Until when the newcomers wait for others that take their state too: one switch costs less than
    two, and the second would have to wait for the first. None: no joiner is waited for."""
    if any(member not in wanted for member in view.members):
        return None
    peers = turn.state.peers
    since = [peers[m.incarnation].caught_up_at for m in wanted if m not in view.members]
    known = [each for each in since if each is not None]
    behind = any(peer.donor is not None and peer.caught_up_at is None for peer in turn.joiners())
    if not (known and behind):
        return None
    due = min(known) + turn.state.settings.company_seconds
    return due if turn.now < due else None


def _not_leaving(turn: Turn, members: list[Member]) -> list[Member]:
    return [m for m in members if turn.state.peers[m.incarnation].leaving_at is None]


def _spoilt(pending: View, wanted: tuple[Member, ...]) -> bool:
    """Whether a planned view must not be waited for: a member of it is lost, or leaves.

    More joiners do not spoil it: they come with the one after.
    """
    return any(member not in wanted for member in pending.members)


def _plan(turn: Turn, wanted: tuple[Member, ...]) -> None:
    record = turn.record
    planned = View(record.epoch + 1, "switch", wanted, record.step, record.cursor)
    turn.save("plan", epoch=planned.epoch, planned=(*record.planned, planned))
    turn.set(abandoned=0, unbuilt={}, unbuilt_epoch=0, unbuilt_at=None)
    message = {"type": "prepare", "view": planned.to_wire()}
    for member in turn.survivors():
        turn.tell(member.incarnation, message)
    for member in planned.members:
        peer = turn.state.peers[member.incarnation]
        turn.update(replace(peer, donor=None))


def _abandon(turn: Turn, pending: View) -> None:
    turn.set(abandoned=pending.epoch)
    for member in turn.survivors():
        turn.tell(member.incarnation, {"type": "abandon", "epoch": pending.epoch})


def _give_donors(turn: Turn) -> None:
    """Each joiner that there is room for takes its state from a member; members share the load."""
    record, state = turn.record, turn.state
    view = record.view
    if view is None:
        return
    sources = [
        member
        for member in view.members
        if turn.alive(member)
        and state.peers[member.incarnation].worker is not None
        and state.peers[member.incarnation].leaving_at is None
        and member.incarnation not in record.stateless
    ]
    staying = len(_not_leaving(turn, list(turn.survivors())))
    joiners = turn.joiners()
    if record.capacity is not None:
        joiners = joiners[: max(record.capacity - staying, 0)]
    if not sources:
        return
    load = dict.fromkeys((member.incarnation for member in sources), 0)
    for peer in joiners:
        if peer.donor in load:
            load[peer.donor] += 1
    for peer in joiners:
        if peer.donor in load:
            continue
        source = min(sources, key=lambda member: load[member.incarnation])
        load[source.incarnation] += 1
        # A joiner that has lost its donor is behind again, however far it had come.
        turn.update(replace(peer, donor=source.incarnation, caught_up_at=None))
        message = {"type": "donor", "name": source.name, "address": source.address}
        turn.tell(peer.incarnation, message)


def _ask_to_leave(turn: Turn) -> None:
    """The job is to be smaller: the youngest are asked to go."""
    capacity = turn.record.capacity
    if capacity is None or turn.state.settings.platform:
        return
    staying = _not_leaving(turn, list(turn.survivors()))
    asked = [m for m in staying if turn.state.peers[m.incarnation].asked_to_leave]
    surplus = len(staying) - len(asked) - capacity
    for member in [m for m in reversed(staying) if m not in asked][: max(surplus, 0)]:
        peer = turn.state.peers[member.incarnation]
        turn.update(replace(peer, asked_to_leave=True))
        turn.tell(member.incarnation, {"type": "leave"})


def _let_go(turn: Turn, stuck: list[Peer], view: View) -> float | None:
    """A member that cannot be planned out leaves without a plan: the job pauses, rather than hold it
    past its notice.

    Nor is a joiner held whose planned view has been abandoned.
    """
    moments: list[float] = []
    never_in = [turn.state.peers[m.incarnation] for m in turn.survivors() if m not in view.members]
    for peer in [*stuck, *(each for each in never_in if each.leaving_at is not None)]:
        due = (peer.leaving_at or 0.0) + turn.state.settings.let_go_seconds
        if peer.let_go:
            continue
        if turn.now < due:
            moments.append(due)
            continue
        turn.update(replace(peer, let_go=True))
        turn.tell(peer.incarnation, {"type": "let_go"})
    return min(moments, default=None)


# the first


def _first(turn: Turn, stateless: tuple[Member, ...] = ()) -> float | None:
    """A view of newcomers: the first of all, or the first after everybody was lost.

    In it a worker that has never been in a group begins from the checkpoint, or from nothing. One that
    has a state after all, which was not reported yet, keeps it, and the others take it.
    """
    record, state = turn.record, turn.state
    if state.retry_at is not None:
        if turn.now < state.retry_at:
            return state.retry_at
        turn.set(retry_at=None)
    here = [*(state.peers[member.incarnation] for member in stateless), *turn.joiners()]
    if len(here) < turn.minimum:
        turn.set(minimum_met_at=None)
        if record.view is not None or here:
            _pause_newcomers(turn, here)
        return None
    if state.minimum_met_at is None:
        turn.set(minimum_met_at=turn.now)
    due = (turn.state.minimum_met_at or turn.now) + state.settings.expect_seconds
    # members whose first view has failed do not wait once more
    if not stateless and record.step == 0 and len(here) < state.expect and turn.now < due:
        return due
    if not lose_state(turn):
        return None
    _go_back(turn)
    count = len(here) if record.capacity is None else min(len(here), record.capacity)
    if record.view is not None and record.step == 0 and state.renew is None:
        turn.report("every worker was lost before a step was known to be committed: it begins at step 0")
    members = tuple(_member(peer) for peer in here[:count])
    before = tuple(member.incarnation for member in stateless)
    founders = tuple(each for each in before if each in record.founders) or before
    ids = tuple(member.incarnation for member in members)
    _publish(turn, "first", members, stateless=ids, founders=founders or ids)
    return None


def _go_back(turn: Turn) -> None:
    """What is committed is from now on what the checkpoint holds."""
    record, manifest = turn.record, turn.record.manifest
    step = manifest.get("step", 0) if manifest is not None else 0
    cursor = manifest.get("cursor") if manifest is not None else None
    lost = max(record.step - step, 0) if isinstance(step, int) else 0
    if not lost:
        return
    pair = cast("list[int]", cursor) if isinstance(cursor, (list, tuple)) else [0, 0]
    turn.set(
        record=replace(record, step=step, cursor=Cursor(*pair[:2]), lost_state=manifest is None),
        lost_steps=turn.state.lost_steps + lost,
    )


def lose_state(turn: Turn) -> bool:
    """Whether a first view may be published: never at step 0 again in silence."""
    record = turn.record
    if record.step == 0 or record.manifest is not None or turn.state.settings.allow_lost_state:
        return True
    last = record.failures[-1] if record.failures else None
    because = f"; the last to fail was {last.name}: {last.error}" if last is not None else ""
    reason = (
        f"every worker was lost after step {record.step} was committed, and there is no checkpoint to "
        f"go on from: give elastic.init(checkpoint=...) a folder{because}"
    )
    end(turn, reason, failed=True)
    return False


def _pause_newcomers(turn: Turn, here: list[Peer]) -> None:
    paused = (len(here), turn.minimum)
    if turn.state.paused == paused:
        return
    turn.set(paused=paused)
    for peer in here:
        turn.tell(peer.incarnation, arrivals.paused_message(*paused))
    turn.report(f"waiting: {len(here)} of at least {turn.minimum} workers are here")


def _member(peer: Peer) -> Member:
    return Member(peer.name, peer.incarnation, peer.address)
