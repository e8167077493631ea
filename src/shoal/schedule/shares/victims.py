"""Which holdings to take for a claim: from whoever is furthest ahead, and no more than is needed.

1. While the claim does not fit: the queue that is furthest ahead of its own, compared from the top of
   the tree downwards; there the first holding that the laws let go, lowest priority and newest first.
   What leaves the claimant at most level with the other comes first, in all queues; only then what is
   merely ahead of it (one job that fills the cluster).
2. What turns out not to be needed is put back, the last found first tried; but nothing whose return
   would put the claimant ahead of another who gives (it was taken from the claimant's own side,
   kueue#14543).
3. If all together are not enough, nobody gives up anything; neither if what starts in the room that is
   left over would put things back to where they were (`standing.settles`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence

from shoal.schedule.shares.laws import Claim, Laws, givers, may_give, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Kind, Offers
from shoal.schedule.shares.standing import idle_part, settles, standing

__all__ = ["Enough", "Refill", "affordable", "choose"]

Enough = Callable[[Sequence[int]], Collection[int] | None]
"""Told the numbers of what would be gone: those of them whose place the claim would take; None where it
cannot be placed."""

Refill = Callable[[Ledger, Sequence[int]], None]
"""Given the ledger as it would be, with the claim in it, and the numbers of what would be gone: charges
whoever else will start in what is left, the evicted included."""


def choose(
    ledger: Ledger,
    claim: Claim,
    offers: Offers,
    laws: Laws,
    enough: Enough | None = None,
    refill: Refill | None = None,
    *,
    spared: Container[int] = (),
    only: Callable[[Kind], bool] | None = None,
    rivals: Iterable[Claim] = (),
) -> tuple[int, ...] | None:
    """Numbers of `offers` in ascending order; None if the claim cannot be satisfied by the laws.

    Quotas and capacity must allow the claim once they are gone, and so must `enough`, where placement
    has a say. The ledger, which counts the holdings as used, is left as it is. Empty if the claim fits
    anyway. Without `refill` the plan's end has to be judged by the caller (`standing.settles`). What is
    `spared` is not taken, nor what is of other kinds than `only`. `rivals` wait in other queues; unless
    one of them may then take from that of the claimant, a higher priority may use what is idle too.
    """
    if ledger.allows(claim.queue, claim.ask) and (enough is None or enough(()) is not None):
        return ()
    trial = ledger.copy()
    search = _Search(trial, claim, offers, laws, enough, spared, only)
    for unequal in (False, True):
        search.widen(unequal)
    if not search.fits():
        return None
    gone = tuple(sorted(search.needed(ledger)))
    if gone and refill is not None:
        trial.charge(claim.queue, claim.ask)
        refill(trial, gone)
        own = all(offers.holdings[at].queue == claim.queue for at in gone)
        before = ledger
        if own and not any(may_give(trial, rival, claim.queue, laws) for rival in rivals):
            before = ledger.copy()
            before.charge(claim.queue, idle_part(ledger, claim.ask))
        if not settles(before, trial, own=own):
            return None
    return gone


def affordable(
    ledger: Ledger, claim: Claim, offers: Offers, laws: Laws, *, spared: Container[int] = ()
) -> bool:
    """Whether quotas and capacity would allow the claim, once all is gone that the laws let go for it.
    Where not, `choose` finds nobody."""
    search = _Search(ledger.copy(), claim, offers, laws, None, spared, None)
    for unequal in (False, True):
        search.widen(unequal)
    return search.fits()


class _Search:
    """On a ledger of its own: what was taken so far, and who is ahead."""

    def __init__(
        self,
        trial: Ledger,
        claim: Claim,
        offers: Offers,
        laws: Laws,
        enough: Enough | None,
        spared: Container[int],
        only: Callable[[Kind], bool] | None,
    ) -> None:
        self._trial = trial
        self._claim = claim
        self._offers = offers
        self._holdings = offers.holdings
        self._laws = laws
        self._enough = enough
        self._spared = spared
        self._only = only
        self._gone: list[int] = []
        self._taken: set[int] = set()
        self._standing: dict[int, float] = {}
        self._family: dict[int, bool] = {}

    def fits(self) -> bool:
        """With what is gone by now."""
        if not self._trial.allows(self._claim.queue, self._claim.ask):
            return False
        return self._enough is None or self._enough(self._gone) is not None

    def widen(self, unequal: bool) -> None:
        """Take, from who is furthest ahead, until it fits or nobody may give any more."""
        going = givers(self._trial, self._claim, self._offers.queues(), self._laws)
        while going and not self.fits():
            queue = max(going, key=lambda q: (self._ahead(q), -q))
            # the others stay where they are, or fall with it: it goes on giving while it is ahead
            rest = max((self._ahead(other) for other in going if other != queue), default=())
            while (found := self._first(queue, unequal)) is not None:
                self._take(found)
                if self._ahead(queue) <= rest or self.fits():
                    break
            else:
                going.remove(queue)

    def needed(self, ledger: Ledger) -> list[int]:
        """Without those that the claim can do without: at once those whose place it does not take, then
        one by one."""
        self._spare_untouched(ledger)
        for at in reversed(self._gone.copy()):
            holding = self._holdings[at]
            self._trial.charge(holding.queue, holding.amounts)
            before = self._gone
            if self._trial.allows(self._claim.queue, self._claim.ask):
                self._gone = [other for other in before if other != at]
                if self.fits() and self._lawful(ledger.copy()):
                    continue
                self._gone = before
            self._trial.charge(holding.queue, holding.amounts, -1)
        return self._gone

    def _spare_untouched(self, ledger: Ledger) -> None:
        taken = self._enough(self._gone) if self._enough is not None else None
        if taken is None:
            return
        before, spared = self._gone, [at for at in self._gone if at not in taken]
        for at in spared:
            self._trial.charge(self._holdings[at].queue, self._holdings[at].amounts)
        self._gone = [at for at in before if at in taken]
        if spared and not (self.fits() and self._lawful(ledger.copy())):
            self._gone = before
            for at in spared:
                self._trial.charge(self._holdings[at].queue, self._holdings[at].amounts, -1)

    def _ahead(self, queue: int) -> tuple[float, ...]:
        """From the top downwards."""
        found: list[float] = []
        for node in reversed(self._trial.rules.tree.paths[queue]):
            known = self._standing.get(node)
            if known is None:
                known = self._standing[node] = standing(self._trial, node)
            found.append(known)
        return tuple(found)

    def _first(self, queue: int, unequal: bool) -> int | None:
        """The first in line that the laws let go."""
        job, holdings = self._claim.job, self._holdings
        taken, spared = self._taken, self._spared

        def left(at: int) -> bool:
            return at not in taken and at not in spared and holdings[at].job != job

        only = self._only
        if self._in_family(queue):
            only = self._lower_alone

        for at in self._offers.firsts(queue, only, left):
            holding = holdings[at]
            if reclaim_refusal(self._trial, self._claim, holding, self._laws, unequal=unequal) is None:
                return at
        return None

    def _in_family(self, queue: int) -> bool:
        """Whether priority decides between the claim's queue and this one, and nothing else."""
        known = self._family.get(queue)
        if known is None:
            mine, theirs = self._trial.rules.tree.fork(self._claim.queue, queue)
            known = self._family[queue] = not mine or not theirs
        return known

    def _lower_alone(self, kind: Kind) -> bool:
        return kind[0] < self._claim.priority and (self._only is None or self._only(kind))

    def _take(self, at: int) -> None:
        holding = self._holdings[at]
        self._gone.append(at)
        self._taken.add(at)
        self._trial.charge(holding.queue, holding.amounts, -1)
        for node in self._trial.rules.tree.paths[holding.queue]:
            self._standing.pop(node, None)

    def _lawful(self, ledger: Ledger) -> bool:
        """May what is gone be taken one after the other."""
        for at in self._gone:
            holding = self._holdings[at]
            if reclaim_refusal(ledger, self._claim, holding, self._laws, unequal=True) is not None:
                return False
            ledger.charge(holding.queue, holding.amounts, -1)
        return True
