"""`shoal output`: the folder that a job's tasks know as `$SHOAL_OUTPUT`, printed or copied.

On this machine it is a folder of the home, named by the job's namespace and uid, and stays after the job
has finished. A server elsewhere keeps it on its own machine.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from shoal.cli.failures import Usage
from shoal.cli.options import names_of, reports, verb
from shoal.cli.output import say, write_document
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import existing, one
from shoal.objects.errors import Exists, NotFound
from shoal.objects.job import Job
from shoal.objects.kinds import JOB


@verb("output")
@names_of("job", single=True)
@click.option("--copy", "into", type=click.Path(path_type=Path), metavar="DIR", help="Copy it to DIR.")
@reports
def command(settings: Settings, job: str, into: Path | None) -> None:
    """Show where a job's output folder is, or copy it.

    Tasks write to $SHOAL_OUTPUT; the folder is the job's alone, is kept across restarts, and stays after
    the job has finished, unless the job's cleanUp is All.
    """
    target = one(job, settings, JOB)
    with connect(settings) as client:
        folder = output_folder(settings, existing(client, target))
    if folder is None:
        raise Usage(
            f"the output of {target} is on the machine of its server",
            hint="copy it there, or have the tasks write to storage that both machines reach",
        )
    if not folder.is_dir():
        raise NotFound(f"{target} has no output: {folder} does not exist")
    if into is not None:
        if into.exists() and (not into.is_dir() or any(into.iterdir())):
            raise Exists(f"{into} exists and is not an empty folder")
        shutil.copytree(folder, into, dirs_exist_ok=True)
        say(f"copied the output of {target} to {into}")
    if settings.output in ("json", "yaml"):
        write_document(settings, {"path": str(folder), "copy": None if into is None else str(into)})
    elif into is None:
        print(folder)


def output_folder(settings: Settings, job: Job) -> Path | None:
    """The job's output folder on this machine; None where its server is elsewhere."""
    if settings.remote:
        return None
    from shoal.cluster.local.home import Home

    return Home(settings.home).output / job.metadata.namespace / job.metadata.uid
