"""`shoal delete`: remove objects, asking first; running jobs are stopped by it."""

from __future__ import annotations

import click
import msgspec

from shoal.cli.edits import Outcomes, confirm
from shoal.cli.failures import Usage
from shoal.cli.options import assume_yes, complete_kinds_and_names, dry_run, reports, verb
from shoal.cli.output import say
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, targets
from shoal.client import Client
from shoal.objects.errors import ShoalError
from shoal.objects.text import plural


@verb("delete")
@click.argument(
    "objects", nargs=-1, required=True, metavar="KIND/NAME...", shell_complete=complete_kinds_and_names
)
@click.option(
    "--selector", "-l", default="", metavar="LABELS", help="All of the kind with these labels."
)
@assume_yes
@dry_run
@reports
def command(
    settings: Settings, objects: tuple[str, ...], selector: str, yes: bool, dry_run: bool
) -> None:
    """Remove objects.

    A job that runs is stopped first. What it left in its output folder stays on disk, unless the job's
    cleanUp is All; its logs are trimmed by age and size as all logs are, but no verb shows them.
    """
    with connect(settings) as client:
        named = _named(client, settings, objects, selector)
        if not named and selector:
            say(f"nothing is labelled {selector}")
            Outcomes(settings, single=False).report()
            return
        if not named:
            raise Usage(
                "nothing is named", hint="write KIND/NAME, such as job/train, or KIND -l LABEL=VALUE"
            )
        outcomes = Outcomes(settings, single=len(named) == 1 and not selector)
        if not dry_run and not yes:
            shown = ", ".join(str(target) for target in named[:5])
            more = f" and {len(named) - 5} more" if len(named) > 5 else ""
            running = _running(client, named)
            warning = (
                f" {plural(running, 'job')} of them still run{'s' if running == 1 else ''}."
                if running
                else ""
            )
            confirm(f"Delete {shown}{more}?{warning}", yes=yes)
        for target in named:
            try:
                record = client.delete(target.kind, target.namespace, target.name, dry_run=dry_run)
            except ShoalError as error:
                outcomes.failed(target, error)
            else:
                word = "would be deleted" if dry_run else "deleted"
                outcomes.done(target, msgspec.Raw(record.document), word)
    outcomes.report()


def _named(client: Client, settings: Settings, words: tuple[str, ...], selector: str) -> list[Target]:
    if not selector:
        return targets(words, settings)
    from shoal.objects.kinds import kind_named

    if len(words) != 1 or "/" in words[0]:
        raise Usage("with -l name one kind and no objects", hint="such as: shoal delete jobs -l team=a")
    kind = kind_named(words[0])
    namespace = settings.namespace if kind.namespaced else ""
    page = client.list(kind, namespace=namespace, selector=selector)
    return [Target(kind, each.namespace, each.name) for each in (r.identity for r in page.records)]


def _running(client: Client, named: list[Target]) -> int:
    running = 0
    for target in named:
        if target.kind.tasks != "owned":
            continue
        try:
            obj = client.record(target.kind, target.namespace, target.name).object
        except ShoalError:
            continue  # the deletion itself will say so
        running += not target.kind.finished(obj)
    return running
