"""Workers and sidecars that come, come back, or lose their connection."""

from __future__ import annotations

from dataclasses import replace

from shoal.elastic import wire
from shoal.elastic.coordinator import events
from shoal.elastic.coordinator.state import Peer
from shoal.elastic.coordinator.turn import Turn

__all__ = ["dropped", "fence", "paused_message", "sidecar_hello", "view_message", "worker_hello"]


def worker_hello(turn: Turn, hello: events.WorkerHello) -> None:
    """It joins, it is back, or it is refused and has to join anew."""
    ended = turn.record.ended
    if ended is not None:
        turn.answer(hello.connection, stop_message(ended.reason, ended.failed))
        return
    _disconnect(turn, hello.connection)
    if hello.incarnation == 0:
        _join(turn, hello)
        return
    peer = turn.peer(hello.incarnation)
    if peer is None or peer.name != hello.name or hello.incarnation in turn.state.lost or peer.departed:
        reason = f"{hello.name} ({hello.incarnation}) is no member any more"
        turn.answer(hello.connection, {"type": "fenced", "reason": reason})
        return
    _back(turn, peer, hello)


def sidecar_hello(turn: Turn, hello: events.SidecarHello) -> None:
    """It speaks for a worker that is known, or is not listened to."""
    _disconnect(turn, hello.connection)
    peer = turn.peer(hello.incarnation)
    if peer is None or peer.name != hello.name:
        # it may gossip with members, and is none
        turn.answer(hello.connection, {"type": "star"})
        turn.set(fenced={**turn.state.fenced, hello.connection: (hello.name, hello.incarnation)})
        return
    if peer.sidecar is not None and peer.sidecar != hello.connection:
        turn.close(peer.sidecar)
        turn.set(connections=_without(turn, peer.sidecar))
    turn.set(connections={**turn.state.connections, hello.connection: hello.incarnation})
    peer = replace(peer, sidecar=hello.connection, heard_at=turn.now, late_seconds=0.0, seen=True)
    turn.update(replace(peer, gossip=None, gossip_at=turn.now, accused=None))


def dropped(turn: Turn, connection: int) -> None:
    """A connection is gone: evidence if it was a member's last."""
    _disconnect(turn, connection)


def fence(turn: Turn, incarnation: int, reason: str) -> None:
    """Send it that it is no member, and forget it: only why it failed counts from now on."""
    turn.tell(incarnation, {"type": "fenced", "reason": reason})
    peer = turn.peer(incarnation)
    if peer is not None and peer.sidecar is not None:
        if peer.asked_to_gossip:
            turn.answer(peer.sidecar, {"type": "star"})
        turn.set(fenced={**turn.state.fenced, peer.sidecar: (peer.name, incarnation)})
    turn.forget(incarnation)


def view_message(turn: Turn) -> wire.Message:
    """The view in use, as it is sent to members that lack it. A first view names the checkpoint."""
    view = turn.record.view
    if view is None:
        raise ValueError("there is no view yet")
    kind = "prepare" if view.kind == "switch" else "view"
    message: wire.Message = {"type": kind, "view": view.to_wire()}
    if view.kind == "first":
        if turn.record.manifest is not None:
            message["manifest"] = turn.record.manifest
        elif turn.record.lost_state:
            message["lost_state"] = True
    return message


def paused_message(have: int, need: int) -> wire.Message:
    """Fewer members than the minimum."""
    return {"type": "paused", "have": have, "need": need}


def stop_message(reason: str, failed: bool) -> wire.Message:
    """The job ends."""
    return {"type": "stop", "reason": reason, "failed": failed}


def _join(turn: Turn, hello: events.WorkerHello) -> None:
    for former in [peer for peer in turn.state.peers.values() if peer.name == hello.name]:
        # The platform runs one process of a name at a time: the former one is gone.
        _replaced(turn, former)
    incarnation = turn.record.next_incarnation
    turn.save("join", next_incarnation=incarnation + 1)
    turn.set(connections={**turn.state.connections, hello.connection: incarnation})
    turn.update(
        Peer(
            hello.name,
            incarnation,
            hello.address,
            since=turn.now,
            worker=hello.connection,
            heard_at=turn.now,
            seen=True,
        )
    )
    turn.answer(hello.connection, _welcome(turn, incarnation))


def _replaced(turn: Turn, former: Peer) -> None:
    for connection in (former.worker, former.sidecar):
        if connection is not None:
            turn.close(connection)
            _disconnect(turn, connection)
    if any(member.incarnation == former.incarnation for member in turn.record.members):
        if not former.departed:
            turn.lose(former.incarnation, "a new process of its name has joined")
    else:
        turn.forget(former.incarnation)


def _back(turn: Turn, peer: Peer, hello: events.WorkerHello) -> None:
    if peer.worker is not None and peer.worker != hello.connection:
        turn.close(peer.worker)
    turn.set(connections={**_without(turn, peer.worker), hello.connection: peer.incarnation})
    peer = replace(peer, worker=hello.connection, heard_at=turn.now, seen=True, accused=None)
    turn.update(peer)
    turn.answer(hello.connection, _welcome(turn, peer.incarnation))
    turn.adopt(hello.epoch)
    _say_again(turn, peer, hello.epoch)
    if hello.epoch > 0:
        turn.heard_step(turn.state.peers[peer.incarnation], hello.step, peer.cursor)


def _say_again(turn: Turn, peer: Peer, epoch: int) -> None:
    """Everything that still holds and may have been lost with the connection."""
    record = turn.record
    view = record.view
    member = view is not None and view.rank_of(peer.name, peer.incarnation) is not None
    if view is not None and view.epoch > epoch and member:
        turn.tell(peer.incarnation, view_message(turn))
    newest = record.planned[-1] if record.planned else None
    concerned = newest is not None and (
        member or newest.rank_of(peer.name, peer.incarnation) is not None
    )
    if newest is not None and concerned and newest.epoch not in (turn.state.abandoned, epoch):
        turn.tell(peer.incarnation, {"type": "prepare", "view": newest.to_wire()})
    views = {each.epoch: each for each in (view, *record.planned) if each is not None}
    for (of_epoch, rank), data in turn.state.blobs.items():
        of = views.get(of_epoch)
        own = of.rank_of(peer.name, peer.incarnation) if of is not None else None
        if own is not None and own != rank:
            turn.tell(peer.incarnation, {"type": "blob", "epoch": of_epoch, "rank": rank, "data": data})
    if member and turn.state.paused is not None:
        turn.tell(peer.incarnation, paused_message(*turn.state.paused))
    if peer.asked_to_leave:
        turn.tell(peer.incarnation, {"type": "leave"})
    # A joiner that waits for a donor is sent its name again.
    if peer.donor is not None:
        turn.update(replace(peer, donor=None))


def _disconnect(turn: Turn, connection: int) -> None:
    if connection in turn.state.fenced:
        turn.set(fenced={c: known for c, known in turn.state.fenced.items() if c != connection})
    peer = turn.state.peer_at(connection)
    if peer is None:
        return
    turn.set(connections=_without(turn, connection))
    if peer.worker == connection:
        peer = replace(peer, worker=None, worker_dropped_at=turn.now)
    elif peer.sidecar == connection:
        peer = replace(peer, sidecar=None, late_seconds=0.0, heard_at=turn.now)
        peer = replace(peer, gossip=None, accused=None)
    if peer.worker is None and peer.sidecar is None:
        peer = replace(peer, dropped_at=turn.now, ended=peer.done)
    turn.update(peer)


def _without(turn: Turn, connection: int | None) -> dict[int, int]:
    return {each: who for each, who in turn.state.connections.items() if each != connection}


def _welcome(turn: Turn, incarnation: int) -> wire.Message:
    record = turn.record
    return {
        "type": "welcome",
        "incarnation": incarnation,
        "minimum": record.minimum,
        "key": record.key,
    }
