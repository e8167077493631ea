"""What workers and sidecars say about themselves and each other, and what follows at once."""

from __future__ import annotations

import json
from dataclasses import replace

from shoal.elastic.coordinator import arrivals, changes, events
from shoal.elastic.coordinator.evidence import largest_connected
from shoal.elastic.coordinator.record import Failure
from shoal.elastic.coordinator.state import Peer, Recovery
from shoal.elastic.coordinator.turn import Grant, Turn
from shoal.elastic.view import View

__all__ = ["cut_off", "failed_after_loss", "publish", "sidecar_said", "worker_said"]

MAX_MANIFEST_BYTES = 64 << 10
_MAX_FAILURES = 32
_KEPT_ERROR = 500
_UNREACHED = "not all members reach each other"


def sidecar_said(turn: Turn, peer: Peer, event: events.SidecarSaid) -> None:
    """Evidence from the machine that a worker is on."""
    match event.what:
        case "gone":
            _gone(turn, peer, "its process is gone")
        case "stopped":
            turn.update(replace(peer, stopped_at=peer.stopped_at or turn.now))
        case "continued":
            turn.update(replace(peer, stopped_at=None, stalled_at=None))
        case "stalled":
            turn.update(replace(peer, stalled_at=peer.stalled_at or turn.now))
        case "notice":
            _leaving(turn, peer)


def worker_said(turn: Turn, peer: Peer, event: events.Event) -> None:
    """A word of a worker that is known here."""
    match event:
        case events.Blob():
            _blob(turn, peer, event)
        case events.CaughtUp():
            turn.update(replace(peer, caught_up_at=turn.now))
        case events.Switched(epoch=epoch, step=step, cursor=cursor):
            turn.adopt(epoch)
            _in_use(turn, peer, epoch)
            turn.heard_step(turn.state.peers[peer.incarnation], step, cursor)
        case events.Recovered():
            _recovered(turn, peer, event)
        case events.Unbuilt():
            _unbuilt(turn, peer, event)
        case events.Leaving():
            _leaving(turn, peer)
        case events.Left():
            _left(turn, peer)
        case events.Failed():
            _failed(turn, peer, event)
        case events.Done(step=step, cursor=cursor):
            # A worker that leaves early has not finished the training. The exit code of a worker is
            # known to its sidecar alone, once the process is gone.
            done = peer.leaving_at is None and not peer.departed
            ended = peer.ended or peer.sidecar in (None, event.connection)
            turn.update(replace(peer, done=done, ended=ended))
            turn.heard_step(turn.state.peers[peer.incarnation], step, cursor)
        case events.Report():
            _report(turn, peer, event)
        case events.Resize(size=size):
            _resize(turn, size)
            # after the record: a worker that gets it need not send it again
            turn.tell(peer.incarnation, {"type": "resized", "size": size})
        case _:
            pass


def publish(turn: Turn, event: events.Publish) -> None:
    """A manifest becomes the newest if its sender is a member of the epoch in use."""
    peer = turn.state.peer_at(event.connection)
    refusal = _refusal(turn, peer, event)
    if refusal is not None:
        turn.answer(event.connection, {"type": "refused", "epoch": event.epoch, "reason": refusal})
        return
    turn.save("manifest", manifest=event.manifest)
    turn.answer(event.connection, {"type": "published", "epoch": event.epoch})


def cut_off(turn: Turn) -> None:
    """Members could not build a group: the largest set that is fully connected stays."""
    epoch, view = turn.state.unbuilt_epoch, turn.record.view
    building = next(
        (each for each in (view, *turn.record.planned) if each and each.epoch == epoch), None
    )
    if building is None or view is None:
        turn.set(unbuilt={}, unbuilt_epoch=0, unbuilt_at=None)
        return
    here = [member.incarnation for member in building.members if turn.alive(member)]
    staying = largest_connected(here, turn.state.unbuilt)
    turn.set(unbuilt={}, unbuilt_epoch=0, unbuilt_at=None)
    if building is not view:
        _unbuilt_plan(turn, view, building, staying)
        return
    where = ", ".join(f"{member.name} at {member.address}" for member in building.members)
    turn.set(renew=f"{_UNREACHED}: {where}", began_at=turn.state.began_at or turn.now)
    if len(staying) < turn.record.minimum:
        # No side may go on: all wait, and try again when the network may have healed.
        turn.set(retry_at=turn.now + turn.state.settings.retry_seconds)
        return
    for incarnation in here:
        if incarnation not in staying:
            turn.lose(incarnation, "it does not reach the others")
    if len(staying) == len(here):
        bounds = turn.state.settings
        pause = bounds.retry_seconds if _was_renewed(turn, view) else bounds.both_lost_seconds
        turn.set(retry_at=turn.now + pause)


def _was_renewed(turn: Turn, view: View) -> bool:
    """Whether this view itself was published because a group could not be built."""
    last = turn.state.recoveries[-1] if turn.state.recoveries else None
    return (
        last is not None
        and last.epoch == view.epoch
        and any(reason.startswith(_UNREACHED) for reason in last.reasons)
    )


def _gone(turn: Turn, peer: Peer, reason: str) -> None:
    if peer.done:
        turn.update(replace(peer, ended=True))
        return
    if any(member.incarnation == peer.incarnation for member in turn.record.members):
        if not peer.departed:
            turn.lose(peer.incarnation, reason)
        return
    turn.forget(peer.incarnation)


def _leaving(turn: Turn, peer: Peer) -> None:
    if peer.leaving_at is None:
        turn.update(replace(peer, leaving_at=turn.now))
    if all(member.incarnation != peer.incarnation for member in turn.record.members):
        turn.tell(peer.incarnation, {"type": "let_go"})


def _left(turn: Turn, peer: Peer) -> None:
    planned_out = any(
        all(member.incarnation != peer.incarnation for member in view.members)
        for view in (turn.record.view, *turn.record.planned)
        if view is not None
    )
    if planned_out:
        turn.update(replace(peer, departed=True, leaving_at=peer.leaving_at or turn.now))
        turn.trim()
    else:
        _gone(turn, peer, "it has left")


def _blob(turn: Turn, peer: Peer, event: events.Blob) -> None:
    views = (turn.record.view, *turn.record.planned)
    view = next((each for each in views if each is not None and each.epoch == event.epoch), None)
    # A rank speaks for itself alone, and only in an epoch that may still be built.
    if view is None or view.rank_of(peer.name, peer.incarnation) != event.rank:
        return
    turn.set(blobs={**turn.state.blobs, (event.epoch, event.rank): event.data})
    message = {"type": "blob", "epoch": event.epoch, "rank": event.rank, "data": event.data}
    for member in view.members:
        if member.incarnation != peer.incarnation:
            turn.tell(member.incarnation, message)


def _in_use(turn: Turn, peer: Peer, epoch: int) -> None:
    """The sender takes part in this epoch: an earlier one that was broken does not matter any more."""
    peer = turn.state.peers[peer.incarnation]
    if peer.broken < epoch:
        turn.update(replace(peer, broken=0))


def _recovered(turn: Turn, peer: Peer, event: events.Recovered) -> None:
    _in_use(turn, peer, event.epoch)
    turn.heard_step(turn.state.peers[peer.incarnation], event.step, event.cursor)
    newest = turn.state.recoveries[-1] if turn.state.recoveries else None
    if newest is None or newest.epoch != event.epoch or peer.incarnation in newest.reports:
        return
    newest = _reported(newest, peer, event)
    turn.set(recoveries=(*turn.state.recoveries[:-1], newest))
    if newest.seconds is not None:
        turn.report(f"epoch {event.epoch} is in use after {newest.seconds:.3f} s ({newest.how})")


def _reported(recovery: Recovery, peer: Peer, event: events.Recovered) -> Recovery:
    reports = {**recovery.reports, peer.incarnation: (event.seconds, event.how)}
    return replace(recovery, reports=reports)


def _report(turn: Turn, peer: Peer, event: events.Report) -> None:
    turn.adopt(event.epoch)
    peer = replace(turn.state.peers[peer.incarnation], broken=event.broken)
    turn.update(replace(peer, step_seconds=event.step_seconds or peer.step_seconds))
    if event.step >= 0:
        turn.heard_step(turn.state.peers[peer.incarnation], event.step, event.cursor)
    view = turn.record.view
    if view is None or not 0 < event.broken < view.epoch or view.kind == "switch":
        return
    if view.rank_of(peer.name, peer.incarnation) is not None:
        # it waits for a view, and this one was lost on its way
        turn.tell(peer.incarnation, arrivals.view_message(turn))


def _unbuilt(turn: Turn, peer: Peer, event: events.Unbuilt) -> None:
    view = turn.record.view
    newest = turn.record.planned[-1] if turn.record.planned else view
    building = next((v for v in (view, newest) if v is not None and v.epoch == event.epoch), None)
    if building is None or building.rank_of(peer.name, peer.incarnation) is None:
        return
    if turn.state.unbuilt_epoch not in (0, event.epoch) and event.epoch != (view.epoch if view else 0):
        return
    ids = {member.name: member.incarnation for member in building.members}
    reached = frozenset(ids[name] for name in event.reached if name in ids) | {peer.incarnation}
    same = turn.state.unbuilt_epoch == event.epoch
    turn.set(
        unbuilt={**(turn.state.unbuilt if same else {}), peer.incarnation: reached},
        unbuilt_epoch=event.epoch,
        unbuilt_at=turn.state.unbuilt_at if same else turn.now,
    )


def _unbuilt_plan(turn: Turn, view: View, building: View, staying: tuple[int, ...]) -> None:
    """A planned group was not built: the members in use go on, joiners that are not reached do not."""
    in_use = {member.incarnation for member in view.members}
    for member in building.members:
        if member.incarnation in in_use or not turn.alive(member):
            continue
        if member.incarnation not in staying or not in_use & set(staying):
            turn.lose(member.incarnation, "the members do not reach it")
            turn.tell(
                member.incarnation,
                {"type": "fenced", "reason": f"{member.address} is not reached by all members"},
            )
    if all(turn.alive(member) for member in building.members):
        turn.set(abandoned=building.epoch)


def _failed(turn: Turn, peer: Peer, event: events.Failed) -> None:
    # a worker that exhausted its data and then ends with an error has not finished
    peer = replace(peer, done=False, ended=False)
    turn.update(peer)
    repeated = _keep_failure(turn, peer.name, peer.incarnation, event)
    reason = event.error.splitlines()[0] if event.error else "no reason given"
    _gone(turn, peer, f"it failed: {reason}")
    if repeated is not None:
        changes.end(turn, repeated, failed=True)


def failed_after_loss(turn: Turn, name: str, incarnation: int, event: events.Failed) -> None:
    """Why a worker failed that others found lost before its sidecar could say so; once."""
    if any(each.incarnation == incarnation for each in turn.record.failures):
        return
    repeated = _keep_failure(turn, name, incarnation, event)
    if repeated is not None:
        changes.end(turn, repeated, failed=True)


def _keep_failure(turn: Turn, name: str, incarnation: int, event: events.Failed) -> str | None:
    """Record a failure. Why the job ends: another worker has failed on the same samples; else None."""
    failure = Failure(name, incarnation, event.epoch_of_data, event.samples, event.error[:_KEPT_ERROR])
    others = (each for each in turn.record.failures if each.incarnation != incarnation)
    earlier = next((each for each in others if each.overlaps(failure)), None)
    kept = (*turn.record.failures, failure)[-_MAX_FAILURES:]
    turn.save("failure", failures=kept)
    turn.report(f"{name} failed: {failure.error}")
    if earlier is None:
        return None
    ranges = ", ".join(f"{first} to {last - 1}" for first, last in failure.common(earlier)[:8])
    return (
        f"two workers failed on the same samples ({ranges} of data epoch {failure.epoch_of_data}): "
        f"{earlier.name}: {earlier.error}; {failure.name}: {failure.error}"
    )


def _resize(turn: Turn, size: int) -> None:
    if turn.state.settings.platform:
        if size != turn.state.asked_for:
            turn.set(asked_for=size)
            turn.effects.append(Grant(size))
        return
    bounded = max(size, turn.record.minimum)
    if turn.record.maximum is not None:
        bounded = min(bounded, turn.record.maximum)
    if bounded != turn.record.target:
        turn.save("target", target=bounded)
        turn.report(f"the script asks for {bounded} workers")


def _refusal(turn: Turn, peer: Peer | None, event: events.Publish) -> str | None:
    if peer is None or peer.incarnation in turn.state.lost or peer.departed:
        return "the sender is no member any more"
    turn.adopt(event.epoch)
    view = turn.record.view
    if view is None or view.epoch != event.epoch:
        return f"epoch {event.epoch} is not in use: it is epoch {view.epoch if view else 0}"
    if view.rank_of(peer.name, peer.incarnation) is None:
        return f"the sender is no member of epoch {event.epoch}"
    size = len(json.dumps(event.manifest, separators=(",", ":")))
    if size > MAX_MANIFEST_BYTES:
        return f"a manifest of {size} bytes; the limit is {MAX_MANIFEST_BYTES}"
    former, step = turn.record.manifest, event.manifest.get("step")
    if former is not None and isinstance(step, int) and step < int(former.get("step", 0)):
        return f"step {step} is older than the newest checkpoint's"
    return None
