"""Which holdings to take for a claim: from whoever is furthest ahead, and no more than is needed.

1. While the claim does not fit: the queue that is furthest ahead of its own, compared from the top of
   the tree downwards; there the first holding that the laws let go, lowest priority and newest first.
   What leaves the claimant at most level with the other comes first, in all queues; only then what is
   merely ahead of it (one job that fills the cluster).
2. What turns out not to be needed is put back, the last found first tried; but nothing whose return
   would put the claimant ahead of another who gives (it was taken from the claimant's own side,
   kueue#14543).
3. If all together are not enough, nobody gives up anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.schedule.shares.laws import Claim, Holding, Laws, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.standing import standing

__all__ = ["Enough", "choose"]

Enough = Callable[[Sequence[int]], bool]
"""Told the indices of what would be gone, says whether the claim can be placed."""


def choose(
    ledger: Ledger,
    claim: Claim,
    holdings: Sequence[Holding],
    laws: Laws,
    enough: Enough | None = None,
) -> tuple[int, ...] | None:
    """Indices of `holdings` in ascending order; None if the claim cannot be satisfied by the laws.

    Quotas and capacity must allow the claim once they are gone, and so must `enough`, where placement
    has a say. The ledger, which counts the holdings as used, is left as it is. Empty if the claim fits
    anyway.
    """
    trial = ledger.copy()

    def fits(gone: Sequence[int]) -> bool:
        return trial.refusal(claim.queue, claim.ask) is None and (enough is None or enough(gone))

    gone: list[int] = []
    lines = _lines(holdings)
    for unequal in (False, True):
        going = {queue: list(line) for queue, line in lines.items()}
        while going and not fits(gone):
            queue = max(going, key=lambda q: (_ahead(trial, q), -q))
            found = _first(trial, claim, holdings, going[queue], laws, unequal)
            if found is None:
                del going[queue]
                continue
            going[queue].remove(found)
            lines[queue].remove(found)
            gone.append(found)
            trial.charge(queue, holdings[found].amounts, -1)
    if not fits(gone):
        return None

    def lawful(rest: Sequence[int]) -> bool:
        return _lawful(ledger.copy(), claim, holdings, rest, laws)

    return tuple(sorted(_needed(trial, holdings, gone, lambda rest: fits(rest) and lawful(rest))))


def _lines(holdings: Sequence[Holding]) -> dict[int, list[int]]:
    """Per queue, who goes first."""
    lines: dict[int, list[int]] = {}
    for at in sorted(
        range(len(holdings)), key=lambda at: (holdings[at].priority, -holdings[at].started, at)
    ):
        lines.setdefault(holdings[at].queue, []).append(at)
    return lines


def _ahead(ledger: Ledger, queue: int) -> tuple[float, ...]:
    """From the top downwards."""
    return tuple(standing(ledger, node) for node in reversed(ledger.rules.tree.paths[queue]))


def _first(
    ledger: Ledger,
    claim: Claim,
    holdings: Sequence[Holding],
    line: Sequence[int],
    laws: Laws,
    unequal: bool,
) -> int | None:
    for at in line:
        if reclaim_refusal(ledger, claim, holdings[at], laws, unequal=unequal) is None:
            return at
    return None


def _needed(ledger: Ledger, holdings: Sequence[Holding], gone: list[int], will_do: Enough) -> list[int]:
    """Without those that the claim can do without."""
    for at in reversed(gone):
        rest = [other for other in gone if other != at]
        ledger.charge(holdings[at].queue, holdings[at].amounts)
        if will_do(rest):
            gone = rest
        else:
            ledger.charge(holdings[at].queue, holdings[at].amounts, -1)
    return gone


def _lawful(
    ledger: Ledger, claim: Claim, holdings: Sequence[Holding], gone: Sequence[int], laws: Laws
) -> bool:
    """May these be taken one after the other."""
    for at in gone:
        if reclaim_refusal(ledger, claim, holdings[at], laws, unequal=True) is not None:
            return False
        ledger.charge(holdings[at].queue, holdings[at].amounts, -1)
    return True
