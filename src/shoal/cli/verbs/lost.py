"""`shoal lost`: an edit of `spec.lost`, the one thing that only a person can know."""

from __future__ import annotations

import click

from shoal.cli.confirm import confirm
from shoal.cli.edits import change_each
from shoal.cli.options import assume_yes, names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import several
from shoal.client import edits
from shoal.objects.kinds import NODE


@verb("lost")
@names_of("node")
@click.option("--undo", is_flag=True, help="The nodes are there after all.")
@assume_yes
@reports
def command(settings: Settings, nodes: tuple[str, ...], undo: bool, yes: bool) -> None:
    """Declare nodes gone, so that their tasks start elsewhere.

    A node that does not answer may still run its tasks, so nothing is replaced until it answers or a
    person says that it is gone. If it is not, its tasks run twice until it answers again and ends them.
    """
    named = several(nodes, settings, NODE)
    if not undo:
        names = " and ".join(str(target) for target in named)
        confirm(f"Is {names} really gone? Its tasks start again elsewhere.", yes=yes)
    change_each(
        settings,
        named,
        lambda node: edits.lost(node, not undo),
        done="is no longer declared lost" if undo else "is declared lost",
        already="was not declared lost" if undo else "is declared lost already",
    )
