"""Quotas of a tree of queues: single questions.

`python -m bench.schedule.shares` prints the table. Times are CPU times of one thread, so that other work
matters little; the load beside them says how much there was.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.row import Row, table
from bench.schedule.timing import cpu_seconds, row
from shoal.schedule.shares.laws import Claim, Holding, Laws, reclaim_refusal
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Offers
from shoal.schedule.shares.quotas import Quotas, quotas
from shoal.schedule.shares.standing import potential
from shoal.schedule.shares.tree import Tree, tree
from shoal.schedule.shares.victims import choose

__all__ = ["rows"]

_RESOURCES = 6


def rows() -> list[Row]:
    """Questions that a decision asks many times."""
    return _questions()


def main() -> None:
    """Print the table."""
    print(table(rows()))


def _measured(what: str, goal: float, unit: str, work: Callable[[], object], repeats: int = 50) -> Row:
    return row(what, goal, unit, cpu_seconds(work, repeats=repeats))


def _world(queues: int, families: int) -> tuple[Quotas, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    parents = [-1] * families + [at % families for at in range(queues - families)]
    made: Tree = tree(parents)
    nominal = np.where(made.leaf[:, None], generator.integers(0, 8, (queues, _RESOURCES)), 0).astype(
        float
    )
    guaranteed = np.floor(nominal * generator.random((queues, 1)) / 2)
    rules = quotas(
        made, nominal=nominal, guaranteed=guaranteed, weight=generator.uniform(0.5, 2.0, queues)
    )
    demand = np.where(made.leaf[:, None], generator.integers(0, 20, (queues, _RESOURCES)), 0).astype(
        float
    )
    return rules, demand, nominal.sum(axis=0) * 1.2


def _questions() -> list[Row]:
    rules, demand, capacity = _world(50, 10)
    generator = np.random.default_rng(4)
    used = np.floor(np.minimum(demand, rules.nominal * 1.1))
    ledger = Ledger(rules, used, capacity)
    ask = (1.0, 4.0, 8.0, 0.0, 1.0, 0.0)
    leaves = np.flatnonzero(rules.tree.leaf).tolist()
    holdings = [
        Holding(int(queue), ask, int(generator.integers(0, 3)), float(at))
        for at, queue in enumerate(generator.choice(leaves, 5000))
    ]
    for holding in holdings:
        ledger.charge(holding.queue, holding.amounts)
    ledger.capacity = [sum(ledger.use[q][k] for q in rules.tree.members[-1].tolist()) for k in range(6)]
    poorest = min(leaves, key=lambda q: ledger.use[q][0])
    claim, laws = Claim(poorest, tuple(8 * amount for amount in ask), 5), Laws()
    few = range(1000)

    def refusals() -> None:
        for at in few:
            ledger.refusal(leaves[at % len(leaves)], ask)

    def reclaims() -> None:
        for at in few:
            reclaim_refusal(ledger, claim, holdings[at], laws)

    return [
        _measured("1,000 questions: may a queue have so much more", 20.0, "ms", refusals),
        _measured("1,000 questions: may this be taken for that", 20.0, "ms", reclaims),
        _measured(
            "8 victims of 5,000 holdings in 50 queues",
            20.0,
            "ms",
            lambda: choose(ledger, claim, Offers(holdings), laws),
            repeats=20,
        ),
        _large(),
        _measured("potential of 50 queues", 2.0, "ms", lambda: potential(ledger)),
    ]


def _large() -> Row:
    """KAI's ReclaimLargeJobs at 1,000 nodes: one queue without quota has all, another all the quota."""
    rules = quotas(tree([-1, -1]), nominal=np.array([[0.0], [8000.0]]))
    ledger = Ledger(rules, np.array([[8000.0], [0.0]]), np.array([8000.0]))
    holdings = [Holding(0, (1.0,), started=float(at)) for at in range(8000)]
    claim, laws = Claim(1, (800.0,)), Laws()
    taken = choose(ledger, claim, Offers(holdings), laws)
    if taken is None or len(taken) != 800:
        raise RuntimeError("800 victims are needed")
    return _measured(
        "800 victims of 8,000 holdings",
        100.0,
        "ms",
        lambda: choose(ledger, claim, Offers(holdings), laws),
        10,
    )


if __name__ == "__main__":
    main()
