"""`shoal suspend`, `resume`, `cancel`: edits of a job's `spec.suspend` and `spec.cancelled`."""

from __future__ import annotations

from shoal.cli.edits import change_each, supporting
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
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
