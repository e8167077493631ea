"""Peers start and die at random: training-P3."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.elastic.scenarios.stage import Stage

pytestmark = [pytest.mark.process, pytest.mark.slow]

COUNT = Path(__file__).parents[1] / "programs" / "count.py"
LONGEST_SECONDS = 30.0
"""The reference allows 5 minutes without a completed reduce."""


def stress(stage: Stage, seconds: float, peers: int, seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    command = [str(COUNT), "640", "16", str(int(seconds) * 10), "0.01", str(stage.hurry)]
    names = [f"p{number}" for number in range(peers)]
    started: dict[str, float] = {}
    deaths = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        name = chance.choice(names)
        if name not in started or stage.workers[name].poll() is not None:
            started[name] = time.monotonic()
            stage.start(name, command)
        elif members(stage, started) - {name}:
            deaths += 1
            stage.kill(name, chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        time.sleep(chance.uniform(0.05, 0.6))
    told = [line for name in started for line in stage.lines(name) if "size" in line]
    moments = sorted(line["at"] for line in told)
    longest = max(later - sooner for sooner, later in pairwise([*moments, until]))
    steps = sorted({line["step"] for line in told})
    print(f"{deaths} peers died, {len(steps)} steps, longest time without one {longest:.2f} s")
    assert deaths
    assert longest < LONGEST_SECONDS
    assert steps == list(range(1, len(steps) + 1)), "a step is missing"


def members(stage: Stage, started: dict[str, float]) -> set[str]:
    """Who has told, in this life, of the newest view that anybody has told of: they hold the state."""
    views = {
        name: next(
            (
                line
                for line in reversed(stage.lines(name))
                if "members" in line and line["at"] > started[name]
            ),
            None,
        )
        for name in started
        if stage.workers[name].poll() is None
    }
    newest = max((view["epoch"] for view in views.values() if view), default=0)
    return {name for name, view in views.items() if view and view["epoch"] == newest}


def test_peers_come_and_go_for_a_while(tmp_path: Path):
    """training-P3: at most 5 peers, 5 s of `make test`."""
    with Stage(tmp_path) as stage:
        stress(stage, 5.0, 5, seed=1)


@pytest.mark.soak
def test_peers_come_and_go_for_hours(tmp_path: Path):
    """training-P3: 10 peers, for SHOAL_SOAK_SECONDS (an hour)."""
    with Stage(tmp_path) as stage:
        stress(
            stage, float(os.environ.get("SHOAL_SOAK_SECONDS", "3600")), 10, int.from_bytes(os.urandom(4))
        )
