"""Small worlds of queues for tests: by letters, one resource unless said otherwise."""

from dataclasses import dataclass

import numpy as np

from shoal.schedule.shares.laws import Claim, Holding, Laws
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.offers import Offers
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree
from shoal.schedule.shares.victims import choose


def column(*values):
    """(q, 1)."""
    return np.array([[float(value)] for value in values])


@dataclass
class World:
    """Queues a, b, c ... and what they hold, each holding by its name."""

    ledger: Ledger
    holdings: list[Holding]
    names: list[str]

    def victims(self, queue, ask, laws=None, priority=0):
        """Names of what a claim takes, None if it may not."""
        claim = Claim("abcdefgh".index(queue), (float(ask),), priority)
        found = choose(self.ledger, claim, Offers(self.holdings), laws or Laws())
        return None if found is None else [self.names[at] for at in found]


def world(held, nominal, capacity, parents=None, **stated):
    """`held`: letter to amounts, or to pairs of amount and priority."""
    parents = [-1] * len(nominal) if parents is None else parents
    rules = quotas(tree(parents), nominal=column(*nominal), **stated)
    holdings, names, used = [], [], np.zeros((len(nominal), 1))
    for letter, amounts in held.items():
        queue = "abcdefgh".index(letter)
        for at, item in enumerate(amounts, 1):
            amount, priority = item if isinstance(item, tuple) else (item, 0)
            holdings.append(Holding(queue, (float(amount),), priority))
            names.append(f"{letter}{at}")
            used[queue] += amount
    return World(Ledger(rules, used, np.array([float(capacity)])), holdings, names)
