"""A search while it runs: on a terminal a table of its trials that is drawn again in place, elsewhere a
line for each trial that has ended."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal.cli.charts import sparkline
from shoal.cli.output import decoded, terminal_width
from shoal.objects.errors import NotFound
from shoal.objects.experiment import EXPERIMENT_LABEL, Experiment, rendered
from shoal.objects.kinds import TRIAL
from shoal.objects.text import printable
from shoal.objects.trial import ENDED, Trial

if TYPE_CHECKING:
    from shoal.client import Client

__all__ = ["SearchView", "trials_of"]

_CURVE_WIDTH = 16
_MOST_ROWS = 40
_OTHER_LINES = 4
"""Of the terminal: the heading, the titles, and what is written below."""


def trials_of(client: Client, namespace: str, experiment: str) -> list[Trial]:
    """The trials of an experiment, by number."""
    found: list[Trial] = []
    cursor, selector = "", f"{EXPERIMENT_LABEL}={experiment}"
    while True:
        page = client.list(TRIAL, namespace=namespace, selector=selector, cursor=cursor)
        found += decoded(page.records)
        cursor = page.cursor
        if not cursor:
            return sorted(found, key=lambda each: each.spec.number)


class SearchView:
    """Draws to one stream. `update` is called again and again, `close` at the end."""

    def __init__(self, client: Client, stream: Any) -> None:
        self._client = client
        self._stream = stream
        self._drawn = 0
        """Lines that the next drawing replaces."""
        self._said: set[str] = set()
        self._curves: dict[str, _Curve] = {}
        """Uid of a job to the points of the first objective."""

    def update(self, experiment: Experiment, trials: Sequence[Trial]) -> None:
        """Show how far the experiment is."""
        width = terminal_width(self._stream)
        if width is None:
            self._write_ended(trials)
            return
        shown = self._chosen(experiment, trials)
        for trial in shown:
            self._read_curve(experiment, trial)
        lines = [_heading(experiment), *self._table(experiment, shown)]
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        text = "".join(f"{printable(line)[:width]}\n" for line in lines)
        self._stream.write(back + text)
        self._stream.flush()
        self._drawn = len(lines)

    def _write_ended(self, trials: Sequence[Trial]) -> None:
        for trial in sorted(trials, key=lambda each: each.status.order):
            if trial.status.order and trial.metadata.name not in self._said:
                self._said.add(trial.metadata.name)
                self._stream.write(f"{printable(_line(trial))}\n")
        self._stream.flush()

    def _chosen(self, experiment: Experiment, trials: Sequence[Trial]) -> list[Trial]:
        """As many trials as fit: those that run first, then the best, then those that ended last."""
        try:
            room = os.get_terminal_size(self._stream.fileno()).lines - _OTHER_LINES
        except OSError:
            room = 20
        best = {each.number for each in experiment.status.best}
        ranked = sorted(
            trials,
            key=lambda t: (t.status.phase in ENDED, t.spec.number not in best, -t.status.order),
        )
        few = ranked[: max(1, min(room, _MOST_ROWS))]
        return sorted(few, key=lambda each: each.spec.number)

    def _read_curve(self, experiment: Experiment, trial: Trial) -> None:
        uid = trial.status.job_uid
        curve = self._curves.setdefault(uid, _Curve()) if uid else None
        if curve is None or curve.complete:
            return
        metric = experiment.spec.objectives[0].metric
        try:
            points = self._client.metrics(
                trial.metadata.namespace, trial.status.job, uid=uid, after=curve.order
            )
            for point in points:
                curve.order = point.order
                if point.name == metric:
                    curve.values.append(point.value)
        except NotFound:
            return  # nothing has been reported yet
        curve.complete = trial.status.phase in ENDED

    def _table(self, experiment: Experiment, trials: Sequence[Trial]) -> list[str]:
        names = [each.name for each in experiment.spec.parameters]
        titles = ["TRIAL", "PHASE", experiment.spec.objectives[0].metric.upper(), "STEP", "CURVE"]
        best = {each.number for each in experiment.status.best}
        rows = [[*titles, *map(str.upper, names)]]
        for trial in trials:
            curve = self._curves.get(trial.status.job_uid)
            value = trial.status.values[0] if trial.status.values else trial.status.latest
            rows.append(
                [
                    f"{trial.spec.number}{'*' if trial.spec.number in best else ''}",
                    trial.status.phase,
                    "-" if value is None else f"{value:.6g}",
                    str(trial.status.step or "-"),
                    sparkline(curve.values, _CURVE_WIDTH) if curve is not None else "",
                    *(_short(trial.spec.parameters.get(name, "-")) for name in names),
                ]
            )
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        return [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]


class _Curve:
    """The points of one trial that have been read so far."""

    def __init__(self) -> None:
        self.values: list[float | None] = []
        self.order = 0
        self.complete = False


def _heading(experiment: Experiment) -> str:
    status, most = experiment.status, experiment.spec.max_trials
    counts = status.trials
    text = f"{counts.ended}{f' of {most}' if most else ''} trials have ended, {counts.running} run"
    if counts.early_stopped:
        text += f", {counts.early_stopped} were stopped early"
    if status.best:
        first = status.best[0]
        names = (each.metric for each in experiment.spec.objectives)
        values = " ".join(f"{n}={v:.6g}" for n, v in zip(names, first.values, strict=True))
        text += f"; best (*) trial {first.number}: {values}"
    return text


def _line(trial: Trial) -> str:
    values = " ".join(f"{value:.6g}" for value in trial.status.values) or "-"
    point = " ".join(f"{key}={rendered(value)}" for key, value in trial.spec.parameters.items())
    why = f"  {trial.status.message}" if trial.status.message else ""
    return f"trial {trial.spec.number}  {trial.status.phase}  {values}  {point}{why}"


def _short(value: Any) -> str:
    """A parameter in a narrow column; `shoal experiment results` shows all digits."""
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else rendered(value)
