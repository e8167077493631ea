"""`shoal apply`: make the cluster look like the files, after showing what that changes."""

from __future__ import annotations

import click

from shoal.cli.diff import Change, plan, print_plan, summary
from shoal.cli.edits import Outcomes, confirm
from shoal.cli.manifests import read_manifests
from shoal.cli.options import assume_yes, dry_run, reports, verb
from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings, connect
from shoal.objects.errors import ShoalError


@verb("apply")
@click.option(
    "--file",
    "-f",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE|DIR|-",
    help="YAML or JSON; all of a folder's; - is standard input. May be given several times.",
)
@assume_yes
@dry_run
@reports
def command(settings: Settings, sources: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Create or change objects from YAML files.

    \b
    shoal apply -f job.yaml           show what changes, ask, do it
    shoal apply -f team/ --dry-run    only show
    shoal apply -y -f -               from a pipe, without asking

    Fields that a file leaves out get their defaults. Status is never touched. Everything that is wrong
    in any of the files is reported at once, and then nothing is changed.
    """
    objects = read_manifests(sources, settings)
    with connect(settings) as client:
        changes = plan(client, objects)
        pending = [change for change in changes if change.result != "unchanged"]
        if settings.output == "table" or settings.output == "wide":
            print_plan(changes)
        if dry_run:
            _report_dry_run(settings, changes)
            return
        if pending and not yes:
            if settings.machine_readable:
                say(summary(changes))
            confirm(f"{summary(changes)}. Go on?", yes=yes)
        outcomes = Outcomes(settings, single=len(changes) == 1)
        for change in changes:
            if change.result == "unchanged":
                outcomes.done(change.target, change.after, "unchanged")
                continue
            try:
                applied = client.apply(change.wanted)
            except ShoalError as error:
                outcomes.failed(change.target, error)
            else:
                word = "configured" if applied.result == "changed" else applied.result
                outcomes.done(change.target, applied.record.object, word)
    outcomes.report()


def _report_dry_run(settings: Settings, changes: list[Change]) -> None:
    if settings.output == "name":
        for change in changes:
            print(change.target)
    elif settings.machine_readable:
        write_document(settings, {"items": [change.document() for change in changes]})
    else:
        say(f"{summary(changes)}; nothing was changed (--dry-run)")
