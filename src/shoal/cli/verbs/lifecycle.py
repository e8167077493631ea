"""`shoal suspend`, `resume`, `cancel`: edits of a job's `spec.suspend` and `spec.cancelled`; and
`shoal retry`, which submits a finished job again under a new name."""

from __future__ import annotations

from shoal.cli.connection import connect
from shoal.cli.edits import Outcomes, change_each, supporting
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, several, with_nearest
from shoal.objects.errors import ShoalError
from shoal.objects.kinds import JOB


@verb("suspend")
@names_of("job")
@reports
def suspend(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Stop jobs for now; resume continues them.

    Their tasks are stopped and the resources are free for other jobs. Only what the tasks had not
    saved is lost.
    """
    change_each(settings, supporting(jobs, settings, "suspend", JOB), "suspend")


@verb("resume")
@names_of("job")
@reports
def resume(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Continue suspended jobs."""
    change_each(settings, supporting(jobs, settings, "resume", JOB), "resume")


@verb("cancel")
@names_of("job")
@reports
def cancel(settings: Settings, jobs: tuple[str, ...]) -> None:
    """End jobs for good; they stay listed.

    Their tasks get SIGTERM, and SIGKILL after the grace period. The jobs, their logs and their events
    stay until they are deleted.
    """
    change_each(settings, supporting(jobs, settings, "cancel", JOB), "cancel")


@verb("retry")
@names_of("job")
@reports
def retry(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Submit finished jobs again, as new jobs.

    The new job has the same specification and is called after the old one: train-retry1, then
    train-retry2. The old job keeps its logs, events and output.
    """
    named = several(jobs, settings, JOB)
    outcomes = Outcomes(settings, single=len(named) == 1)
    with connect(settings) as client:
        for target in named:
            try:
                job = client.retry(target.namespace, target.name)
            except ShoalError as error:
                outcomes.failed(target, with_nearest(client, target, error))
            else:
                new = Target(JOB, *job.key)
                outcomes.done(new, job, f"is submitted, a copy of {target}")
    outcomes.report()
