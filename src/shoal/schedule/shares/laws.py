"""May what one queue holds be taken for what another asks.

Checked in this order; the first that forbids it is the answer. Sources: the laws of YuniKorn's
preemption, Kueue's fair sharing (KEP-1714: its rules S1, S2-a and S2-b), KAI's reclaim, Volcano's
capacity plugin.

| rule | forbids |
| --- | --- |
| SameJob | to take from the job itself |
| PriorityNotLower | inside one queue: to take from anybody not of lower priority |
| PriorityHigher | to borrow by force from a higher priority; or to take back, if `any_priority` is off |
| Fenced | to reach out of a fenced queue (into it is allowed) |
| FreesNothing | to take what nothing is asked of |
| Kept | to leave the other, or any queue above it below the meeting point, less than is kept for it |
| WithinNominal | to take from a queue, or out of one, that has no more than its own of what is asked |
| WeightZero | to borrow by force with a weight of 0 (taking back one's own is allowed) |
| OverNominal | to go beyond one's own, if `beyond_nominal` is off |
| QueuePriority | to borrow by force from a sibling of higher priority |
| Unfair | to end up ahead of the other; if `unequal`, ahead of where the other is before |

A queue whose ask stays within its own takes back its own, whoever is ahead. A refusal is about rules
alone: that something may be taken does not mean that it helps, see `victims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from shoal.schedule.shares.ledger import Ledger, Refusal
from shoal.schedule.shares.standing import excess, standing

__all__ = [
    "Claim",
    "Holding",
    "Laws",
    "beyond_own",
    "givers",
    "may_give",
    "reclaim_refusal",
]

_SLACK = 1e-9
_BEHIND = 1e-8
"""A share of the cluster; less is not behind, so that rounding cannot turn an exchange around."""


@dataclass(frozen=True)
class Laws:
    """What a policy may choose."""

    beyond_nominal: bool = True
    """Queues that are behind may borrow by force, not only take back their own."""
    any_priority: bool = True
    """Between queues priority does not protect from who takes back its own."""


@dataclass(frozen=True)
class Claim:
    """What is asked for."""

    queue: int
    ask: tuple[float, ...]
    """(r,)."""
    priority: int = 0
    job: int = -1


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What is given up at once, or not: one surplus task, or all that a gang needs."""

    queue: int
    amounts: tuple[float, ...]
    """(r,)."""
    priority: int = 0
    started: float = 0.0
    """Of equal priority the newest goes first."""
    job: int = -2


def reclaim_refusal(
    ledger: Ledger, claim: Claim, holding: Holding, laws: Laws, *, unequal: bool = False
) -> Refusal | None:
    """Why it may not be taken, None if it may. The ledger has the holding in it and the claim not.

    With `unequal` the claimant has only to end up behind where the other is now (S2-b): for holdings so
    large that nothing smaller would do.
    """
    if claim.job == holding.job:
        return Refusal("SameJob", holding.queue)
    mine, theirs = ledger.rules.tree.fork(claim.queue, holding.queue)
    if not mine or not theirs:
        return _inside(claim, holding)
    if holding.priority > claim.priority and not laws.any_priority:
        return Refusal("PriorityHigher", holding.queue, bound=claim.priority, used=holding.priority)
    for node in mine:
        if ledger.fenced[node]:
            return Refusal("Fenced", node)
    contested = [k for k in _bounded(ledger, claim.ask) if holding.amounts[k] > 0]
    if not contested:
        return Refusal("FreesNothing", holding.queue)
    return _protected(ledger, theirs, holding, contested) or _unfair(
        ledger, mine, theirs[-1], claim, holding, laws, unequal
    )


def beyond_own(ledger: Ledger, queue: int, ask: Sequence[float]) -> int:
    """The first resource of the ask that would take the queue beyond its own, -1 if none does. What the
    cluster has no end of is nobody's own."""
    nominal, use = ledger.nominal[queue], ledger.use[queue]
    for k, amount in enumerate(ask):
        beyond = amount > 0 and use[k] + amount > nominal[k] + _SLACK * max(1.0, nominal[k])
        if beyond and ledger.capacity[k] != float("inf"):
            return k
    return -1


def may_give(ledger: Ledger, claim: Claim, queue: int, laws: Laws) -> bool:
    """Whether anything that the queue might hold could be taken: what no holding of it would be let go
    for is known without looking at any. Less is left to take as things are taken."""
    return bool(givers(ledger, claim, (queue,), laws))


def givers(ledger: Ledger, claim: Claim, queues: Iterable[int], laws: Laws) -> list[int]:
    """Those of the queues of which `may_give` is true, in their order; what is so of all of them is
    looked at once."""
    contested = _bounded(ledger, claim.ask)
    bars: dict[tuple[int, ...], float | None] = {}
    over: dict[int, bool] = {}
    found: list[int] = []
    for queue in queues:
        mine, theirs = ledger.rules.tree.fork(claim.queue, queue)
        if not mine or not theirs:
            found.append(queue)
            continue
        if mine not in bars:
            bars[mine] = _bar(ledger, mine, claim, laws)
        bar = bars[mine]
        if bar is None:
            continue
        for node in theirs:
            if node not in over:
                over[node] = _beyond_nominal(ledger, node, contested)
            if not over[node]:
                break
        else:
            if bar <= standing(ledger, theirs[-1]) + _SLACK:
                found.append(queue)
    return found


def _bar(ledger: Ledger, mine: Sequence[int], claim: Claim, laws: Laws) -> float | None:
    """How far ahead another must be at least to give anything; None: nobody gives."""
    if any(ledger.fenced[node] for node in mine):
        return None
    if any(ledger.weightless[node] and beyond_own(ledger, node, claim.ask) >= 0 for node in mine):
        return None
    if beyond_own(ledger, mine[-1], claim.ask) < 0:
        return -1.0
    return standing(ledger, mine[-1], claim.ask) if laws.beyond_nominal else None


def _beyond_nominal(ledger: Ledger, node: int, contested: Sequence[int]) -> bool:
    """Of anything that is asked for."""
    use, nominal = ledger.use[node], ledger.nominal[node]
    for k in contested:
        own = nominal[k]
        if use[k] > own and use[k] > own + _SLACK * max(1.0, own):
            return True
    return False


def _bounded(ledger: Ledger, ask: Sequence[float]) -> list[int]:
    """What is asked for that there is an end of."""
    return [k for k, amount in enumerate(ask) if amount > 0 and ledger.capacity[k] != float("inf")]


def _inside(claim: Claim, holding: Holding) -> Refusal | None:
    if holding.priority < claim.priority:
        return None
    return Refusal("PriorityNotLower", holding.queue, bound=claim.priority, used=holding.priority)


def _protected(
    ledger: Ledger, theirs: Sequence[int], holding: Holding, contested: Sequence[int]
) -> Refusal | None:
    """What the other queue keeps, at each level up to the meeting point."""
    for node in theirs:
        use, kept, nominal = ledger.use[node], ledger.kept[node], ledger.nominal[node]
        for k, amount in enumerate(holding.amounts):
            if amount > 0 and kept[k] > 0 and use[k] - amount < kept[k] - _SLACK * max(1.0, kept[k]):
                return Refusal("Kept", node, k, kept[k], use[k], amount)
        if not _beyond_nominal(ledger, node, contested):
            k = contested[0]
            return Refusal("WithinNominal", node, k, nominal[k], use[k], holding.amounts[k])
    return None


def _unfair(
    ledger: Ledger,
    mine: Sequence[int],
    other: int,
    claim: Claim,
    holding: Holding,
    laws: Laws,
    unequal: bool,
) -> Refusal | None:
    """What the claim may not do, given who is ahead."""
    for node in mine:
        k = beyond_own(ledger, node, claim.ask)
        if k >= 0 and ledger.weightless[node]:
            return Refusal(
                "WeightZero", node, k, ledger.nominal[node][k], ledger.use[node][k], claim.ask[k]
            )
    me = mine[-1]
    k = beyond_own(ledger, me, claim.ask)
    if k < 0:
        return None
    if not laws.beyond_nominal:
        return Refusal("OverNominal", me, k, ledger.nominal[me][k], ledger.use[me][k], claim.ask[k])
    if holding.priority > claim.priority:
        return Refusal("PriorityHigher", other, bound=claim.priority, used=holding.priority)
    if ledger.priority[me] < ledger.priority[other]:
        return Refusal("QueuePriority", me, k, ledger.nominal[me][k], ledger.use[me][k], claim.ask[k])
    after = standing(ledger, me, claim.ask)
    there = standing(ledger, other)
    left = standing(ledger, other, [-amount for amount in holding.amounts])
    fair = after < there - _BEHIND if unequal else after <= left + _SLACK
    risen = max(excess(ledger, me, k, a) for k, a in enumerate(claim.ask) if a > 0)
    given = max(excess(ledger, other, k) for k, v in enumerate(holding.amounts) if v > 0)
    if fair and risen < given - _BEHIND:
        return None
    return Refusal("Unfair", me, k, there if unequal else left, after, claim.ask[k])
