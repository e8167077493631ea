"""Every pair of faults on two of five peers, one after the other in one training: training-H1."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path

import pytest

from tests.elastic.scenarios.stage import Cue, Stage

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

SLOW_SECONDS = 0.15
SOUND = ("p2", "p3", "p4")

FAULTS: dict[str, list[Cue]] = {
    "none": [],
    "fails before": [{"when": "before", "do": "kill"}],
    "fails sending": [{"when": "sending", "do": "kill"}],
    "slow sending": [{"when": "sending", "do": "slow", "seconds": SLOW_SECONDS}],
    "fails reducing": [{"when": "reducing", "do": "kill"}],
    "slow reducing": [{"when": "reducing", "do": "slow", "seconds": SLOW_SECONDS}],
    "cancel": [{"when": "sending", "do": "break"}],
}


TELLING = [
    ("fails before", "slow sending"),
    ("fails sending", "fails reducing"),
    ("cancel", "fails reducing"),
    ("slow reducing", "cancel"),
]


def test_some_pairs_of_faults(tmp_path: Path):
    """training-H1: every fault once, on either peer."""
    matrix(tmp_path, TELLING, seed=1)


@pytest.mark.soak
def test_the_fault_matrix(tmp_path: Path):
    """training-H1: all 49."""
    matrix(tmp_path, list(itertools.product(FAULTS, repeat=2)), int.from_bytes(os.urandom(4)))


def matrix(folder: Path, pairs: list[tuple[str, str]], seed: int) -> None:
    """training-H1: 5 peers, 4 tensors, a fault each on peers 0 and 1 in the same step. Of a peer's
    averages more than half are right then, and the rest is each one's own; ours are the exact mean over
    a consistent set: the sound ones take every step, once, with equal parameters and optimizers after
    it, and every sample is learned once an epoch."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    everybody = ("p0", "p1", *SOUND)
    play = {"samples": 600, "batch": 60, "epochs": 6 * len(pairs), "pace": 0.06}
    with Stage(folder, options=["--expect", "5"], **play) as stage:
        stage.enter(*everybody)
        stage.together("p2", "p0", "p1", "p3", "p4")
        for pair in pairs:
            first = chance.sample(("p0", "p1"), 2)
            for name, fault in zip(first, pair, strict=True):
                order(stage, name, FAULTS[fault])
            for name in first:
                stage.until(lambda name=name: took_orders(stage, name), f"{name} plays {pair}")
            began = stage.step("p2")
            for name, fault in zip(first, pair, strict=True):
                if fault.startswith("fails"):
                    assert stage.wait(name) == -9, pair
                    stage.enter(name)
            stage.reach("p2", began + 3)
            stage.together("p2", "p0", "p1", "p3", "p4")
        stage.finished(*everybody)
        stage.no_step_missing(*SOUND)


def order(stage: Stage, name: str, cues: list[Cue]) -> None:
    """To be played in the next step: complete at once, for the actor looks at any time."""
    written = stage.folder / f"{name}.written"
    written.write_text(json.dumps(cues))
    written.rename(stage.folder / f"{name}.orders")


def took_orders(stage: Stage, name: str) -> bool:
    return not (stage.folder / f"{name}.orders").exists()
