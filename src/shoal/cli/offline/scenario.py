"""`shoal simulate scenario`: what the scheduler decides about a cluster that a file describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import common, reports
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings
from shoal.objects.quantities import Seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.simulate.scenario.record import Record, Slot, StepRecord


@click.command("scenario")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--core", is_flag=True, help="Decide with the scheduling core that is in preparation.")
@reports
@common
@click.pass_obj
def command(settings: Settings, files: tuple[Path, ...], core: bool, **_: Any) -> int:
    """Show what the scheduler decides about the nodes, queues and jobs of a file, and why.

    \b
    shoal simulate scenario preempt.yaml
    shoal simulate scenario scenarios/*.yaml --json

    Exit code 1 when a decision is not what its file expects.
    """
    records = _play(files, core=core)
    wide = settings.output == "wide"
    emit(settings, records, _TITLES, [row for each in records for row in _rows(each, wide=wide)])
    unmet = [sentence for record in records for sentence in record.unmet]
    for sentence in unmet:
        say(sentence)
    return 1 if unmet else 0


def _play(files: Sequence[Path], *, core: bool) -> list[Record]:
    from shoal.simulate.scenario.play import decided_by, play
    from shoal.simulate.scenario.record import record_of
    from shoal.simulate.scenario.whole import read_scenario

    scenarios = [read_scenario(path) for path in files]
    return [
        record_of(each, decision)
        for each in scenarios
        for decision in play(decided_by(each, edition=2) if core else each)
    ]


_TITLES = ("SCENARIO", "AT", "STEP", "JOB", "TASKS", "WHY")
_MOST_NODES = 3
"""Named in a narrow table."""


def _rows(record: Record, *, wide: bool) -> Iterable[list[str]]:
    at = _time(record.at)
    if not record.steps:
        yield [record.scenario, at, "-", "-", "-", "there is nothing to do"]
    for step in record.steps:
        why = step.reason if not step.beneficiary else f"{step.reason} (for {step.beneficiary})"
        yield [record.scenario, at, step.step, step.job, _where(step, wide=wide), why]


def _where(step: StepRecord, *, wide: bool) -> str:
    said = [_places(step.tasks, wide=wide)]
    if step.to:
        said.append(f"to {_places(step.to, wide=wide)}")
    if step.at is not None:
        said.append(f"at {_time(step.at)}")
    return " ".join(filter(None, said)) or "-"


def _places(tasks: Sequence[Slot], *, wide: bool) -> str:
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.node] = counts.get(task.node, 0) + 1
    places = [f"{count}@{node}" for node, count in counts.items()]
    if wide or len(places) <= _MOST_NODES:
        return ",".join(places)
    return ",".join(places[:_MOST_NODES]) + f" and {len(places) - _MOST_NODES} nodes more"


def _time(at: float) -> str:
    return Seconds(round(at, 3)).text()
