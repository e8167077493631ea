"""`shoal metrics`: the metric points of a job, summed up in a table or in full."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import click

from shoal.cli.charts import number, sparkline
from shoal.cli.options import complete_names, tabular, verb
from shoal.cli.output import Table, say, write_csv, write_json
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import one
from shoal.objects.kinds import JOB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.client.reports import MetricPoint

_COLUMNS = ("name", "value", "step", "at", "role", "index", "incarnation", "order")


@verb("metrics")
@click.argument("job", shell_complete=complete_names("job"))
@click.option("--metric", "-m", multiple=True, metavar="NAME", help="Only this metric; may be repeated.")
@tabular
def command(settings: Settings, job: str, metric: tuple[str, ...]) -> None:
    """Show the metric points that a job has reported.

    A program reports them with `from shoal import report; report(loss=0.3, step=10)`. The table has a
    row per metric and task; json and csv have every point.
    """
    target = one(job, settings, JOB)
    with connect(settings) as client:
        points = list(client.metrics(target.namespace, target.name))
    points = [each for each in points if not metric or each.name in metric]
    if settings.output == "json":
        write_json({"items": points})
    elif settings.output == "csv":
        write_csv(_COLUMNS, ([getattr(each, name) for name in _COLUMNS] for each in points))
    elif points:
        Table(["METRIC", "TASK", "LAST", "MIN", "MAX", "STEP", "POINTS", "HISTORY"]).write(_rows(points))
    else:
        say(
            f"{target} has no metric points; report them in its program: "
            "from shoal import report; report(loss=0.3, step=10)"
        )


def _rows(points: Sequence[MetricPoint]) -> list[list[str]]:
    series: defaultdict[tuple[str, str, int], list[MetricPoint]] = defaultdict(list)
    for each in points:
        series[each.name, each.role, each.index].append(each)
    return [
        _row(name, f"{role}-{index}", series[name, role, index]) for name, role, index in sorted(series)
    ]


def _row(name: str, task: str, points: Sequence[MetricPoint]) -> list[str]:
    finite = [each.value for each in points if each.value is not None]
    last, step = points[-1].value, points[-1].step
    shown = [number(value) for value in (last, min(finite, default=None), max(finite, default=None))]
    steps = "-" if step is None else str(step)
    return [name, task, *shown, steps, str(len(points)), sparkline([each.value for each in points])]
