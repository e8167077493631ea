"""Completion times on the published Pollux job lists, beside the published means and rigid policies.

`python -m bench.schedule.referee [--sweeps]`. Everything is virtual time, so the machine's load changes
nothing but `ms per decision`. Parameters were chosen on workload 6 alone; all lists at hand are shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np

from bench.published import DATA
from bench.row import Row, table
from shoal.simulate.policies import POLICIES
from shoal.simulate.referee.declaring import Declaring
from shoal.simulate.referee.engine import Cluster, simulate
from shoal.simulate.referee.profiles import Application, read_applications
from shoal.simulate.referee.workload import Submission, read_workload
from shoal.simulate.report import Record, percentile, record_of

__all__ = ["rows", "sweeps"]

LISTS = (1, 2, 3, 4, 6)
_GOALS = {"none": 1.0, "declared": 0.93, "profiles": 0.89}


def rows() -> Iterator[Row]:
    """The goals, each as soon as it is known; none where the published data are not at hand."""
    if not (DATA / "pollux").is_dir():
        print(f"no published data in {DATA}: no completion times", file=sys.stderr)
        return
    yield from _fidelity()
    for information, goal in _GOALS.items():
        yield from _beside_pollux(information, goal)
    for placing in ("fifo-skip", "fifo-skip-spread"):
        yield from _beside_rigid(placing)


def sweeps() -> list[list[str]]:
    """Mean completion time over all lists, over the published Pollux mean, under other conditions."""
    kinds: dict[str, tuple[Cluster, Declaring]] = {"as published": (Cluster(), Declaring())}
    for seconds in (10.0, 120.0):
        kinds[f"restart {seconds:g} s"] = (Cluster(restart=seconds), Declaring())
    for seconds in (10.0, 240.0):
        kinds[f"interval {seconds:g} s"] = (Cluster(interval=seconds), Declaring())
    for part in (0.25, 0.5):
        kinds[f"interference {part:.0%}"] = (Cluster(interference=part), Declaring())
    for factor in (2.0, 4.0):
        kinds[f"declared work off by {factor:g}"] = (Cluster(), Declaring(error=factor))
    kinds["a fifth declares a tenth"] = (Cluster(), Declaring(liars=0.2))
    lines = [["condition", *_GOALS]]
    theirs = _mean([_published("pollux", number)["avg"] for number in LISTS])
    for name, (cluster, declaring) in kinds.items():
        line = [name]
        for information in _GOALS:
            records = [_run("shoal", information, number, cluster, declaring) for number in LISTS]
            line.append(f"{_mean([each.avg_jct for each in records]) / theirs:.3f}")
        lines.append(line)
        print(" ".join(line), file=sys.stderr, flush=True)
    return lines


def main() -> None:
    """`python -m bench.schedule.referee [--sweeps]`."""
    parser = argparse.ArgumentParser(prog="python -m bench.schedule.referee")
    parser.add_argument("--sweeps", action="store_true", help="other conditions too: some ten minutes")
    told = parser.parse_args()
    print(table(list(rows())))
    if told.sweeps:
        lines = sweeps()
        print("\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))


def _fidelity() -> list[Row]:
    """The distance from published means, of all lists."""
    found: list[Row] = []
    for name in ("tiresias", "optimus"):
        off = [
            abs(_run(name, "declared", number).avg_jct - _published(name, number)["avg"])
            for number in LISTS
        ]
        figure = f"list 6: {_run(name, 'declared', 6).avg_jct!r} s"
        found.append(Row(f"{name}, off its published means", 0.0, max(off), "s", "5 lists", figure))
    return found


def _beside_pollux(information: str, goal: float) -> list[Row]:
    ours = [_run("shoal", information, number) for number in LISTS]
    theirs = [_published("pollux", number) for number in LISTS]

    def over(mine: Callable[[Record], float], their: str) -> list[float]:
        """The ratio of the means, and of each list."""
        pairs = [(mine(a), b[their]) for a, b in zip(ours, theirs, strict=True)]
        whole = _mean([a for a, _ in pairs]) / _mean([b for _, b in pairs])
        return [whole, *(a / b for a, b in pairs)]

    jct, p99, makespan = (
        over(lambda each: each.avg_jct, "avg"),
        over(lambda each: each.p99, "p99"),
        over(lambda each: each.makespan, "makespan"),
    )
    low, high = _interval(jct[1:])
    spread = f"lists {_listed(jct[1:])}; 95 % {low:.3f} to {high:.3f}"
    beside = f"{_mean([each.restarts_per_job for each in ours]):.1f} restarts a job, "
    beside += f"{_mean([each.ms_per_decision for each in ours]):.1f} ms a decision, "
    beside += f"worst finish-time ratio {max(each.ftf_max for each in ours):.1f}"
    if information == "declared":
        beside += f"; others, of the same mean: {_others(_mean([each['avg'] for each in theirs]))}"
    return [
        Row(f"mean completion, knows: {information}", goal, jct[0], "x Pollux", spread, beside),
        Row(f"p99, knows: {information}", 1.0, p99[0], "x Pollux", f"lists {_listed(p99[1:])}"),
        Row(
            f"makespan, knows: {information}", 1.0, makespan[0], "x Pollux",
            f"lists {_listed(makespan[1:])}",
        ),
    ]  # fmt: skip


def _others(pollux: float) -> str:
    """What other policies come to, over Pollux; Optimus is told what nobody can know."""
    means = {
        name: _mean([_run(name, "declared", number).avg_jct for number in LISTS]) / pollux
        for name in ("tiresias", "optimus", "dragon", "easy", "fifo-skip", "fifo")
    }
    return ", ".join(
        f"{name}{' (oracle)' if name == 'optimus' else ''} {over:.2f}" for name, over in means.items()
    )


def _beside_rigid(rigid: str) -> list[Row]:
    def mean(name: str, field: str) -> float:
        return _mean([float(getattr(_run(name, "declared", number), field)) for number in LISTS])

    found: list[Row] = []
    for what, field, goal in (
        ("makespan", "makespan", -30.0), ("mean completion", "avg_jct", -65.0), ("wait", "wait", -90.0),
    ):  # fmt: skip
        change = {
            name: (mean(name, field) / mean(rigid, field) - 1) * 100 for name in ("shoal", "dragon")
        }
        beside = f"DRAGON re-created {change['dragon']:+.1f} %"
        found.append(Row(f"{what} against {rigid}", goal, change["shoal"], "%", "5 lists", beside))
    return found


@cache
def _run(
    policy: str,
    information: str,
    number: int,
    cluster: Cluster = Cluster(),  # noqa: B008  frozen
    declaring: Declaring = Declaring(),  # noqa: B008  frozen
) -> Record:
    print(f"  {policy}, {information}, list {number}", file=sys.stderr, flush=True)
    made = POLICIES[policy](information)
    run = simulate(_workload(number), made, cluster, declaring)
    return record_of(run, policy, f"workload-{number}", made.information)


@cache
def _applications() -> dict[str, Application]:
    return read_applications(DATA / "pollux" / "traces")


@cache
def _workload(number: int) -> list[Submission]:
    return read_workload(DATA / "pollux" / "workloads" / f"workload-{number}.csv", _applications())


@cache
def _published(name: str, number: int) -> dict[str, float]:
    """Mean, 99th percentile and end of the last job, from each job's published completion time."""
    path = DATA / "pollux" / "published-results" / f"results-jobload__{name}-1.0.json"
    times: dict[str, float] = json.loads(path.read_text())["jcts"][f"workload-{number}"]
    submitted = {job.name: job.time for job in _workload(number)}
    ends = [submitted[name] + seconds for name, seconds in times.items()]
    values = list(times.values())
    return {"avg": _mean(values), "p99": percentile(values, 0.99), "makespan": max(ends)}


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of their mean: 95 % of 10,000 draws with replacement."""
    drawn = np.random.default_rng(0).choice(np.array(ratios), (10_000, len(ratios))).mean(axis=1)
    return float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


if __name__ == "__main__":
    main()
