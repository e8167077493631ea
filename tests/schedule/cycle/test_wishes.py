from collections import Counter
from random import Random

import numpy as np

from shoal.schedule.cycle.wishes import Wishes, charge_all
from shoal.schedule.shares.ledger import Ledger
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree

PARENTS = [-1, -1, 0, 0, 1]
LEAVES = [2, 3, 4]


def _ledger(random: Random) -> Ledger:
    kept = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [0.0, 3.0]])
    limit = np.full((5, 2), np.inf)
    limit[random.choice(LEAVES)] = 6.0
    rules = quotas(tree(PARENTS), nominal=kept + 1.0, guaranteed=kept, limit=np.maximum(limit, 6.0))
    used = np.zeros((5, 2))
    used[random.choice(LEAVES)] = random.randint(0, 3)
    return Ledger(rules, used, np.array([float(random.randint(8, 20)), float(random.randint(8, 20))]))


def test_what_is_left_is_filled_as_by_asking_one_after_the_other():
    """Those behind a place and those who have gone, who comes first, first; equal ones together."""
    for seed in range(200):
        random = Random(seed)
        kinds = [
            (random.choice(LEAVES), (float(random.randint(0, 3)), float(random.randint(1, 4))))
            for _ in range(6)
        ]
        line = random.choices(kinds, k=random.randint(1, 25))
        gone, at = random.choices(kinds, k=random.randint(0, 4)), random.randrange(len(line))
        one, other = (_ledger(Random(seed)) for _ in range(2))
        Wishes(line).refill(one, at, gone)
        for wish, count in Counter([*line[at + 1 :], *gone]).items():
            for _ in range(count):
                if other.allows(*wish):
                    other.charge(*wish)
        assert one.use == other.use


def test_where_nobody_waits_those_start_again_who_have_gone():
    ledger = _ledger(Random(1))
    before = [row.copy() for row in ledger.use]
    charge_all(ledger, [(2, (1.0, 1.0)), (2, (99.0, 1.0)), (2, (1.0, 1.0))])
    assert ledger.use[2] == [used + 2.0 for used in before[2]]
