"""The members that stay when not all reach each other. Pure.

The largest fully connected set; of several the one with the oldest member, then with
the next oldest, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

__all__ = ["largest_connected"]

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
