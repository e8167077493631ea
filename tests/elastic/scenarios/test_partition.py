"""Four workers on two islands that are cut from each other: training-N7, on real networks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.elastic.scenarios.islands import ROUTER, Islands, islands
from tests.elastic.scenarios.stage import Stage

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = ("a0", "a1", "b0", "b1")
CUT_SECONDS = 3.0
"""So long a cut lasts in which nothing may happen."""


@contextmanager
def four(folder: Path) -> Iterator[tuple[Stage, Islands]]:
    """Two workers on each island, in training; they go on for as long as nobody makes them hurry."""
    with islands() as net:
        options = ["--bind", f"{ROUTER}:0", "--expect", "4"]
        stage = Stage(folder, samples=120, epochs=15, pace=0.02, options=options)
        stage.prefix = ["ip", "netns", "exec", net.router]
        with stage:
            for name in NAMES:
                number = 1 if name.startswith("a") else 2
                surroundings = {"SHOAL_HOST": net.host(number)}
                stage.enter(name, environment=surroundings, network=net.network(number))
            stage.together(*NAMES)
            stage.reach("a0", 5)
            yield stage, net


def test_the_coordinator_is_on_one_side(tmp_path: Path):
    """training-N7: one side reaches it and goes on; the other is fenced, takes no step, and rejoins."""
    with four(tmp_path) as (stage, net):
        net.link(2, False)
        stage.together("a0", "a1")
        cut_off = [stage.step(name) for name in ("b0", "b1")]
        stage.reach("a0", stage.step("a0") + 20)
        assert [stage.step(name) for name in ("b0", "b1")] == cut_off
        net.link(2, True)
        stage.together(*NAMES)
        stage.finished(*NAMES)
        stage.no_step_missing("a0", "a1")


@pytest.mark.soak
def test_the_coordinator_is_on_neither_side(tmp_path: Path):
    """training-N7: nobody goes on; when it heals all do, and nobody is put out for its silence."""
    with four(tmp_path) as (stage, net):
        for number in (1, 2):
            net.link(number, False)
        time.sleep(0.5)  # a step that was under way
        stuck = [stage.step(name) for name in NAMES]
        time.sleep(CUT_SECONDS)
        assert [stage.step(name) for name in NAMES] == stuck
        assert max(stuck) - min(stuck) <= 1
        for number in (1, 2):
            net.link(number, True)
        stage.reach("a0", max(stuck) + 10)
        stage.together(*NAMES)
        stage.finished(*NAMES)


@pytest.mark.soak
def test_both_sides_reach_the_coordinator(tmp_path: Path):
    """training-N7: it keeps one side, that with the oldest member; the other is fenced and rejoins when
    it reaches the members again."""
    with four(tmp_path) as (stage, net):
        oldest = stage.views("a0")[0][0]
        net.forward(False)
        stays = ("a0", "a1") if oldest.startswith("a") else ("b0", "b1")
        began = time.monotonic()
        stage.together(*stays)
        print(f"one side goes on {time.monotonic() - began:.1f} s after the cut")
        stage.reach(stays[0], stage.step(stays[0]) + 20)
        net.forward(True)
        stage.together(*stays, *(name for name in NAMES if name not in stays))
        stage.finished(*NAMES)
        stage.no_step_missing(*stays)
