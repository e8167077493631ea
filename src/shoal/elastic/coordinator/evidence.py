"""Decides which members are lost, from the times of their last messages. Pure; the table of Evidence in
the protocol.

Evidence that comes from a clock (silence, lost connections, a stop) needs a witness: another member that
is there, and could go on. If everybody falls silent at once it is more likely that this process was cut
off, and a job whose members were all counted lost could not go on from what they hold. So a witness of a
silence has sent something well after it began, and silence never ends without one; connections that were
closed, and not opened again for long, do.

When not all members reach each other, the largest fully connected set stays; of several the one with the
oldest member, then with the next oldest, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from shoal.elastic.coordinator.state import Accusation, Peer, Settings, State

__all__ = ["Suspicion", "Verdict", "judge", "largest_connected", "suspicion"]

_BUDGET = 20_000


def largest_connected(
    members: Sequence[int], reached: Mapping[int, AbstractSet[int]]
) -> tuple[int, ...]:
    """The members (oldest first, as given) that stay.

    `reached[a]`: the members that `a` reports to reach; without a report, all. Two are connected when
    neither denies the other. The search is exact up to a bound on its work that real partitions, a few
    islands, never meet; past it the best set found so far is taken, the same on every run.
    """

    def connected(a: int, b: int) -> bool:
        return (a not in reached or b in reached[a]) and (b not in reached or a in reached[b])

    age = {member: rank for rank, member in enumerate(members)}
    near = {a: {b for b in members if b != a and connected(a, b)} for a in members}
    best: tuple[int, ...] = ()
    budget = _BUDGET

    def search(taken: tuple[int, ...], candidates: list[int]) -> None:
        # Candidates are tried in order of age, so that of equals the first found has the oldest members.
        nonlocal best, budget
        budget -= 1
        if len(taken) > len(best):
            best = taken
        for position, member in enumerate(candidates):
            if budget <= 0 or len(taken) + len(candidates) - position <= len(best):
                return
            search((*taken, member), [c for c in candidates[position + 1 :] if c in near[member]])

    # Members that all reach stay in any case; only the others are searched, and they are few.
    undisputed = [member for member in members if len(near[member]) == len(members) - 1]
    search((), [member for member in members if member not in undisputed])
    return tuple(sorted((*undisputed, *best), key=age.__getitem__))


_MISSED = 3
"""After so many of its words missed one is silent that is watched by others, whatever they say."""


@dataclass(frozen=True)
class Suspicion:
    """A peer is counted lost at `due` (monotonic seconds) unless it sends something. `alone_due`: when
    even without a witness; None: never. `here`: it has a connection, and is not stopped. `since`: a
    witness must have sent something then, or later."""

    due: float
    alone_due: float | None
    reason: str
    here: bool
    since: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """`lost`: incarnations, and why. `due`: when to look again; None: no need. `unheard`: a member would
    be lost if only a witness had sent something since."""

    lost: dict[int, str]
    due: float | None
    unheard: bool


def suspicion(peer: Peer, state: State) -> Suspicion:
    """The earliest reason to count it lost if it sends nothing more."""
    bounds = state.settings
    found: list[Suspicion] = []
    if peer.worker is None and peer.sidecar is None:
        due = peer.dropped_at + bounds.both_lost_seconds
        if state.recovering_until is not None:
            due = max(due, state.recovering_until)
        patience = bounds.all_lost_seconds if peer.seen else bounds.all_missing_seconds
        alone = peer.dropped_at + patience
        return Suspicion(due, alone, "its worker's and its sidecar's connections are lost", here=False)
    if peer.stopped_at is not None:
        due = peer.stopped_at + bounds.stopped_seconds
        found.append(Suspicion(due, None, "its process is stopped", here=False))
    if peer.worker is None:
        due = peer.worker_dropped_at + bounds.worker_lost_seconds
        found.append(Suspicion(due, None, "its worker has not connected again", here=False))
    found.append(_silence(peer, bounds) if peer.accused is None else _accused(peer.accused, bounds))
    return min(found, key=lambda each: each.due)


def judge(peers: Iterable[Peer], holders: Collection[int], state: State, now: float) -> Verdict:
    """Which of these members are lost by now.

    `holders`: the incarnations that could go on alone, because they hold the state of the view in use,
    or as much of it as anybody. Only they are witnesses.
    """
    suspicions = {peer.incarnation: suspicion(peer, state) for peer in peers}
    witnesses = {
        i: state.peers[i].heard_at
        for i, each in suspicions.items()
        if each.here and now < each.due and i in holders
    }
    lost: dict[int, str] = {}
    moments: list[float] = []
    unheard = False
    for incarnation, each in suspicions.items():
        witnessed = any(at >= each.since and i != incarnation for i, at in witnesses.items())
        if now < each.due:
            moments.append(each.due)
        elif witnessed or (each.alone_due is not None and now >= each.alone_due):
            lost[incarnation] = each.reason
        elif each.alone_due is not None:
            moments.append(each.alone_due)
        else:
            unheard = unheard or bool(witnesses.keys() - {incarnation})
    return Verdict(lost, min(moments, default=None), unheard)


def _accused(accused: Accusation, bounds: Settings) -> Suspicion:
    several = len(accused.by) > 1
    patience = bounds.accused_by_several_seconds if several else bounds.accused_seconds
    reason = "neither the other members nor the coordinator hear its machine"
    return Suspicion(accused.at + patience, None, reason, here=False, since=accused.at)


def _silence(peer: Peer, bounds: Settings) -> Suspicion:
    if peer.sidecar is None:
        # The worker's own threads starve under a long call in C: their silence says little.
        return _unheard(
            peer, bounds.silent_without_sidecar_seconds, "neither it nor a sidecar says anything"
        )
    patience = bounds.silent_seconds + min(2 * peer.late_seconds, bounds.most_late_seconds)
    if peer.gossip is not None and peer.watched:
        # others report its silence; this is for when they all overlook it
        patience += _MISSED * peer.gossip.again_seconds
    return _unheard(peer, patience, "its machine is silent")


def _unheard(peer: Peer, patience: float, reason: str) -> Suspicion:
    began = peer.heard_at
    return Suspicion(began + patience, None, reason, here=True, since=began + patience / 2)
