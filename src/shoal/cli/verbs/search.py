"""`shoal search`: a hyperparameter search over a command, with no file written before."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import click

from shoal.cli.failures import Usage, outcome_code, sentence
from shoal.cli.launch.job import Request, build_job, local_cores_millis, task_environment
from shoal.cli.options import (
    CPU,
    DEVICES,
    DURATION,
    KEY_VALUE,
    MEMORY,
    PRIORITY,
    dry_run,
    reports,
    verb,
    whole,
)
from shoal.cli.output import say, write_document, write_names
from shoal.cli.settings import Settings
from shoal.objects.experiment import Experiment, rendered

_POLL_SECONDS = 0.5
_STOPPING = ("asha", "hyperband", "median", "percentile", "threshold")
_ALGORITHMS = ("random", "grid", "tpe", "gp", "cmaes", "qmc", "nsga2", "pbt")


@verb("search", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=RANGE",
    help="A parameter: lr=1e-4..1e-1:log, layers=1..5, drop=0..0.5:step=0.1 or opt=sgd,adam.",
)  # fmt: skip
@click.option("--maximize", multiple=True, metavar="METRIC", help="A metric that should be large.")
@click.option("--minimize", multiple=True, metavar="METRIC", help="A metric that should be small.")
@click.option("--goal", type=float, help="Succeed once a trial reaches this value.")
@click.option("--trials", type=whole(1, 100_000), help="End after so many trials.")
@click.option(
    "--parallel",
    default="auto",
    metavar="N|auto",
    help="Trials at a time; auto: what the cluster starts.",
)
@click.option(
    "--algorithm", type=click.Choice((*_ALGORITHMS, *_STOPPING)), multiple=True,
    help="How points are chosen (random by default), and which trials end early, such as asha.",
)  # fmt: skip
@click.option(
    "--set", "settings_given", type=KEY_VALUE, multiple=True, metavar="NAME=VALUE",
    help="A setting of the algorithm or of early stopping, such as reductionFactor=3.",
)  # fmt: skip
@click.option("--seed", type=whole(0), default=0, help="The same seed gives the same points.")
@click.option("--wall-time", type=DURATION, help="End the search after this time, such as 2h.")
@click.option(
    "--queue", "-q", default="default", metavar="NAME", help="The queue; `default` by default."
)
@click.option(
    "--priority", "-p", type=PRIORITY, default=0, help="A number, or production, normal, experiment."
)
@click.option("--cpu", type=CPU, help="Cores for each trial; 1 by default.")
@click.option("--memory", type=MEMORY, help="Memory for each trial, such as 2Gi; a hard limit.")
@click.option("--gpu", type=DEVICES, default=0, help="GPUs for each trial, or a part of one: 0.5.")
@click.option("--name", default="", metavar="NAME", help="The experiment's name; by default made up.")
@click.option(
    "--env", "-e", "variables", type=KEY_VALUE, multiple=True, metavar="NAME[=VALUE]",
    help="A variable for the trials; without =VALUE it is copied from this shell.",
)  # fmt: skip
@click.option(
    "--detach", "-d", is_flag=True, help="Print the experiment's name and return; it continues."
)
@dry_run
@reports
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    settings: Settings,
    words: tuple[str, ...],
    parameters: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    **said: Any,
) -> int:
    """Search for the best parameters of a command.

    \b
    shoal search --param lr=1e-4..1e-1:log --param opt=sgd,adam --maximize accuracy --trials 40 \\
        --algorithm tpe --algorithm asha -- python train.py --lr {lr} --opt {opt}

    {NAME} in the command is the value of a parameter. The command reports its metrics with
    `from shoal import report; report(accuracy=0.9, step=1)`. Each trial is a job; Ctrl-C cancels all.
    """
    if not words:
        raise Usage(
            "there is no command to run", hint="such as: shoal search ... -- python train.py {lr}"
        )
    if not parameters:
        raise Usage("there is nothing to search: give --param", hint="such as --param lr=1e-4..1e-1:log")
    if not said["maximize"] and not said["minimize"]:
        raise Usage("what is better? give --maximize METRIC or --minimize METRIC")
    made = _document(settings, words, parameters, said)
    if dry_run:
        write_document(settings, made)
        return 0
    return _run(settings, made, detach=detach)


def _document(
    settings: Settings, words: tuple[str, ...], parameters: Iterable[str], said: dict[str, Any]
) -> Experiment:
    """The experiment, checked.

    Raises:
        Invalid: the space, the objectives or a setting is wrong.
    """
    from shoal.objects import codec
    from shoal.objects.admit import admit
    from shoal.objects.experiment_rules import STOPPING, parse_parameter
    from shoal.objects.kinds import EXPERIMENT
    from shoal.objects.nearest import did_you_mean

    space = [parse_parameter(text) for text in parameters]
    job = build_job(
        Request(
            command=words,
            directory=str(Path.cwd()),
            environment=task_environment(os.environ, said["variables"]),
            cpu=said["cpu"],
            options={name: said[name] for name in ("queue", "priority", "memory", "gpu")},
        ),
        settings.namespace,
        [local_cores_millis()],
    )
    template = _escaped(codec.builtins(job)["spec"])
    (role,) = template["roles"]
    names = "|".join(re.escape(each.name) for each in space)
    filled = [re.sub(rf"(?<!\$)\{{({names})\}}", r"${\1}", word) for word in role["command"]]
    role["command"] = filled
    unknown = re.findall(r"(?<![${])\{([A-Za-z_]\w*)\}", " ".join(filled))
    for name in dict.fromkeys(unknown):
        near = did_you_mean(name, [each.name for each in space]) or ": it stays as it is"
        say(f"note: {{{name}}} in the command is not a parameter{near}")
    algorithm = _one(said["algorithm"], _ALGORITHMS, "chooses points") or "random"
    stopping = _one(said["algorithm"], _STOPPING, "ends trials early") or "none"
    given = dict(said["settings_given"])
    of_stopping = {name: value for name, value in given.items() if name in STOPPING[stopping]}
    of_algorithm = {name: value for name, value in given.items() if name not in of_stopping}
    objectives: list[dict[str, Any]] = [
        {"metric": metric, "direction": direction}
        for direction in ("maximize", "minimize")
        for metric in said[direction]
    ]
    if said["goal"] is not None:
        objectives[0]["goal"] = said["goal"]
    parallel = said["parallel"]
    spec: dict[str, Any] = {
        "objectives": objectives,
        "parameters": codec.builtins(space),
        "algorithm": {"name": algorithm, "settings": of_algorithm, "seed": said["seed"]},
        "earlyStopping": {"name": stopping, "settings": of_stopping},
        "parallel": int(parallel) if parallel.isdecimal() else parallel,
        "maxTrials": said["trials"],
        "budget": {} if said["wall_time"] is None else {"wallTime": said["wall_time"].text()},
        "template": {"spec": template},
    }
    name = said["name"] or f"search-{os.urandom(3).hex()}"
    made: Any = admit(
        {"metadata": {"name": name}, "spec": spec}, EXPERIMENT, namespace=settings.namespace
    )
    return made


def _one(given: Sequence[str], known: Sequence[str], what: str) -> str:
    """
    Raises:
        UsageError: several of them are given.
    """
    found = list(dict.fromkeys(each for each in given if each in known))
    if len(found) > 1:
        raise click.UsageError(f"one algorithm {what}: {' or '.join(found)}?")
    return found[0] if found else ""


def _escaped(value: Any) -> Any:
    """With every `${` as a template writes it: what the caller's shell left is not a placeholder."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in cast("list[Any]", value)]
    return value


def _run(settings: Settings, made: Experiment, *, detach: bool) -> int:
    starting = None
    if not settings.remote:
        from shoal.cli.offline.start import Starting

        starting = Starting(settings.home)
    from shoal.cli.settings import connect

    if starting is not None and starting.finish():
        say(f"started Shoal (state in {settings.home}); stop it with: {settings.spelt('down')}")
    with connect(settings) as client:
        created = client.create(made)
        target = f"experiment/{created.metadata.name}"
        if detach:
            if settings.output in ("json", "yaml"):
                write_document(settings, created)
            else:
                write_names([target])
            return 0
        say(f"{target} is submitted; see it with: {settings.spelt(f'describe {target}')}")
        return _follow(client, settings, created)


def _follow(client: Any, settings: Settings, created: Experiment) -> int:
    """Show the trials until the experiment has ended, then the best; Ctrl-C cancels the experiment."""
    from shoal.cli.search_view import SearchView, trials_of
    from shoal.objects.experiment import cancelled
    from shoal.objects.kinds import EXPERIMENT

    namespace, name = created.key
    view = SearchView(client, sys.stderr)
    while True:
        try:
            experiment = client.get(Experiment, namespace, name)
            view.update(experiment, trials_of(client, namespace, name))
            if EXPERIMENT.finished(experiment):
                break
            time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            say(f"cancelling experiment/{name}")
            client.edit(Experiment, namespace, name, cancelled)
    if settings.output in ("json", "yaml"):
        write_document(settings, experiment)
        return outcome_code(experiment)
    say(f"experiment/{name} {sentence(experiment, time.time())}")
    for best in experiment.status.best:
        values = zip(experiment.spec.objectives, best.values, strict=True)
        print(" ".join(f"{objective.metric}={value:.6g}" for objective, value in values), end="  ")
        print(" ".join(f"{key}={rendered(value)}" for key, value in best.parameters.items()))
    if experiment.status.best:
        say(f"all trials: {settings.spelt(f'experiment results {name}')}")
    return outcome_code(experiment)
