"""`shoal resume`: an edit of `spec.suspend`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import JOB


@verb("resume")
@names_of("job")
@reports
def command(settings: Settings, jobs: tuple[str, ...]) -> None:
    """Let suspended jobs go on."""
    change_each(
        settings,
        several(jobs, settings, JOB),
        lambda job: edits.suspended(job, False),
        done="resumed",
        already="is not suspended",
    )
