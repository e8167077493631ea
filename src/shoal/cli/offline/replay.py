"""`shoal replay`: a recorded decision, made again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.failures import Usage
from shoal.cli.options import reports, verb
from shoal.cli.output import emit, say
from shoal.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shoal.objects.job import Slots
    from shoal.schedule.plan import Plan, Step, Write
    from shoal.schedule.record import Record

_TITLES = ("JOB", "STEP", "TASKS", "WHY")


@verb("replay")
@click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "name",
    metavar="NAME",
    help="What another would have decided: shoal, fifo, ..., as for up.",
)
@reports
def command(settings: Settings, files: tuple[Path, ...], name: str | None) -> int:
    """Make recorded decisions again, and show what they do and why.

    \b
    shoal replay                          the newest that the scheduler here has recorded
    shoal replay decision.json            one from a file
    shoal replay decision.json --policy fifo-skip

    The scheduler of `shoal up` keeps the newest decisions in the folder decisions of its home (`shoal up
    --record N` says how many). Exit code 1 when one does not come out as it was recorded.
    """
    paths = files or _newest(settings)
    records = [_read(path) for path in paths]
    shown = [_replayed(str(path), record, name) for path, record in zip(paths, records, strict=True)]
    rows = [row for each in shown for row in each["rows"]]
    emit(settings, [_document(each) for each in shown], _TITLES, rows)
    other = [each for each in shown if not each["same"]]
    for each in shown:
        if name is None:
            word = (
                "comes out as it was recorded"
                if each["same"]
                else "does not come out as it was recorded"
            )
            say(f"{each['file']} {word}")
    return 1 if other and name is None else 0


def _newest(settings: Settings) -> tuple[Path, ...]:
    from shoal.cluster.local.home import Home
    from shoal.control.scheduling import recorded

    folder = Home(settings.home).decisions
    files = recorded(folder)
    if not files:
        raise Usage(
            f"no decision is recorded in {folder}",
            hint="name a file, or start a scheduler that records: shoal up --record 20",
        )
    return (files[-1],)


def _read(path: Path) -> Record:
    from shoal.schedule.record import read

    try:
        content = path.read_bytes()
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}") from error
    return read(str(path), content)


def _replayed(file: str, record: Record, name: str | None) -> dict[str, Any]:
    import msgspec

    from shoal.schedule.plan import policy_named
    from shoal.schedule.record import again

    if name is not None:
        rules = msgspec.structs.replace(record.policy.rules, policy=policy_named(name).rules.policy)
        record = msgspec.structs.replace(
            record, policy=msgspec.structs.replace(record.policy, rules=rules)
        )
    plan, same = again(record)
    return {"file": file, "now": record.now, "same": same, "plan": plan, "rows": list(_rows(plan))}


def _document(shown: dict[str, Any]) -> dict[str, Any]:
    return {key: shown[key] for key in ("file", "now", "same", "plan")}


def _rows(plan: Plan) -> Iterable[list[str]]:
    from shoal.schedule.explain import explain

    for write in plan.writes:
        for step in write.steps:
            why = explain(step.code, step.evidence).sentence
            yield [_job(write), type(step).__name__, _where(step), why]


def _job(write: Write) -> str:
    return f"{write.job.namespace}/{write.job.name}"


def _where(step: Step) -> str:
    slots: Sequence[Slots] = getattr(step, "slots", ())
    return " ".join(f"{each.role}/{each.indices}@{each.node}" for each in slots) or "-"
