"""Policies by name on a real cluster: each does what it does in the simulator, with real workers."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from shoal.simulate.paced import compare
from shoal.simulate.paced.jobs import read_paced
from shoal.testing import paced

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(400)]

pytest.importorskip("torch")

PATIENCE_SECONDS = 180.0
LIST = Path(__file__).with_name("paced-jobs.yaml")
SMALL = """
    description: one that could use everything, and two that come after it
    nodes: 2
    slots: 2
    step: 0.25s
    restart: 0.5s
    stops: 0.2s
    rules: {patience: 2s, quiet: 3s}
    jobs:
      - {name: first, at: 0s, minimum: 1, maximum: 4, seconds: 32s, loss: 0.05}
      - {name: second, at: 3s, minimum: 1, maximum: 4, seconds: 4s, loss: 0.05}
      - {name: third, at: 4s, minimum: 1, maximum: 2, seconds: 4s, loss: 0.05}
"""


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["dragon", "fifo-skip", "shoal"])
def test_a_policy_runs_a_cluster(policy: str, tmp_path: Path) -> None:
    """Rigid, the small ones wait for the large one to end; elastic, they do not."""
    path = tmp_path / "small.yaml"
    path.write_text(textwrap.dedent(SMALL))
    done = paced.run(read_paced(path), policy, 1, tmp_path / "run", patience=PATIENCE_SECONDS)
    print(policy, {name: round(seconds, 1) for name, seconds in done.completion.items()})
    assert set(done.completion) == {"first", "second", "third"}
    large, small = done.completion["first"], done.completion["second"]
    if policy == "fifo-skip":
        assert 3 + small > large, "it gets nothing before"
    elif policy == "shoal":
        assert 3 + small < large, "it is short, and goes first"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_policies_come_in_the_order_in_which_they_are_simulated(tmp_path: Path) -> None:
    """Eight elastic jobs on four nodes, three seeds; ties within 5 % are ties."""
    file = read_paced(LIST)
    simulated: list[compare.Outcome] = []
    real: list[compare.Outcome] = []
    for seed in (1, 2, 3):
        for policy in ("fifo-skip", "dragon", "shoal"):
            simulated.append(compare.run(file, policy, seed))
            folder = tmp_path / f"{policy}-{seed}"
            real.append(paced.run(file, policy, seed, folder, patience=4 * PATIENCE_SECONDS))
    expected, found = compare.mean_jct(simulated), compare.mean_jct(real)
    print("simulated", expected, "real", found)
    apart = [
        low
        for low, high in zip(sorted(expected.values()), sorted(expected.values())[1:], strict=False)
        if high > low * (1 + compare.TIE)
    ]
    assert apart, "the list tells them apart"
    assert compare.contradictions(expected, found) == []
