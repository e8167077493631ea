"""The worked example of docs/design/shares.md."""

import numpy as np
import pytest

from shoal.schedule.shares.laws import Claim, Holding, Laws, reclaim_refusal
from shoal.schedule.shares.ledger import CLUSTER, Refusal
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.standing import standing
from shoal.schedule.shares.tree import tree
from tests.schedule.shares.worlds import column, world

PRODUCTION, RESEARCH, VISION, SPEECH = range(4)
GPUS = np.array([100.0])


def rules():
    return quotas(
        tree([-1, -1, RESEARCH, RESEARCH]),
        nominal=column(40, 0, 40, 20),
        guaranteed=column(10, 0, 0, 0),
        weight=np.array([1.0, 1.0, 2.0, 1.0]),
    )


def test_what_is_given_back_and_by_whom():
    cluster = world(
        {"a": [4], "c": [4] * 15, "d": [3] * 10},
        (40, 0, 40, 20),
        100,
        parents=[-1, -1, RESEARCH, RESEARCH],
        guaranteed=column(10, 0, 0, 0),
        weight=np.array([1.0, 1.0, 2.0, 1.0]),
    )
    ledger = cluster.ledger
    assert standing(ledger, VISION) == pytest.approx(0.2)
    assert standing(ledger, SPEECH) == pytest.approx(0.2)
    assert ledger.refusal(SPEECH, (3.0,)) == Refusal("Kept", CLUSTER, 0, 100.0, 100.0, 3.0)
    assert ledger.refusal(PRODUCTION, (6.0,)) is None
    assert ledger.refusal(PRODUCTION, (16.0,)) == Refusal("Capacity", CLUSTER, 0, 100.0, 94.0, 16.0)

    assert cluster.victims("a", 16) == ["c1", "c2", "d1"]
    assert len(cluster.victims("a", 36) or ()) == 9
    assert cluster.victims("a", 37) is None
    assert cluster.victims("d", 3) is None
    held = Holding(VISION, (4.0,), job=1)
    refused = reclaim_refusal(ledger, Claim(SPEECH, (3.0,), job=4), held, Laws())
    assert refused == Refusal("Unfair", SPEECH, 0, 0.16, 0.26, 3.0)
