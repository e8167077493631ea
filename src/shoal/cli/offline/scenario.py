"""`shoal simulate scenario`: what the scheduler decides about a cluster that a file describes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.options import common, reports
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.simulate.scenario.record import Record, Slot, StepRecord


@click.command("scenario")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@reports
@common
@click.pass_obj
def command(settings: Settings, files: tuple[Path, ...], **_: Any) -> int:
    """Show what the scheduler decides about the nodes, queues and jobs of a file, and why.

    \b
    shoal simulate scenario preempt.yaml
    shoal simulate scenario scenarios/*.yaml --json

    Exit code 1 when a decision is not what its file expects.
    """
    records = _play(files)
    emit(settings, records, _TITLES, [row for record in records for row in _rows(record)])
    unmet = [sentence for record in records for sentence in record.unmet]
    for sentence in unmet:
        say(sentence)
    return 1 if unmet else 0


def _play(files: Sequence[Path]) -> list[Record]:
    from shoal.simulate.scenario.play import play
    from shoal.simulate.scenario.record import record_of
    from shoal.simulate.scenario.whole import read_scenario

    scenarios = [read_scenario(path) for path in files]
    return [record_of(each, decision) for each in scenarios for decision in play(each)]


_TITLES = ("SCENARIO", "AT", "STEP", "JOB", "TASKS", "WHY")


def _rows(record: Record) -> Iterable[list[str]]:
    from shoal.cli.text import duration

    at = duration(record.at)
    if not record.steps:
        yield [record.scenario, at, "-", "-", "-", "there is nothing to do"]
    for step in record.steps:
        why = step.reason if not step.beneficiary else f"{step.reason} (for {step.beneficiary})"
        yield [record.scenario, at, step.step, step.job, _where(step), why]


def _where(step: StepRecord) -> str:
    from shoal.cli.text import duration

    said = _places(step.tasks)
    if step.to:
        said += f" to {_places(step.to)}"
    if step.at is not None:
        said = f"{said} at {duration(step.at)}".strip()
    return said or "-"


def _places(tasks: Sequence[Slot]) -> str:
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task.node] = counts.get(task.node, 0) + 1
    return ",".join(f"{count}@{node}" for node, count in counts.items())
