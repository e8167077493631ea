"""`shoal scale`: an edit of a role's `replicas` and `minReplicas`."""

from __future__ import annotations

import click

from shoal.cli.edits import change_each, supporting
from shoal.cli.failures import Usage
from shoal.cli.options import names_of, reports, verb, whole
from shoal.cli.settings import Settings
from shoal.objects.kinds import JOB

_COUNT = whole(1)


@verb("scale")
@names_of("job")
@click.option("--replicas", type=_COUNT, help="Exactly this many tasks (at most, for elastic roles).")
@click.option("--min", "least", type=_COUNT, help="The fewest tasks to run with.")
@click.option("--max", "most", type=_COUNT, help="The most tasks to run with.")
@click.option("--role", default="", metavar="NAME", help="Which role, where there are several.")
@reports
def command(
    settings: Settings,
    jobs: tuple[str, ...],
    replicas: int | None,
    least: int | None,
    most: int | None,
    role: str,
) -> None:
    """Change how many tasks a job has.

    --replicas sets the number; --min and --max change the range of an elastic role, each by itself or
    both.
    """
    if (replicas is None) == (least is None and most is None):
        raise Usage("say either --replicas N, or --min A and --max B or one of them")
    if least is not None and most is not None and least > most:
        raise Usage(f"--min {least} is more than --max {most}")

    change_each(
        settings,
        supporting(jobs, settings, "scale", JOB),
        "scale",
        replicas=replicas or most,
        role=role,
        min_replicas=least,
    )
