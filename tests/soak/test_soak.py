"""Four workers, a random blow every five seconds: every sample counted once an epoch, nothing left.

The seed is printed; SHOAL_SOAK_SEED draws the same blows again. SHOAL_SOAK_SECONDS: how long the long
one lasts (default an hour), SHOAL_SOAK_EVERY: seconds between two blows, in the mean.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from shoal.testing.elastic import ElasticJob
from tests.soak.conduct import Soak
from tests.soak.leaks import Marked
from tests.soak.plan import KINDS, draw
from tests.soak.table import table

pytestmark = [pytest.mark.process, pytest.mark.slow]

pytest.importorskip("torch")

PROGRAM = Path(__file__).with_name("train.py")
WORKERS = 4
SAMPLES, BATCH = 650, 16
STEPS_AN_EPOCH = -(-SAMPLES // BATCH)
PACE_SECONDS = 0.05
ALL_KINDS_SECONDS = 1200.0
SLACK_SECONDS = 15.0
"""The first workers have taken steps already when the last has joined and the blows begin."""


def number(name: str, default: float) -> float:
    return float(os.environ.get(f"SHOAL_SOAK_{name}", "") or default)


@pytest.mark.soak
@pytest.mark.timeout(420)
def test_a_minute(tmp_path: Path) -> None:
    """training-A13, training-P3, training-N9, in small."""
    soak(tmp_path, seconds=45.0, every=2.0, look_every=1.0, parts=2, watched_seconds=10.0)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_an_hour(tmp_path: Path) -> None:
    """training-A13, training-P3, training-N9: SHOAL_SOAK_SECONDS of it."""
    seconds = number("SECONDS", 3600.0)
    soak(tmp_path, seconds, number("EVERY", 5.0), look_every=5.0, parts=4, watched_seconds=seconds / 8)


def soak(
    folder: Path, seconds: float, every: float, *, look_every: float, parts: int, watched_seconds: float
) -> None:
    seed = int(number("SEED", 0)) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"\nSHOAL_SOAK_SEED={seed} SHOAL_SOAK_SECONDS={seconds:g} SHOAL_SOAK_EVERY={every:g}")
    pace = number("PACE", PACE_SECONDS)
    epochs = int((seconds + SLACK_SECONDS) / pace / STEPS_AN_EPOCH) + 1  # a step takes at least its pace
    command = [str(PROGRAM), str(SAMPLES), str(BATCH), str(epochs), str(pace), str(folder)]
    marked = Marked(folder)
    with ElasticJob(folder, environment=marked.environment) as job:
        plan = draw(seed, every, WORKERS)
        run = Soak(job, command, plan, WORKERS, seconds, parts=parts, look_every=look_every)
        try:
            run.run()
        finally:
            if run.ended:
                print(table(run, watched_seconds))
        check(run, marked, epochs, watched_seconds)


def check(run: Soak, marked: Marked, epochs: int, watched_seconds: float) -> None:
    steps = epochs * STEPS_AN_EPOCH
    assert not run.problems, "\n".join(run.problems)
    assert set(run.tape.done) == set(run.places.names)
    results = list(run.tape.done.values())
    assert all(line["exact"] for line in results), results
    assert {line["last"] for line in results} == {steps}
    assert len({line["digest"] for line in results}) == 1, "survivors differ"
    assert not run.tape.missing(steps)
    assert run.tape.compared > steps / 100
    blows = run.harm.dealt
    assert len(blows) >= (len(blows) + run.harm.missed.total()) / 4, "hardly anything happened"
    assert run.seconds < ALL_KINDS_SECONDS or {each.kind for each in blows} == set(KINDS)
    watched = run.health.longest(watched_seconds)
    assert {life.who.split("'")[-1] for life in watched} >= {"coordinator", "s sidecar"}, watched
    assert not [line for life in watched for line in life.problems()]
    assert run.kept_bytes["record"] < 16 << 20
    left = marked.left(run.places.pids)
    assert not left, "\n".join(left)
