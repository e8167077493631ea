"""`shoal cordon`, `uncordon`, `drain`, `lost`: edits of a node's `spec.unschedulable`, `spec.taints` and
`spec.lost`."""

from __future__ import annotations

import click

from shoal.cli.connection import connect
from shoal.cli.edits import change_each, confirm, supporting
from shoal.cli.options import assume_yes, names_of, reports, verb
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, existing
from shoal.objects.errors import Conflict
from shoal.objects.kinds import NODE
from shoal.objects.node import Node


@verb("cordon")
@names_of("node")
@reports
def cordon(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Start no new tasks on nodes.

    Tasks that run there continue; `shoal uncordon` takes it back.
    """
    change_each(settings, supporting(nodes, settings, "cordon", NODE), "cordon")


@verb("uncordon")
@names_of("node")
@reports
def uncordon(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Let tasks start on nodes again.

    Takes back `cordon` and `drain`.
    """
    change_each(settings, supporting(nodes, settings, "uncordon", NODE), "uncordon")


@verb("drain")
@names_of("node")
@reports
def drain(settings: Settings, nodes: tuple[str, ...]) -> None:
    """Cordon nodes and move their tasks away.

    The tasks get their grace period and start elsewhere as soon as there is room; their jobs use none
    of their restarts for it. `shoal uncordon` takes it back.
    """
    change_each(settings, supporting(nodes, settings, "drain", NODE), "drain")


@verb("lost")
@names_of("node")
@click.option("--undo", is_flag=True, help="The nodes are there after all.")
@click.option("--force", is_flag=True, help="Also nodes that answer: their tasks run twice for a while.")
@assume_yes
@reports
def lost(settings: Settings, nodes: tuple[str, ...], undo: bool, force: bool, yes: bool) -> None:
    """Declare nodes gone, so that their tasks start elsewhere.

    A node that does not answer may still run its tasks, so nothing is replaced until it answers or a
    person says that it is gone. If it is not, its tasks run twice until it answers again and ends them.
    """
    named = supporting(nodes, settings, "found" if undo else "lost", NODE)
    if not undo and not force:
        _refuse_healthy(settings, named)
    if not undo:
        names = " and ".join(str(target) for target in named)
        confirm(f"Is {names} really gone? Its tasks start again elsewhere.", yes=yes)
    change_each(settings, named, "found" if undo else "lost")


def _refuse_healthy(settings: Settings, named: list[Target]) -> None:
    """A node that answers is not lost: declaring it so starts its tasks twice.

    Raises:
        Conflict: a node is Ready.
    """
    with connect(settings) as client:
        for target in named:
            node: Node = existing(client, target)
            if any(c.type == "Ready" and c.status == "True" for c in node.status.conditions):
                raise Conflict(
                    f"{target} is Ready: it answers, so its tasks would run twice",
                    hint=f"to move its tasks away: {settings.spelt(f'drain {target}')}; "
                    "--force declares it lost all the same",
                )
