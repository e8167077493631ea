"""`shoal suspend`: an edit of `spec.suspend`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import JOB


@verb("suspend")
@names_of("job")
@reports
def command(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Stop jobs for now; resume continues them.

    Their tasks are stopped and what they held is given to others; nothing of the job is lost but what
    its tasks had not saved.
    """
    change_each(
        settings,
        several(jobs, settings, JOB),
        lambda job: edits.suspended(job, True),
        done="is being suspended",
        already="is suspended already",
    )
