"""`shoal logs`: what a job's tasks have written, also after they and their nodes are gone."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.connection import connect
from shoal.cli.failures import INTERRUPTED, JobNotFound
from shoal.cli.lines import JsonLines, TaskLines
from shoal.cli.options import MOMENT, names_of, reports, verb, whole
from shoal.cli.output import say
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, one
from shoal.client import Client
from shoal.objects.errors import NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB


@verb("logs")
@names_of("job", single=True)
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has finished.")
@click.option("--role", default="", metavar="NAME", help="Only this role's tasks.")
@click.option("--rank", "index", type=whole(0), help="Only the task of this index.")
@click.option("--since", type=MOMENT, default=0.0, help="Only from then on: 10m, or 2026-05-01T09:30.")
@click.option("--tail", type=whole(0), help="Only the last lines of each task.")
@click.option("--previous", is_flag=True, help="The start before the last of each task.")
@reports
@click.option("--prefix/--no-prefix", default=None, help="Name the task before each line.")
def command(settings: Settings, job: str, follow: bool, prefix: bool | None, **chosen: Any) -> int:
    """Show what a job's tasks have written.

    Where several tasks speak, each line bears the name of its task. With -o json each piece is a
    document on a line of its own.

    With -f it ends with the job, with exit code 0 if the job succeeded, 100 if it failed and 103 if it
    was cancelled. Ctrl-C only stops following; the job goes on.
    """
    target = one(job, settings, JOB)
    with connect(settings) as client:
        try:
            found = client.get(Job, target.namespace, target.name)
            _check_role(found, chosen["role"])
            several = _several(found, chosen["role"], chosen["index"]) if prefix is None else prefix
            lines = JsonLines() if settings.output == "json" else TaskLines(prefixed=several)
            for record in client.logs(target.namespace, target.name, follow=follow, **chosen):
                lines.write(record)
            lines.finish()
            if not lines.written and not follow:
                say(f"{target} has written nothing")
            return _outcome(client, target) if follow else 0
        except NotFound as error:
            if follow:
                raise JobNotFound(error.message, hint=error.hint, details=error.details) from error
            raise
        except KeyboardInterrupt:
            if follow:
                say(f"\n{target} goes on; follow it again with: {settings.spelt(f'logs -f {target}')}")
            return INTERRUPTED


def _check_role(job: Job, role: str) -> None:
    names = [each.name for each in job.spec.roles]
    if role and role not in names:
        raise NotFound(
            f"job/{job.metadata.name} has no role {role}", hint=f"its roles are {', '.join(names)}"
        )


def _several(job: Job, role: str, index: int | None) -> bool:
    """Whether more than one task may speak."""
    if job.spec.array is not None:
        return index is None
    sizes = [each.replicas for each in job.spec.roles if not role or each.name == role]
    return len(sizes) > 1 or (index is None and sum(sizes) > 1)


def _outcome(client: Client, target: Target) -> int:
    from shoal.cli.exit_codes import outcome_code

    return outcome_code(client.get(Job, target.namespace, target.name))
