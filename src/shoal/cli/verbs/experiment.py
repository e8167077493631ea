"""`shoal experiment`: what a search has found, as a table, as pictures, and for the next program."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.failures import Usage
from shoal.cli.options import names_of, reports, tabular, verb
from shoal.cli.output import Table, emit, say, write_csv, write_json
from shoal.cli.search_view import trials_of
from shoal.cli.settings import Settings, connect
from shoal.cli.targets import existing, one
from shoal.objects.errors import NotFound
from shoal.objects.experiment import EXPERIMENT_LABEL, Experiment, rendered
from shoal.objects.kinds import EXPERIMENT

if TYPE_CHECKING:
    from shoal.client import Client
    from shoal.objects.trial import Trial

_PICTURES = ("history", "parallel", "importance", "pareto")


@click.group("experiment")
def experiment() -> None:
    """Show a search's trials, plots and best parameters."""


@verb("results")
@names_of("experiment", single=True)
@click.option("--katib", is_flag=True, help="Conditions, trials and the optimal trial in Katib's words.")
@tabular
def _results(settings: Settings, experiment: str, katib: bool) -> None:
    """List all trials with their parameters and values, the best first."""
    with connect(settings) as client:
        found, trials = _read(client, settings, experiment)
    if katib:
        _write_katib(found, trials)
        return
    rows = [_result(found, each) for each in _ranked(found, trials)]
    if settings.output == "json":
        write_json({"items": rows})
    elif settings.output == "csv":
        names, metrics = _columns(found)
        write_csv(
            ["trial", "number", "phase", *metrics, *names, "step", "started", "finished", "nodeSeconds"],
            [
                [
                    row["trial"], row["number"], row["phase"], *(row["values"].get(m) for m in metrics),
                    *(row["parameters"].get(n) for n in names), row["step"], row["started"],
                    row["finished"], row["nodeSeconds"],
                ]
                for row in rows
            ],
        )  # fmt: skip
    elif rows:
        _table(found, rows)
    else:
        say(f"experiment/{found.metadata.name} has no trials yet")


@verb("best")
@names_of("experiment", single=True)
@click.option("--env", is_flag=True, help="As NAME=VALUE lines for a shell: set -a; eval the output.")
@reports
def _best(settings: Settings, experiment: str, env: bool) -> None:
    """Show the best trial, or with several objectives those that none beats in all.

    \b
    shoal experiment best digits --env > best.env
    """
    with connect(settings) as client:
        found: Experiment = existing(client, one(experiment, settings, EXPERIMENT))
    best = found.status.best
    if not best:
        raise NotFound(
            f"experiment/{found.metadata.name} has no trial with a value yet",
            hint=f"see what its trials do: shoal get trials -l {EXPERIMENT_LABEL}={found.metadata.name}",
        )
    first, *others = best
    if env:
        if others:
            raise Usage(
                f"experiment/{found.metadata.name} has {len(best)} best trials: none is better in all",
                hint="choose one: shoal experiment results NAME",
            )
        for name, value in first.parameters.items():
            print(f"{_variable(name)}={shlex.quote(rendered(value))}")
        return
    names, metrics = _columns(found)
    rows = [
        [
            each.trial,
            *(f"{value:.6g}" for value in each.values),
            *(rendered(each.parameters.get(name, "-")) for name in names),
        ]
        for each in best
    ]
    emit(settings, {"items": best}, ["TRIAL", *map(str.upper, metrics), *map(str.upper, names)], rows)


@verb("plot")
@names_of("experiment", single=True)
@click.option(
    "--kind", "-k", "kinds", multiple=True, type=click.Choice(_PICTURES), metavar="NAME",
    help="history, parallel, importance or pareto; may be repeated. All that apply by default.",
)  # fmt: skip
@click.option("--png", type=click.Path(dir_okay=False), metavar="FILE", help="Write a picture instead.")
def _plot(settings: Settings, experiment: str, kinds: tuple[str, ...], png: str | None) -> None:
    """Draw a search: values over trials, parameters against values, importance, Pareto front.

    In the terminal, or with --png as a picture (needs matplotlib: pip install 'shoal[simulate]').
    """
    from shoal.cli import charts

    with connect(settings) as client:
        found, trials = _read(client, settings, experiment)
    several = len(found.spec.objectives) > 1
    drawn = kinds or tuple(each for each in _PICTURES if each != "pareto" or several)
    if "pareto" in drawn and not several:
        raise Usage(
            "a Pareto front needs several objectives", hint="shoal experiment plot NAME -k history"
        )
    data = charts.search_data(found, [each for each in trials if each.status.values])
    if not data.numbers:
        say(f"experiment/{found.metadata.name} has no trial with a value yet")
        return
    if png is not None:
        from shoal.cli.figures import write_figure

        write_figure(Path(png), data, drawn)
        say(f"wrote {png}")
        return
    for kind in drawn:
        print("\n".join(getattr(charts, f"draw_{kind}")(data)), end="\n\n")


for _each in (_results, _best, _plot):
    experiment.add_command(_each)


def _read(client: Client, settings: Settings, name: str) -> tuple[Experiment, list[Trial]]:
    """The experiment and its trials by number."""
    target = one(name, settings, EXPERIMENT)
    found: Experiment = existing(client, target)
    return found, trials_of(client, target.namespace, target.name)


def _columns(found: Experiment) -> tuple[list[str], list[str]]:
    """Names of the parameters and of the objectives' metrics."""
    return [each.name for each in found.spec.parameters], [e.metric for e in found.spec.objectives]


def _ranked(found: Experiment, trials: list[Trial]) -> list[Trial]:
    """The best first, by the first objective; those without a value last."""
    sign = 1 if found.spec.objectives[0].direction == "minimize" else -1
    return sorted(
        trials,
        key=lambda each: (
            not each.status.values,
            sign * each.status.values[0] if each.status.values else 0.0,
            each.spec.number,
        ),
    )


def _result(found: Experiment, trial: Trial) -> dict[str, Any]:
    status = trial.status
    metrics = [each.metric for each in found.spec.objectives]
    return {
        "trial": trial.metadata.name,
        "number": trial.spec.number,
        "phase": status.phase,
        "values": dict(zip(metrics, status.values, strict=False)),
        "parameters": trial.spec.parameters,
        "step": status.step,
        "started": status.started,
        "finished": status.finished,
        "nodeSeconds": status.node_seconds,
        "job": status.job,
        "message": status.message,
    }


def _table(found: Experiment, rows: list[dict[str, Any]]) -> None:
    names, metrics = _columns(found)
    Table(["TRIAL", "PHASE", *map(str.upper, metrics), *map(str.upper, names), "STEP"]).write(
        [
            [
                row["trial"],
                row["phase"],
                *(f"{row['values'][m]:.6g}" if m in row["values"] else "-" for m in metrics),
                *(rendered(row["parameters"].get(name, "-")) for name in names),
                str(row["step"] or "-"),
            ]
            for row in rows
        ]
    )


def _write_katib(found: Experiment, trials: list[Trial]) -> None:
    from shoal.compat import katib
    from shoal.objects.yaml import to_yaml

    meta = found.metadata
    document = {
        "apiVersion": katib.VERSIONS[0],
        "kind": "Experiment",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "status": katib.status_of(found, trials),
    }
    print(to_yaml(document), end="")


def _variable(name: str) -> str:
    """The name of a parameter as a variable of a shell: `--learning.rate` is LEARNING_RATE."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()
    return f"_{plain}" if plain[:1].isdigit() else plain
