"""`shoal suspend`, `resume`, `cancel`: edits of a job's `spec.suspend` and `spec.cancelled`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.objects.job_kind import cancelled, suspended
from shoal.objects.kinds import JOB

__all__ = ["cancel", "resume", "suspend"]


@verb("suspend")
@names_of("job")
@reports
def suspend(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Stop jobs for now; resume continues them.

    Their tasks are stopped and the resources are free for other jobs. Only what the tasks had not
    saved is lost.
    """
    change_each(
        settings,
        several(jobs, settings, JOB),
        lambda job: suspended(job, True),
        done="is being suspended",
        already="is suspended already",
    )


@verb("resume")
@names_of("job")
@reports
def resume(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Continue suspended jobs."""
    change_each(
        settings,
        several(jobs, settings, JOB),
        lambda job: suspended(job, False),
        done="resumed",
        already="is not suspended",
    )


@verb("cancel")
@names_of("job")
@reports
def cancel(settings: Settings, jobs: tuple[str, ...]) -> None:
    """End jobs for good; they stay listed.

    Their tasks get SIGTERM, and SIGKILL after the grace period. The jobs, their logs and their events
    stay until they are deleted.
    """
    change_each(
        settings,
        several(jobs, settings, JOB),
        cancelled,
        done="is being cancelled",
        already="has finished already",
    )
