"""The same jobs under the same policies, in virtual time and on a real cluster: the same order?

`python -m bench.schedule.live [--seeds N]`. Each run is a home of its own with four nodes: real workers
of the elastic runtime whose steps are pauses, as `tests/scenarios/paced-jobs.yaml` says. Policies that
are no more than 5 % apart share a place. Some six minutes a seed on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.row import Row, table
from shoal.simulate.paced import compare
from shoal.simulate.paced.jobs import read_paced
from shoal.testing import paced

__all__ = ["POLICIES", "rows"]

FILE = Path(__file__).parents[2] / "tests" / "scenarios" / "paced-jobs.yaml"
POLICIES = ("fifo-skip", "dragon", "shoal")
_SEEDS = 3
_PATIENCE_SECONDS = 600.0


def rows(seeds: int = _SEEDS) -> Iterator[Row]:
    """How many pairs of policies came in another order than simulated, and what each came to."""
    file = read_paced(FILE)
    simulated: list[compare.Outcome] = []
    real: list[compare.Outcome] = []
    with tempfile.TemporaryDirectory(prefix="shoal-live-") as folder:
        for seed in range(1, seeds + 1):
            for policy in POLICIES:
                simulated.append(compare.run(file, policy, seed))
                _tell(f"{policy}, seed {seed}: {_words(simulated[-1])} simulated; real ...")
                where = Path(folder) / f"{policy}-{seed}"
                real.append(paced.run(file, policy, seed, where, patience=_PATIENCE_SECONDS))
                _tell(f"{policy}, seed {seed}: {_words(real[-1])} real, load {os.getloadavg()[0]:.1f}")
    expected, found = compare.mean_jct(simulated), compare.mean_jct(real)
    said = compare.contradictions(expected, found)
    order = _order(found)
    yield Row(
        "policies in another order than simulated",
        0.0,
        float(len(said)),
        "pairs",
        f"{seeds} runs each, load {os.getloadavg()[0]:.1f}",
        f"{order}; simulated {_order(expected)}",
        why="; ".join(said),
    )
    for policy in POLICIES:
        means = sorted(each.mean for each in real if each.policy == policy)
        spread = f"{means[0]:.1f} to {means[-1]:.1f} s"
        beside = f"simulated {expected[policy]:.1f} s"
        yield Row(f"mean completion, {policy}", math.nan, found[policy], "s", spread, beside)


def _order(means: Mapping[str, float]) -> str:
    """The best first; those of one place with `=` between them."""
    return " < ".join(" = ".join(place) for place in compare.ranking(means))


def _words(outcome: compare.Outcome) -> str:
    return f"mean {outcome.mean:.1f} s, last {outcome.makespan:.1f} s, {outcome.changes} changes"


def _tell(line: str) -> None:
    print(f"    {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    print(table(list(rows(parser.parse_args().seeds))))


if __name__ == "__main__":
    main()
