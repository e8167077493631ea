"""`shoal logs`: what a job's tasks have written, also after they and their nodes are gone."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.failures import INTERRUPTED, JobNotFound, outcome_code
from shoal.cli.lines import JsonLines, TaskLines
from shoal.cli.options import MOMENT, names_of, reports, verb, whole
from shoal.cli.output import say
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, existing, one
from shoal.client import Client
from shoal.objects.errors import NotFound
from shoal.objects.job import FINISHED, Job
from shoal.objects.kinds import JOB


@verb("logs")
@names_of("job", single=True)
@click.option("--follow", "-f", is_flag=True, help="Continue until the job has finished.")
@click.option("--role", default="", metavar="NAME", help="Only this role's tasks.")
@click.option("--rank", "index", type=whole(0), help="Only the task of this index.")
@click.option("--since", type=MOMENT, default=0.0, help="Only from then on: 10m, or 2026-05-01T09:30.")
@click.option("--tail", type=whole(0), help="Only the last lines of each task.")
@click.option("--previous", is_flag=True, help="The start before the last of each task.")
@click.option(
    "--incarnation", type=whole(1), metavar="N", help="Only start N of each task; the first is 1."
)
@click.option("--raw", is_flag=True, help="On a terminal: leave escape sequences in the output.")
@reports
@click.option("--prefix/--no-prefix", default=None, help="Name the task before each line.")
def command(
    settings: Settings, job: str, follow: bool, prefix: bool | None, raw: bool, **chosen: Any
) -> int:
    """Show what a job's tasks have written.

    Where several tasks write, each line begins with its task's name. With -o json each piece is a
    document on a line of its own.

    With -f it ends with the job, with exit code 0 if the job succeeded, 100 if it failed and 103 if it
    was cancelled. Ctrl-C only stops following; the job goes on.
    """
    target = one(job, settings, JOB)
    with connect(settings) as client:
        found = _job(client, target, follow=follow)
        several = _several(found, chosen["role"], chosen["index"]) if prefix is None else prefix
        json = settings.output == "json"
        lines = JsonLines() if json else TaskLines(prefixed=several, raw=raw)
        try:
            for record in client.logs(target.namespace, target.name, follow=follow, **chosen):
                lines.write(record)
            lines.finish()
            if not lines.written and not follow:
                earlier = chosen["previous"] or chosen["incarnation"]
                say(f"{target} has written nothing{' in that start' if earlier else _so_far(found)}")
            return outcome_code(_job(client, target, follow=True)) if follow else 0
        except KeyboardInterrupt:
            if follow:
                say(f"\n{target} goes on; follow it again with: {settings.spelt(f'logs -f {target}')}")
            return INTERRUPTED


def _job(client: Client, target: Target, *, follow: bool) -> Job:
    """The job. When following, its absence has an exit code of its own."""
    try:
        return existing(client, target)
    except NotFound as error:
        if follow:
            raise JobNotFound(error.message, hint=error.hint, details=error.details) from error
        raise


def _so_far(job: Job) -> str:
    phase = job.status.phase
    return "" if phase in FINISHED else f" yet: it is {phase}"


def _several(job: Job, role: str, index: int | None) -> bool:
    """Whether more than one task may write."""
    if job.spec.array is not None:
        return index is None
    sizes = [each.replicas for each in job.spec.roles if not role or each.name == role]
    return len(sizes) > 1 or (index is None and sum(sizes) > 1)
