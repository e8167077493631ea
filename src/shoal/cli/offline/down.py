"""`shoal down`: everything of a home ends; its jobs go on at the next `shoal up`."""

from __future__ import annotations

import click

from shoal.cli.connection import connect
from shoal.cli.edits import confirm
from shoal.cli.failures import Usage
from shoal.cli.options import DURATION, assume_yes, reports, verb
from shoal.cli.output import say, write_document, write_names
from shoal.cli.settings import Settings
from shoal.objects.errors import Unavailable
from shoal.objects.job import Job
from shoal.objects.text import plural

_SHOWN = 10
_HAVE_TASKS = ("Starting", "Running")


@verb("down")
@assume_yes
@click.option(
    "--grace",
    type=DURATION,
    default="10s",
    help="Between SIGTERM and SIGKILL of tasks; 10s by default.",
)
@reports
def command(settings: Settings, yes: bool, grace: float) -> None:
    """Stop Shoal on this machine.

    The tasks of running jobs are stopped, gracefully; the next `shoal up` (or `run`) starts them again.
    Nothing is deleted: all state stays in the home's folder.
    """
    if settings.remote:
        raise Usage(
            "down stops Shoal on this machine, but the context names another server",
            hint="name the home: shoal down --home ~/.shoal",
        )
    from shoal.cluster.local.home import Home
    from shoal.cluster.local.shutdown import shut_down

    running = _running(settings)
    if running:
        shown = ", ".join(_spelt(job) for job in running[:_SHOWN])
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        they = "It continues" if len(running) == 1 else "They continue"
        say(f"{plural(len(running), 'job')} with running tasks: {shown}{more}")
        confirm(f"Stop the tasks? {they} at the next `shoal up`.", yes=yes)
    stopped = shut_down(Home(settings.home), grace_seconds=float(grace))
    if settings.output == "name":
        write_names(f"node/{node}" for node in stopped.nodes)
    elif settings.machine_readable:
        jobs = [{"namespace": job.metadata.namespace, "name": job.metadata.name} for job in running]
        write_document(
            settings,
            {
                "home": str(settings.home),
                "stopped": {"server": stopped.server, "nodes": stopped.nodes},
                "jobs": jobs,
            },
        )
    elif not stopped:
        say(f"Shoal is not running here (state in {settings.home})")
    else:
        parts = ["the server"] if stopped.server else []
        parts += [plural(len(stopped.nodes), "node")] if stopped.nodes else []
        say(f"stopped {' and '.join(parts)}; state stays in {settings.home}")


def _running(settings: Settings) -> list[Job]:
    """Jobs with tasks, as far as there is a server to ask; one of another version will do."""
    from shoal.objects.kinds import JOB

    with connect(settings, timeout_seconds=5.0, check_version=False) as client:
        try:
            jobs: list[Job] = [record.object for record in client.list(JOB).records]
        except Unavailable:
            return []
    return [job for job in jobs if job.status.phase in _HAVE_TASKS]


def _spelt(job: Job) -> str:
    namespace = "" if job.metadata.namespace == "default" else f" (namespace {job.metadata.namespace})"
    return f"job/{job.metadata.name}{namespace}"
