"""Which sidecars beat to this process, and which watch each other because beats would be too many.

Up to a limit every sidecar beats. Above it they are asked to gossip, with the addresses of some that do
already; then they report only silent ones. A report suspects: the accused one is asked to beat again,
and is lost when it sends nothing, as in the star. Which topology holds is not stored: it follows from
how many there are, and just below the limit, to avoid going to and fro, from whether any
gossips.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from shoal.elastic.coordinator import events
from shoal.elastic.coordinator.state import Accusation, Gossiping, Peer
from shoal.elastic.coordinator.turn import Turn

__all__ = ["advance", "ask_for_words", "beats", "said"]

_SEEDS = 3
_ASKED = float("inf")


def said(turn: Turn, peer: Peer, event: events.Gossips | events.Silent | events.Heard) -> None:
    """A sidecar that gossips says something, of itself or of another."""
    match event:
        case events.Gossips():
            _gossips(turn, peer, event)
        case events.Silent():
            _silent(turn, peer, event)
        case events.Heard():
            _heard(turn, peer, event)


def beats(turn: Turn, peer: Peer) -> None:
    """A sidecar beats: whatever it has said before, no other watches it now."""
    if peer.gossip is not None and peer.watched:
        turn.update(replace(peer, gossip=replace(peer.gossip, members=1)))


def advance(turn: Turn) -> float | None:
    """Ask sidecars to gossip, or to beat, that do not do so. Returns when to look again."""
    if turn.state.recovering_until is not None:
        return None
    peers = [peer for peer in turn.state.peers.values() if peer.incarnation not in turn.state.lost]
    if not _too_many(turn, peers):
        gossiping = [peer for peer in peers if peer.gossip is not None]
        for peer in gossiping:
            _ask_to_beat(turn, peer, gossip_at=turn.now)
        return turn.now + turn.state.settings.silent_seconds if gossiping else None
    moments: list[float] = []
    for peer in peers:
        if peer.asked_to_gossip or peer.sidecar is None or peer.accused is not None:
            continue
        if turn.now < peer.gossip_at:
            moments.append(peer.gossip_at)
            continue
        turn.update(replace(peer, gossip_at=_ASKED))
        turn.answer(peer.sidecar, {"type": "gossip", "seeds": _seeds(turn, peer)})
    return min(moments, default=None)


def ask_for_words(turn: Turn, holders: Collection[int]) -> float:
    """One is silent, and that this process is not cut off must be shown by one that need not beat."""
    again_at = turn.state.asked_at + turn.state.settings.ask_again_seconds
    if turn.now < again_at:
        return again_at
    turn.set(asked_at=turn.now)
    newest_first = sorted(turn.state.peers.values(), key=lambda peer: -peer.heard_at)
    watched = [peer for peer in newest_first if peer.watched and peer.incarnation in holders]
    for peer in watched[:_SEEDS]:
        if peer.sidecar is not None:
            turn.answer(peer.sidecar, {"type": "answer"})
    return turn.now + turn.state.settings.ask_again_seconds


def _too_many(turn: Turn, peers: list[Peer]) -> bool:
    limit = turn.state.settings.star_limit
    if len(peers) > limit:
        return True
    back_at = limit - max(1, limit // 8)
    return len(peers) > back_at and any(peer.gossip is not None for peer in peers)


def _ask_to_beat(turn: Turn, peer: Peer, gossip_at: float) -> None:
    # it has not beaten for long, and had no reason to: its silence begins now
    turn.update(replace(peer, gossip=None, gossip_at=gossip_at, heard_at=turn.now))
    if peer.sidecar is not None:
        turn.answer(peer.sidecar, {"type": "star"})


def _gossips(turn: Turn, peer: Peer, event: events.Gossips) -> None:
    gossip = Gossiping(event.sidecar, event.address, event.members, event.again_seconds)
    peer = replace(peer, gossip=gossip, gossip_at=_ASKED)
    turn.update(peer)
    others = _addresses(turn, peer)
    # islands: a sidecar in one would not learn of another by itself
    if event.members < len(others) + 1:
        turn.answer(event.connection, {"type": "gossip", "seeds": _seeds(turn, peer)})


def _silent(turn: Turn, peer: Peer, event: events.Silent) -> None:
    other = turn.peer(event.incarnation)
    if other is None or other.incarnation in (peer.incarnation, *turn.state.lost) or peer.gossip is None:
        return
    if other.accused is not None and other.accused.sidecar == event.sidecar:
        by = other.accused.by | {peer.incarnation}
        turn.update(replace(other, accused=replace(other.accused, by=by)))
    elif other.gossip is not None and other.gossip.sidecar == event.sidecar:
        accused = Accusation(turn.now, event.sidecar, frozenset({peer.incarnation}))
        _ask_to_beat(turn, other, turn.now + turn.state.settings.gossip_again_seconds)
        turn.update(replace(turn.state.peers[other.incarnation], accused=accused))


def _heard(turn: Turn, peer: Peer, event: events.Heard) -> None:
    other = turn.peer(event.incarnation)
    if other is None or other.accused is None or other.accused.sidecar != event.sidecar:
        return
    by = other.accused.by - {peer.incarnation}
    accused = replace(other.accused, by=by) if by else None
    turn.update(replace(other, accused=accused))


def _addresses(turn: Turn, asker: Peer) -> list[str]:
    def others() -> Iterable[tuple[int, str]]:
        for peer in turn.state.peers.values():
            if peer.gossip is not None and peer.incarnation not in (asker.incarnation, *turn.state.lost):
                yield peer.incarnation, peer.gossip.address

    return [address for _, address in sorted(others())]


def _seeds(turn: Turn, asker: Peer) -> list[str]:
    """Some of the others; not everybody is sent to the same."""
    found = _addresses(turn, asker)
    stride = max(1, len(found) // _SEEDS)
    chosen = [(asker.incarnation + number * stride) % len(found) for number in range(_SEEDS) if found]
    return [found[at] for at in sorted(set(chosen))]
