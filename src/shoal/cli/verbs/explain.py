"""`shoal explain`: the one reason why an object is in the state it is in, with its evidence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from shoal.cli.completion import complete_kinds_and_names
from shoal.cli.connection import connect
from shoal.cli.options import reports, verb
from shoal.cli.output import write_document, write_names
from shoal.cli.settings import Settings
from shoal.cli.table import Table
from shoal.cli.targets import Target, targets, with_nearest
from shoal.objects.columns import age
from shoal.objects.errors import NotFound
from shoal.objects.kinds import JOB

if TYPE_CHECKING:
    from shoal.client.reports import Explanation

_AHEAD = 5
_AMOUNTS = ("asked", "free", "largest", "quota", "used")
"""Evidence that is an amount of its `resource`."""
_REMEDIES = {
    "Suspended": "shoal resume {target}",
    "Dependency": "nothing has to be done: it starts when those jobs have ended as asked",
    "DependencyNeverSatisfied": "submit it again: without --after, or after another run of that job",
    "CommandNotFound": "check the command, and that PATH and the directory are the ones it needs",
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


@verb("explain")
@click.argument("word", metavar="[KIND/]NAME", shell_complete=complete_kinds_and_names)
@reports
def command(settings: Settings, word: str) -> None:
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
        _print(target, why, advice, wide=settings.output == "wide")


def _print(target: Target, why: Explanation, advice: str, *, wide: bool) -> None:
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
        rows = [[path, _shown(path, value, resource)] for path, value in flattened(why.evidence).items()]
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


def _shown(name: str, value: Any, resource: Any) -> str:
    """A number of the evidence in the unit that people use."""
    from shoal.objects.text import cores, memory

    if isinstance(value, list):
        return ", ".join(str(part) for part in cast("list[Any]", value)) or "-"
    if name in _AMOUNTS and isinstance(value, int):
        return {"cpu": cores, "memory": memory}.get(resource, str)(value)
    return str(value)
