"""The verbs that edit the spec of objects: of jobs `shoal suspend`, `resume`, `cancel` and `scale`;
of nodes `shoal cordon`, `uncordon`, `drain` and `lost`. And `shoal retry`, which submits a finished
job again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from shoal.cli.edits import Outcomes, change_each, confirm, supporting
from shoal.cli.failures import Usage
from shoal.cli.options import assume_yes, names_of, reports, verb, whole
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import Target, existing, several, with_nearest
from shoal.objects.errors import Conflict, NotFound, ShoalError
from shoal.objects.kinds import JOB, NODE
from shoal.objects.node import Node

_COUNT = whole(1)


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


@verb("scale")
@names_of("job")
@click.option("--replicas", type=_COUNT, help="Exactly this many tasks (at most, for elastic roles).")
@click.option("--min", "least", type=_COUNT, help="The fewest tasks to run with.")
@click.option("--max", "most", type=_COUNT, help="The most tasks to run with.")
@click.option("--role", default="", metavar="NAME", help="Which role, where there are several.")
@assume_yes
@reports
def scale(
    settings: Settings,
    jobs: tuple[str, ...],
    replicas: int | None,
    least: int | None,
    most: int | None,
    role: str,
    yes: bool,
) -> None:
    """Change how many tasks a job has.

    --replicas sets the number; --min and --max change the range of an elastic role. The tasks of an
    elastic job continue while others join or leave. A running gang of fixed size (such as
    torchrun's) restarts all of its tasks from their checkpoint, so scale asks first.
    """
    if (replicas is None) == (least is None and most is None):
        raise Usage("give either --replicas N, or --min A, --max B or both")
    if least is not None and most is not None and least > most:
        raise Usage(f"--min {least} is more than --max {most}")

    named = supporting(jobs, settings, "scale", JOB)
    _ask_before_restarts(settings, named, yes=yes)
    change_each(settings, named, "scale", replicas=replicas or most, role=role, min_replicas=least)


def _ask_before_restarts(settings: Settings, named: Sequence[Target], *, yes: bool) -> None:
    """Ask before all tasks of running jobs are restarted; a job that is not there fails later."""
    if yes:
        return
    restarting: list[str] = []
    with connect(settings) as client:
        for target in named:
            with suppress(NotFound):
                if target.kind.verbs["scale"].restarts(existing(client, target)):
                    restarting.append(str(target))
    if restarting:
        names, they = " and ".join(restarting), "its" if len(restarting) == 1 else "their"
        confirm(f"{names} restarts all of {they} tasks for another size. Scale?", yes=False)
