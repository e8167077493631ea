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

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import Protocol

from shoal.schedule.shares.laws import Claim, Laws, givers, may_give, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Heads, Offers, Only
from shoal.schedule.shares.standing import idle_part, settles, standing

__all__ = ["Place", "Refill", "affordable", "choose"]


class Place(Protocol):
    """Where placement has a say. It is told the numbers of what would be gone."""

    steady: bool
    """Whether with more gone it always fits where it fitted before."""

    def fits(self, gone: Sequence[int]) -> bool:
        """Whether the claim can be placed then."""
        ...

    def takes(self, gone: Sequence[int]) -> Collection[int]:
        """If it can: those of them whose place it would take."""
        ...


Refill = Callable[[Ledger, Sequence[int]], None]
"""Given the ledger as it would be, with the claim in it, and the numbers of what would be gone: charges
whoever else will start in what is left, the evicted included."""


def choose(
    ledger: Ledger,
    claim: Claim,
    offers: Offers,
    laws: Laws,
    place: Place | None = None,
    refill: Refill | None = None,
    *,
    spared: Container[int] = (),
    only: Only | None = None,
    abroad: bool = False,
    rivals: Iterable[Claim] = (),
) -> tuple[int, ...] | None:
    """Numbers of `offers` in ascending order; None if the claim cannot be satisfied by the laws.

    Quotas and capacity must allow the claim once they are gone, and so must `place`. The ledger, which
    counts the holdings as used, is left as it is. Empty if the claim fits anyway. Without `refill` the
    plan's end has to be judged by the caller (`standing.settles`). What is `spared` is not taken, nor
    what is of other kinds than `only`, nor, if it looks `abroad`, what its own queue holds. `rivals`
    wait in other queues; unless one of them may then take from that of the claimant, a higher priority
    may use what is idle too.
    """
    if ledger.allows(claim.queue, claim.ask) and (place is None or place.fits(())):
        return ()
    search = _Search(ledger, claim, offers, laws, place, spared, only, abroad)
    if not search.widen():
        return None
    gone = tuple(sorted(search.needed()))
    if gone and refill is not None:
        trial = search.trial
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
    if ledger.allows(claim.queue, claim.ask):
        return True
    return _Search(ledger, claim, offers, laws, None, spared).widen()


class _Search:
    """On a ledger of its own: what was taken so far, and who is ahead."""

    def __init__(
        self,
        ledger: Ledger,
        claim: Claim,
        offers: Offers,
        laws: Laws,
        place: Place | None,
        spared: Container[int],
        only: Only | None = None,
        abroad: bool = False,
    ) -> None:
        self._ledger = ledger
        self.trial = ledger.copy()
        """Without what is gone."""
        self._claim = claim
        self._offers = offers
        self._holdings = offers.holdings
        self._laws = laws
        self._place = place
        self._spared = spared
        self._only = only
        self._abroad = abroad
        self._gone: list[int] = []
        self._heads: dict[int, Heads] = {}
        self._standing: dict[int, float] = {}

    def widen(self) -> bool:
        """Take, from who is furthest ahead, until it fits; false if nobody may give any more. With
        nothing gone it does not."""
        if self._place is None or not self._place.steady:
            return any(self._fits() for _ in self._takes())
        few, leap, tried_at = 0, 1, 1  # with `few` gone it does not fit
        for _ in self._takes():
            count = len(self._gone)
            if not self._allowed():
                few, tried_at = count, count + 1
            elif count == tried_at:
                if self._place.fits(self._gone):
                    break
                few, tried_at, leap = count, count + leap, 2 * leap
        else:
            if few == len(self._gone) or not self._place.fits(self._gone):
                return False
        self._back(few, self._place)
        return True

    def _back(self, few: int, place: Place) -> None:
        """To the fewest of those that are gone with which it fits: with so `few` it does not."""
        gone, many = self._gone, len(self._gone)
        while many - few > 1:
            middle = (few + many) // 2
            if place.fits(gone[:middle]):
                many = middle
            else:
                few = middle
        if many < len(gone):
            self._gone, self.trial = gone[:many], self._ledger.copy()
            for at in self._gone:
                self.trial.charge(self._holdings[at].queue, self._holdings[at].amounts, -1)

    def _takes(self) -> Iterator[None]:
        """One after the other: first what leaves the claimant behind, then what leaves it ahead."""
        going = self._givers()
        yield from self._taken(going.copy(), unequal=False)
        if self._gone:
            going = self._givers()
        yield from self._taken(going, unequal=True)

    def _taken(self, going: list[int], *, unequal: bool) -> Iterator[None]:
        while going:
            queue = max(going, key=lambda q: (self._ahead(q), -q))
            # the others stay where they are, or fall with it: it goes on giving while it is ahead
            rest = max((self._ahead(other) for other in going if other != queue), default=())
            while (found := self._first(queue, unequal)) is not None:
                self._take(found)
                yield
                if self._ahead(queue) <= rest:
                    break
            else:
                going.remove(queue)

    def _allowed(self) -> bool:
        return self.trial.allows(self._claim.queue, self._claim.ask)

    def _fits(self) -> bool:
        """With what is gone by now."""
        return self._allowed() and (self._place is None or self._place.fits(self._gone))

    def needed(self) -> list[int]:
        """Without those that the claim can do without: at once those whose place it does not take, then
        one by one."""
        self._spare_untouched()
        so_far = self.trial.copy()
        """As it is before one of them goes: what comes before it is lawful as it was."""
        after: list[int] = []
        for at in reversed(self._gone.copy()):
            holding = self._holdings[at]
            so_far.charge(holding.queue, holding.amounts)
            self.trial.charge(holding.queue, holding.amounts)
            before = self._gone
            if self._allowed():
                self._gone = [other for other in before if other != at]
                if self._fits() and self._lawful(so_far, reversed(after)):
                    continue
                self._gone = before
            self.trial.charge(holding.queue, holding.amounts, -1)
            after.append(at)
        return self._gone

    def _spare_untouched(self) -> None:
        if self._place is None:
            return
        taken = self._place.takes(self._gone)
        before, spared = self._gone, [at for at in self._gone if at not in taken]
        for at in spared:
            self.trial.charge(self._holdings[at].queue, self._holdings[at].amounts)
        self._gone = [at for at in before if at in taken]
        if spared and not (self._fits() and self._lawful(self._ledger, self._gone)):
            self._gone = before
            for at in spared:
                self.trial.charge(self._holdings[at].queue, self._holdings[at].amounts, -1)

    def _ahead(self, queue: int) -> tuple[float, ...]:
        """From the top downwards."""
        found: list[float] = []
        for node in reversed(self.trial.rules.tree.paths[queue]):
            known = self._standing.get(node)
            if known is None:
                known = self._standing[node] = standing(self.trial, node)
            found.append(known)
        return tuple(found)

    def _first(self, queue: int, unequal: bool) -> int | None:
        """The first in line that the laws let go."""
        heads = self._heads.get(queue)
        if heads is None:
            heads = self._heads[queue] = self._in_line(queue)
        for at in heads:
            holding = self._holdings[at]
            if reclaim_refusal(self.trial, self._claim, holding, self._laws, unequal=unequal) is None:
                return at
        return None

    def _givers(self) -> list[int]:
        """The queues that may give something, and have it."""
        claim = self._claim
        going = givers(self.trial, claim, self._offers.queues(self._only), self._laws)
        return [
            queue
            for queue in going
            if (queue != claim.queue or not self._abroad)
            and (not self._in_family(queue) or self._offers.lowest(queue) < claim.priority)
        ]

    def _in_line(self, queue: int) -> Heads:
        job, holdings, spared = self._claim.job, self._holdings, self._spared

        def left(at: int) -> bool:
            return at not in spared and holdings[at].job != job

        all_left = not spared and queue != self._claim.queue  # what a job holds is of its own queue
        below = self._claim.priority if self._in_family(queue) else None
        return self._offers.heads(queue, self._only, below, None if all_left else left)

    def _in_family(self, queue: int) -> bool:
        """Whether priority decides between the claim's queue and this one, and nothing else."""
        mine, theirs = self.trial.rules.tree.fork(self._claim.queue, queue)
        return not mine or not theirs

    def _take(self, at: int) -> None:
        holding = self._holdings[at]
        self._gone.append(at)
        self._heads[holding.queue].take(at)
        self.trial.charge(holding.queue, holding.amounts, -1)
        for node in self.trial.rules.tree.paths[holding.queue]:
            self._standing.pop(node, None)

    def _lawful(self, ledger: Ledger, gone: Iterable[int]) -> bool:
        """May that be taken one after the other."""
        ledger = ledger.copy()
        for at in gone:
            holding = self._holdings[at]
            if reclaim_refusal(ledger, self._claim, holding, self._laws, unequal=True) is not None:
                return False
            ledger.charge(holding.queue, holding.amounts, -1)
        return True
