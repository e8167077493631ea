"""`shoal drain`: an edit of `spec.unschedulable` and a taint, `spec.taints`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import NODE


@verb("drain")
@names_of("node")
@reports
def command(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Cordon nodes and move their tasks away.

    The tasks get their grace period and start elsewhere as soon as there is room; that costs their jobs
    none of their restarts. `shoal uncordon` takes it back.
    """
    change_each(
        settings,
        several(nodes, settings, NODE),
        edits.drained,
        done="is being drained",
        already="is drained already",
    )
