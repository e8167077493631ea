"""`shoal cordon`: an edit of `spec.unschedulable`."""

from __future__ import annotations

from shoal.cli.edits import change_each
from shoal.cli.options import names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import NODE


@verb("cordon")
@names_of("node")
@reports
def command(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Let nothing new start on nodes.

    What runs there goes on; `shoal uncordon` takes it back.
    """
    change_each(
        settings,
        several(nodes, settings, NODE),
        lambda node: edits.cordoned(node, True),
        done="cordoned",
        already="is cordoned already",
    )
