"""`shoal cancel`: an edit of `spec.cancelled`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import JOB


@verb("cancel")
@names_of("job")
@reports
def command(settings: Settings, jobs: tuple[str, ...]) -> None:
    """End jobs for good; they stay listed.

    Their tasks get SIGTERM, and SIGKILL after the grace period. The jobs, their logs and their events
    stay until they are deleted.
    """
    change_each(
        settings,
        several(jobs, settings, JOB),
        edits.cancelled,
        done="is being cancelled",
        already="has finished already",
    )
