"""`shoal scale`: an edit of a role's `replicas` and `minReplicas`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from shoal.cli.connection import connect
from shoal.cli.edits import change_each, confirm, supporting
from shoal.cli.failures import Usage
from shoal.cli.options import assume_yes, names_of, reports, verb, whole
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, existing
from shoal.objects.errors import NotFound
from shoal.objects.kinds import JOB

_COUNT = whole(1)


@verb("scale")
@names_of("job")
@click.option("--replicas", type=_COUNT, help="Exactly this many tasks (at most, for elastic roles).")
@click.option("--min", "least", type=_COUNT, help="The fewest tasks to run with.")
@click.option("--max", "most", type=_COUNT, help="The most tasks to run with.")
@click.option("--role", default="", metavar="NAME", help="Which role, where there are several.")
@assume_yes
@reports
def command(
    settings: Settings,
    jobs: tuple[str, ...],
    replicas: int | None,
    least: int | None,
    most: int | None,
    role: str,
    yes: bool,
) -> None:
    """Change how many tasks a job has.

    --replicas sets the number; --min and --max change the range of an elastic role. The tasks of an
    elastic job continue while others join or leave. A running gang of fixed size (such as
    torchrun's) restarts all of its tasks from their checkpoint, so scale asks first.
    """
    if (replicas is None) == (least is None and most is None):
        raise Usage("give either --replicas N, or --min A, --max B or both")
    if least is not None and most is not None and least > most:
        raise Usage(f"--min {least} is more than --max {most}")

    named = supporting(jobs, settings, "scale", JOB)
    _ask(settings, named, yes=yes)
    change_each(
        settings,
        named,
        "scale",
        replicas=replicas or most,
        role=role,
        min_replicas=least,
    )


def _ask(settings: Settings, named: Sequence[Target], *, yes: bool) -> None:
    """Ask before all tasks of running jobs are restarted; a job that is not there fails later."""
    if yes:
        return
    restarting: list[str] = []
    with connect(settings) as client:
        for target in named:
            with suppress(NotFound):
                if target.kind.verbs["scale"].restarts(existing(client, target)):
                    restarting.append(str(target))
    if restarting:
        names, they = " and ".join(restarting), "its" if len(restarting) == 1 else "their"
        confirm(f"{names} restarts all of {they} tasks for another size. Scale?", yes=False)
