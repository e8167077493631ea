"""`shoal describe`: one object in full: its spec, its status, and what happened lately; and
`shoal explain`: the one reason for its state, with its evidence."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from shoal.cli.diff import flattened
from shoal.cli.failures import Usage
from shoal.cli.offline.output_folder import output_folder
from shoal.cli.options import complete_kinds_and_names, reports, verb
from shoal.cli.output import Table, say, write_document, write_names
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, beside, existing, targets, with_nearest
from shoal.client import Client
from shoal.objects import codec
from shoal.objects.columns import age
from shoal.objects.errors import NotFound
from shoal.objects.kind import Description, Kind
from shoal.objects.kinds import JOB

if TYPE_CHECKING:
    from shoal.cli.taskrows import TaskRow
    from shoal.client import Entry
    from shoal.client.reports import Explanation

_EVENTS = 20
_TASKS = 30
_PAST = 2_000
"""Entries of history that are read for tasks that have ended."""
_AHEAD = 5
_AMOUNTS = ("asked", "free", "largest", "quota", "used")
"""Evidence that is an amount of its `resource`."""
_REMEDIES = {
    "Suspended": "shoal resume {target}",
    "Dependency": "nothing has to be done: it starts when those jobs have ended as asked",
    "DependencyNeverSatisfied": "submit it again: without --after, or after another run of that job",
    "CommandNotFound": "check the explain, and that PATH and the directory are the ones it needs",
    "OutOfMemory": "ask for more memory, or use less of it per task",
    "RestartLimit": "shoal logs {target} shows what its tasks wrote, with --previous the start before",
    "TaskFailed": "shoal logs {target} shows what its tasks wrote",
    "IndicesFailed": "shoal logs {target} --rank INDEX shows what one of them wrote",
    "WallTimeExceeded": "give it more time (limits.wallTime), and let it resume from what it saved",
    "NodeHoursExceeded": "give it more (limits.nodeHours), and let it resume from what it saved",
    "IdleTimeout": "shoal logs {target} shows where it stood still",
    "InfrastructureLimit": "shoal events {target} shows what failed; shoal get nodes which nodes answer",
}
"""By the job controller's codes; reasons to wait come from the scheduler with their own remedy."""


@verb("describe")
@click.argument(
    "objects", nargs=-1, required=True, metavar="KIND/NAME", shell_complete=complete_kinds_and_names
)
@reports
def command(settings: Settings, objects: tuple[str, ...]) -> None:
    """Show one object in full, with its recent events.

    For a job also its tasks, index by index, and what each uses; for a queue what is its own, what it
    has borrowed, and the queues below it.
    """
    named = targets(objects, settings)
    if len(named) != 1:
        raise Usage("name one object", hint="such as: shoal describe job/train")
    target = named[0]
    with connect(settings) as client:
        obj = existing(client, target)
        events = client.events(
            namespace=target.namespace, kind=target.kind, name=target.name,
            uid=obj.metadata.uid, limit=_EVENTS,
        )  # fmt: skip
        tasks = _tasks(client, target, obj)
        others = beside(client, target.kind, [obj]) if target.kind.table is not None else []
    folder = output_folder(settings, obj) if target.kind.tasks == "owned" else None
    description = _described(target.kind, obj, others, time.time())
    if settings.output == "name":
        write_names([str(target)])
    elif settings.output in ("json", "yaml"):
        document: dict[str, Any] = {"object": obj, "events": events}
        if tasks is not None:
            document["tasks"] = tasks
        if folder is not None:
            document["output"] = str(folder)
        write_document(settings, {**document, **description.facts})
    else:
        _print(target, obj, description, tasks, events, folder)


def _tasks(client: Client, target: Target, obj: Any) -> list[TaskRow] | None:
    """The tasks of an object, or those that run on it; None for kinds that have none."""
    from shoal.cli.taskrows import TaskRow, task_rows

    if target.kind.tasks == "owned":
        past = client.attempts(
            target.namespace, target.name, uid=obj.metadata.uid, usage=True, limit=_PAST
        )
        return task_rows(obj, client.tasks(target.namespace, target.name), past)
    if target.kind.tasks == "hosted":
        return [
            TaskRow(
                role=f"{task.namespace}/{task.job} {task.role}", index=task.index, phase=task.phase,
                incarnation=task.incarnation, node=task.node, started=task.started,
                cpu_seconds=task.cpu_seconds, memory_bytes=task.memory_bytes,
            )
            for task in client.usage().tasks
            if task.node == target.name and task.outcome is None
        ]  # fmt: skip
    return None


def _print(
    target: Target,
    obj: Any,
    description: Description,
    tasks: list[TaskRow] | None,
    events: Sequence[Entry],
    folder: Path | None,
) -> None:
    now = time.time()
    print(target)
    lines = list(description.lines)
    if folder is not None:
        lines.append(("output", str(folder)))
    labels = obj.metadata.labels
    if labels:
        lines.append(("labels", ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))))
    Table(["", ""], indent=2).write([[f"{name}:" if name else "", value] for name, value in lines])
    for section in description.sections:
        _section(section.title, section.titles, section.rows)
    _section("Conditions", ["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], [
        [c.type, c.status, age(c.changed, now), c.reason or "-", c.message or "-"]
        for c in getattr(obj.status, "conditions", ())
    ])  # fmt: skip
    if tasks is not None:
        _print_tasks(tasks, now)
    _section("Events", ["AGE", "TYPE", "REASON", "MESSAGE"], [
        [age(entry.at, now), entry.severity, entry.reason, _counted(entry)] for entry in events
    ])  # fmt: skip
    if len(events) == _EVENTS:
        say(f"showing the last {_EVENTS} events; shoal events {target} shows all")


def _described(kind: Kind, obj: Any, objects: Sequence[Any], now: float) -> Description:
    """What the kind says of the object; else its columns, and every field of its spec."""
    if kind.describe is not None:
        return kind.describe(obj, objects, now)
    lines = [(column.title.lower(), column.value(obj, now)) for column in kind.columns[1:]]
    spec = flattened(codec.builtins(obj.spec)).items()
    return Description(lines=[*lines, *((f"spec.{path}", _shown(value)) for path, value in spec)])


def _print_tasks(tasks: list[TaskRow], now: float) -> None:
    from shoal.objects.text import duration, memory

    shown = tasks
    if len(tasks) > _TASKS:  # what is going on is worth more than what waits or is over
        lively = [task for task in tasks if task.memory_bytes is not None or task.phase == "Failed"]
        shown = [*lively, *(task for task in tasks if task not in lively)][:_TASKS]
    _section("Tasks", ["TASK", "PHASE", "NODE", "START", "EXIT", "ELAPSED", "CPU", "MEMORY", "PEAK"], [
        [
            f"{task.role} {task.index}",
            task.phase,
            task.node or "-",
            str(task.incarnation),
            "-" if task.exit_code is None else str(task.exit_code),
            age(task.started, task.ended or now),
            duration(task.cpu_seconds) if task.cpu_seconds else "-",
            memory(task.memory_bytes),
            memory(task.peak_memory_bytes),
        ]
        for task in shown
    ])  # fmt: skip
    if len(shown) < len(tasks):
        say(f"showing {len(shown)} of {len(tasks)} tasks; -o json shows all")


def _section(title: str, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        print(f"\n{title}")
        Table(titles, indent=2).write(rows)
        sys.stdout.flush()


def _counted(entry: Entry) -> str:
    return f"{entry.message} (x{entry.count})" if entry.count > 1 else entry.message


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(value)


@verb("explain")
@click.argument("word", metavar="[KIND/]NAME", shell_complete=complete_kinds_and_names)
@reports
def explain(settings: Settings, word: str) -> None:
    """Say why a job is in the state it is in.

    One reason, the scheduler's own, with the numbers behind it, the jobs that are tried before it, and
    what would change it. Nodes and queues are explained too: shoal explain node/x.
    """
    target = targets([word], settings, JOB)[0]
    with connect(settings) as client:
        try:
            why = client.explain(target.kind, target.namespace, target.name)
        except NotFound as error:
            raise with_nearest(client, target, error) from error
    advice = why.remedy or _REMEDIES.get(why.code, "").replace("{target}", str(target))
    if settings.output == "name":
        write_names([str(target)])
    elif settings.output in ("json", "yaml"):
        write_document(settings, msgspec.structs.replace(why, remedy=advice))
    else:
        _print_explanation(target, why, advice, wide=settings.output == "wide")


def _print_explanation(target: Target, why: Explanation, advice: str, *, wide: bool) -> None:
    from shoal.cli.diff import flattened
    from shoal.objects.text import printable, starts

    now = time.time()
    since = f", for {age(why.since, now)}" if why.since else ""
    code = f" ({why.code})" if why.code and why.code != why.phase else ""
    if why.phase:
        print(f"{target} is {why.phase}{code}{since}")
    else:
        print(f"{target}: {printable(why.message)}" if why.message else f"{target}")
    if why.phase and why.message:
        print(f"  {printable(why.message)}")
    if why.starts is not None:
        print(f"  {starts(why.starts, now)}")
    if why.evidence:
        print("\nEvidence")
        resource = why.evidence.get("resource")
        amounts = flattened(why.evidence).items()
        rows = [[path, _amount(path, value, resource)] for path, value in amounts]
        Table(["", ""], indent=2).write(rows)
    if why.ahead:
        more = "" if len(why.ahead) <= _AHEAD or wide else " and others"
        shown = why.ahead if wide else why.ahead[:_AHEAD]
        print(f"\nTried before it: {', '.join(shown)}{more}")
    if why.decisions and wide:
        print("\nDecisions")
        Table(["AGE", "STEP", "MESSAGE"], indent=2).write(
            [[age(entry.at, now), entry.reason, entry.message] for entry in why.decisions]
        )
    if why.events:
        print("\nEvents")
        Table(["AGE", "REASON", "MESSAGE"], indent=2).write(
            [[age(entry.at, now), entry.reason, entry.message] for entry in why.events[-_AHEAD:]]
        )
    if advice:
        print(f"\nWhat would change it: {advice}")


def _amount(name: str, value: Any, resource: Any) -> str:
    """A number of the evidence in the unit that people use."""
    from shoal.objects.text import cores, memory

    if isinstance(value, list):
        return ", ".join(str(part) for part in cast("list[Any]", value)) or "-"
    if name in _AMOUNTS and isinstance(value, int):
        return {"cpu": cores, "memory": memory}.get(resource, str)(value)
    return str(value)
