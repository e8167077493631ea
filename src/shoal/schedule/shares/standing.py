"""How far a queue is ahead of what is its own, and the number that falls with every exchange.

The measure is of Kueue (KEP-1714): what a queue uses beyond its nominal amount, as a share of the
cluster, over its weight; of several resources the largest. Within nominal it is 0. With weight 0 every
excess counts more than any of a queue with a weight.

**The potential** is, depth by depth from the top, the list of all excesses of all queues there (one
per resource), sorted from the largest; lists compare in lexicographic order. `laws` lets a queue take
only if the largest excess that it has afterwards in what it asks for is below the largest that the
other has before in what it gives; above the queue in which they meet nothing rises, as no more is
asked for than is freed. So at the depth below the meeting point the largest number that changes
becomes smaller: the exchange alone lowers the potential, if the part of the ask that was idle is
counted as used beforehand.

**Why exchanges end.** That is not enough for jobs that never end. An exchange may leave room over (a
job of 3 takes the place of one of 8), others start there, and the next exchange undoes the first: of
random crowds of jobs two in a hundred go round forever, with no arrival in between. So a whole plan
is judged, from one state in which nothing that waits fits to the next: `settles`. Then the potential
falls from plan to plan, with finitely many jobs there are finitely many values, and exchanges come to
an end until a job arrives or ends. Inside one queue only a higher priority takes from a lower; it may
use what is idle besides, and so raise the potential, where no rival that waits in another queue could
then take from its queue: with rivals that can, queues take turns for ever (7 of 1,500 random crowds).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.schedule.shares.ledger import Ledger

__all__ = ["change", "excess", "idle_part", "potential", "settles", "standing"]

Potential = tuple[tuple[float, ...], ...]

_DIGITS = 9


def excess(ledger: Ledger, queue: int, resource: int, more: float = 0.0) -> float:
    """Of one resource, with so much more (or less) in use: a share of the cluster over the weight."""
    capacity = ledger.capacity[resource]
    beyond = ledger.use[queue][resource] + more - ledger.nominal[queue][resource]
    if beyond <= 0 or capacity in (0.0, float("inf")):
        return 0.0
    return beyond / capacity / ledger.weight[queue]


def standing(ledger: Ledger, queue: int, more: Sequence[float] | None = None) -> float:
    """The largest excess of the queue, with so much more (r,) in use."""
    use, nominal, most = ledger.use[queue], ledger.nominal[queue], 0.0
    # as `excess`, of all resources at once: this is asked thousands of times in a decision
    for k in ledger.bounded:
        beyond = (use[k] - nominal[k]) if more is None else (use[k] + more[k] - nominal[k])
        if beyond > 0:
            most = max(most, beyond / ledger.capacity[k] / ledger.weight[queue])
    return most


def potential(ledger: Ledger) -> Potential:
    """Falls, in Python's order of tuples, with every exchange: see above. One list per depth."""
    return tuple(_excesses(ledger, level.tolist()) for level in ledger.rules.tree.levels)


def change(before: Ledger, after: Ledger) -> int:
    """Whether the potential falls (-1), stays as it is, or rises (1). Of sorted lists of one length what
    is the same in both does not decide, so only queues that use more or less are looked at."""
    for level in before.rules.tree.levels:
        queues = [queue for queue in level.tolist() if before.use[queue] != after.use[queue]]
        high, low = _excesses(before, queues), _excesses(after, queues)
        if low != high:
            return -1 if low < high else 1
    return 0


def settles(before: Ledger, after: Ledger, *, own: bool = False) -> bool:
    """May a plan with an exchange turn the one into the other, so that exchanges come to an end.

    In both all that waits and fits must have been started. `own`: the claimant takes only from jobs of
    lower priority in its own queue. Between queues of one family it also forbids to go beyond what the
    family had in use by way of an exchange, if the family is thereby further ahead of the others.
    """
    turn = change(before, after)
    return turn < 0 or (own and turn == 0)


def idle_part(ledger: Ledger, ask: Sequence[float]) -> list[float]:
    """(r,): what of an ask there is free in the cluster: the part that is a start and no exchange."""
    tops: list[int] = ledger.rules.tree.members[-1].tolist()
    used = [sum(ledger.use[queue][k] for queue in tops) for k in range(len(ask))]
    return [min(a, max(0.0, c - u)) for a, c, u in zip(ask, ledger.capacity, used, strict=True)]


def _excesses(ledger: Ledger, queues: Sequence[int]) -> tuple[float, ...]:
    """All of them, the largest first."""
    resources = range(len(ledger.capacity))
    found = [round(excess(ledger, queue, k), _DIGITS) for queue in queues for k in resources]
    return tuple(sorted(found, reverse=True))
