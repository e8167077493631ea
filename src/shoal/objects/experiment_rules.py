"""What must hold between the fields of an Experiment, and how its template becomes the Job of a trial.

The tables of algorithms and early stopping rules with their settings are here, because admission checks
them without the library that carries them out. `job_document` substitutes the values of a point into
the template; admission tries it with one point of the space, so a template that no trial could be
created from is refused with the Job's own messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from shoal.objects.codec import changed_fields
from shoal.objects.errors import Invalid
from shoal.objects.experiment import (
    FINISHED,
    Algorithm,
    EarlyStopping,
    Experiment,
    ExperimentSpec,
    Parameter,
    rendered,
)
from shoal.objects.meta import API_VERSION, is_name
from shoal.objects.nearest import did_you_mean
from shoal.objects.paths import Finding, Path

__all__ = [
    "ALGORITHMS",
    "LARGEST_GRID",
    "STOPPING",
    "Setting",
    "check",
    "check_change",
    "check_search",
    "grid_sizes",
    "job_document",
    "parse_parameter",
    "read_value",
    "settings_of",
]

LARGEST_GRID = 100_000
LONGEST_NAME = 40
"""Of an experiment: the names of its trials and jobs begin with it."""

_PLACEHOLDER = re.compile(r"\$(\$)?\{([^{}]*)\}")
_TRIAL_FACTS = ("trial.name", "trial.number", "trial.experiment", "trial.namespace", "trial.parent")
_TEXTS = frozenset({"command", "args", "env", "workingDirectory", "image", "labels", "annotations"})
"""Fields that hold texts: a number is substituted into them as text."""
_MANY = 1000
"""Parameters, points or choices of one experiment."""


@dataclass(frozen=True)
class Setting:
    """One setting of an algorithm or of an early stopping rule."""

    kind: Literal["int", "float", "bool", "text"]
    default: int | float | bool | str | None = None
    """None: the algorithm chooses."""
    least: float = 0
    most: float = math.inf
    choices: tuple[str, ...] = ()
    required: bool = False

    def read(self, value: Any) -> int | float | bool | str:
        """The value that a document gives, which may be a text (`"10"`).

        Raises:
            ValueError: it is none; the message completes "NAME ...".
        """
        if self.kind == "text":
            if value not in self.choices:
                raise ValueError(f"wants one of {', '.join(self.choices)}; found {value!r}")
            return value
        if self.kind == "bool":
            words = {"true": True, "false": False}
            if isinstance(value, bool):
                return value
            if str(value).lower() not in words:
                raise ValueError(f"wants true or false; found {value!r}")
            return words[str(value).lower()]
        number = _number(value)
        whole = self.kind == "int"
        if number is None or (whole and not number.is_integer()):
            raise ValueError(f"wants a {'whole ' if whole else ''}number; found {value!r}")
        if not self.least <= number <= self.most:
            upper = "" if self.most == math.inf else f" and at most {self.most:g}"
            raise ValueError(f"must be at least {self.least:g}{upper}; found {value!r}")
        return int(number) if whole else number


_STARTUP = Setting("int", None, 1, 100_000)

ALGORITHMS: Mapping[str, Mapping[str, Setting]] = {
    "random": {},
    "grid": {"pointsPerFloat": Setting("int", 5, 2, 1000)},
    "tpe": {
        "nStartupTrials": _STARTUP,
        "nEiCandidates": Setting("int", None, 1, 100_000),
        "multivariate": Setting("bool", default=True),
        "group": Setting("bool", default=True),
        "constantLiar": Setting("bool", default=True),
    },
    "gp": {"nStartupTrials": _STARTUP},
    "cmaes": {
        "nStartupTrials": _STARTUP,
        "sigma": Setting("float", None, 1e-6, 1e6),
        "populationSize": Setting("int", None, 2, 10_000),
    },
    "qmc": {
        "type": Setting("text", "sobol", choices=("sobol", "halton")),
        "scramble": Setting("bool", default=True),
    },
    "nsga2": {
        "populationSize": Setting("int", None, 2, 10_000),
        "mutationProbability": Setting("float", None, 0, 1),
        "crossoverProbability": Setting("float", None, 0, 1),
        "swappingProbability": Setting("float", None, 0, 1),
    },
    "pbt": {
        "populationSize": Setting("int", 8, 2, 10_000),
        "truncation": Setting("float", 0.25, 0.01, 0.5),
        "resampleProbability": Setting("float", 0.25, 0, 1),
        "perturbation": Setting("float", 1.2, 1.0001, 10),
    },
}
"""Algorithm to its settings."""

_COMPARED: Mapping[str, Setting] = {
    "minTrials": Setting("int", 3, 1, 100_000),
    "startStep": Setting("int", 4, 1),
}

STOPPING: Mapping[str, Mapping[str, Setting]] = {
    "none": {},
    "asha": {
        "minResource": Setting("int", 1, 1),
        "maxResource": Setting("int", None, 1),
        "reductionFactor": Setting("int", 3, 2, 100),
    },
    "hyperband": {
        "minResource": Setting("int", 1, 1),
        "maxResource": Setting("int", None, 1, required=True),
        "reductionFactor": Setting("int", 3, 2, 100),
    },
    "median": _COMPARED,
    "percentile": {**_COMPARED, "percentile": Setting("float", 25, 0, 100)},
    "threshold": {
        "lower": Setting("float", None, -math.inf),
        "upper": Setting("float", None, -math.inf),
        "startStep": Setting("int", 1, 1),
    },
}
"""Early stopping rule to its settings."""


def settings_of(chosen: Algorithm | EarlyStopping) -> dict[str, Any]:
    """All settings with their defaults, by name; those that are given were checked at admission."""
    table = (ALGORITHMS if isinstance(chosen, Algorithm) else STOPPING)[chosen.name]
    values: dict[str, Any] = {name: setting.default for name, setting in table.items()}
    given = ((name, value) for name, value in chosen.settings.items() if name in table)
    return values | {name: table[name].read(value) for name, value in given}


def grid_sizes(spec: ExperimentSpec) -> list[int]:
    """How many values grid search tries of each parameter."""
    per_float = settings_of(spec.algorithm).get("pointsPerFloat", 5)
    return [_grid_size(parameter, int(per_float)) for parameter in spec.parameters]


def read_value(parameter: Parameter, value: Any) -> int | float | str:
    """A value of the parameter as a document gives it (numbers may be texts).

    Raises:
        ValueError: it is outside the range; the message completes "NAME ...".
    """
    if parameter.type == "categorical":
        text = rendered(value)
        if text not in parameter.choices:
            raise ValueError(f"wants one of {', '.join(parameter.choices)}; found {value!r}")
        return text
    number = _number(value)
    if number is None or (parameter.type == "int" and not number.is_integer()):
        kind = "whole number" if parameter.type == "int" else "number"
        raise ValueError(f"wants a {kind}; found {value!r}")
    low, high = cast("float", parameter.min), cast("float", parameter.max)
    if not low <= number <= high:
        raise ValueError(f"lies between {low:g} and {high:g}; found {value!r}")
    return int(number) if parameter.type == "int" else number


def parse_parameter(text: str) -> Parameter:
    """The parameter that a text describes: `lr=1e-4..1e-1:log`, `layers=1..5`, `layers=2..8:step=2`,
    `drop=0.0..0.5:step=0.1`, `opt=sgd,adam`. A range between whole numbers is of type int.

    Raises:
        Invalid: it describes none.
    """
    name, equals, rest = text.partition("=")
    example = "such as lr=1e-4..1e-1:log, layers=1..5 or opt=sgd,adam"
    if not name or not equals or not rest:
        raise Invalid(f"{text!r} is not NAME=RANGE or NAME=CHOICES", hint=example)
    values, _, scale = rest.partition(":") if ".." in rest else (rest, "", "")
    low, dots, high = values.partition("..")
    if not dots:
        choices = tuple(each.strip() for each in values.split(","))
        return Parameter(name=name, type="categorical", choices=choices)
    ends = _number(low), _number(high)
    if ends[0] is None or ends[1] is None:
        raise Invalid(f"{name}: {values!r} is not a range of numbers", hint=example)
    step: float | None = None
    log = False
    for part in filter(None, scale.split(":")):
        word, _, number = part.partition("=")
        if part == "log":
            log = True
        elif word == "step" and (step := _number(number)) is not None:
            continue
        else:
            raise Invalid(f"{name}: {part!r} is neither log nor step=NUMBER", hint=example)
    whole = all(re.fullmatch(r"[-+]?[0-9]+", each) for each in (low, high))
    whole = whole and (step is None or step.is_integer())
    return Parameter(
        name=name, type="int" if whole else "float", min=ends[0], max=ends[1], step=step, log=log
    )


def job_document(
    experiment: Experiment, name: str, number: int, parameters: Mapping[str, Any], parent: str = ""
) -> dict[str, Any]:
    """The document of the Job that runs a point: the template with its placeholders substituted.

    A placeholder of a conditional parameter that does not exist at this point becomes an empty text;
    an entry of `command` or `args` that consists of it alone is left out.
    """
    facts = {
        "trial.name": name,
        "trial.number": number,
        "trial.experiment": experiment.metadata.name,
        "trial.namespace": experiment.metadata.namespace,
        "trial.parent": parent,
    }
    absent = {each.name: None for each in experiment.spec.parameters if each.name not in parameters}
    made = _substituted(experiment.spec.template, {**absent, **facts, **parameters}, text=False)
    given: dict[str, Any] = made.get("metadata") or {}
    metadata = {key: given[key] for key in ("labels", "annotations") if key in given}
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": name, "namespace": experiment.metadata.namespace, **metadata},
        "spec": made.get("spec", {}),
    }


def check(experiment: Experiment) -> Iterable[Finding]:
    """Everything wrong with an Experiment that has the right types."""
    name = experiment.metadata.name
    if len(name) > LONGEST_NAME:
        message = f"an experiment's name has at most {LONGEST_NAME} characters; found {len(name)}"
        yield Finding(("metadata", "name"), message)
    found = list(check_search(experiment))
    yield from found
    if not experiment.spec.template:
        yield from _asked(experiment.spec)
    elif not any(finding.path[:2] == ("spec", "parameters") for finding in found):
        yield from _template(experiment)


def check_search(experiment: Experiment) -> Iterator[Finding]:
    """Everything wrong with the search itself: objectives, space, algorithm and counts."""
    spec = experiment.spec
    yield from _objectives(spec)
    space = [*_parameters(spec)]
    yield from space
    yield from _settings(("spec", "algorithm"), spec.algorithm)
    yield from _settings(("spec", "earlyStopping"), spec.early_stopping)
    yield from _counts(spec)
    yield from _collector(spec)
    if not space:
        yield from _combination(spec)
        yield from _points(spec)


def check_change(old: Experiment, new: Experiment) -> Iterator[Finding]:
    """What may change: `parallel`, `maxTrials`, `maxFailed`, `budget`, `suspend` and `cancelled`."""
    changed = set(changed_fields(old.spec, new.spec))
    editable = {"parallel", "maxTrials", "maxFailed", "budget", "suspend", "cancelled"}
    for name in sorted(changed - editable):
        message = "cannot be changed after creation; maxTrials, parallel, maxFailed and budget can"
        yield Finding(("spec", name), message)
    if old.status.phase in FINISHED and (allowed := changed & editable):
        message = f"the experiment has ended as {old.status.phase}"
        for name in sorted(allowed):
            yield Finding(("spec", name), f"{message}: warmStart continues from it in a new one")
    elif old.spec.cancelled and not new.spec.cancelled:
        yield Finding(("spec", "cancelled"), "a cancelled experiment cannot be taken back")


def _objectives(spec: ExperimentSpec) -> Iterator[Finding]:
    path: Path = ("spec", "objectives")
    if not spec.objectives:
        yield Finding(path, "an experiment has at least one objective: a metric and its direction")
    seen: set[str] = set()
    for at, each in enumerate(spec.objectives):
        if each.metric in seen:
            yield Finding((*path, at, "metric"), f"the metric {each.metric} is an objective already")
        seen.add(each.metric)
        if each.goal is not None and not math.isfinite(each.goal):
            yield Finding((*path, at, "goal"), "a goal is a finite number")
    if len(spec.objectives) > 1 and spec.early_stopping.name != "none":
        message = "early stopping compares one objective, and there are several"
        yield Finding(("spec", "earlyStopping", "name"), message, (path,))
    for at, each in enumerate(spec.constraints):
        here: Path = ("spec", "constraints", at)
        if each.min is None and each.max is None:
            yield Finding(here, "a constraint has a min, a max or both")
        elif each.min is not None and each.max is not None and each.min > each.max:
            yield Finding((*here, "min"), f"{each.min:g} is above max, {each.max:g}")
        if each.metric in seen:
            yield Finding((*here, "metric"), f"{each.metric} is an objective: it needs no constraint")


def _parameters(spec: ExperimentSpec) -> Iterator[Finding]:
    path: Path = ("spec", "parameters")
    if not spec.parameters:
        yield Finding(path, "the search space is empty: name at least one parameter")
    earlier: dict[str, Parameter] = {}
    for at, each in enumerate(spec.parameters):
        here = (*path, at)
        if each.name in earlier:
            yield Finding((*here, "name"), f"a parameter {each.name} is listed already")
        if each.name.startswith("trial."):
            yield Finding((*here, "name"), "names that begin with trial. describe the trial")
        yield from _categorical(each, here) if each.type == "categorical" else _numeric(each, here)
        if each.when is not None:
            yield from _activation(each, earlier, (*here, "when"))
        earlier[each.name] = each


def _categorical(parameter: Parameter, path: Path) -> Iterator[Finding]:
    if not parameter.choices:
        yield Finding((*path, "choices"), "a categorical parameter has at least one choice")
    if len(parameter.choices) > _MANY:
        yield Finding((*path, "choices"), f"at most {_MANY}; found {len(parameter.choices)}")
    if len(set(parameter.choices)) < len(parameter.choices):
        yield Finding((*path, "choices"), "a choice is listed twice")
    for name in ("min", "max", "step"):
        if getattr(parameter, name) is not None:
            yield Finding((*path, name), "a categorical parameter has choices, and no range")
    if parameter.log:
        yield Finding((*path, "log"), "a categorical parameter has no scale")


def _numeric(parameter: Parameter, path: Path) -> Iterator[Finding]:
    low, high, step = parameter.min, parameter.max, parameter.step
    if parameter.choices:
        yield Finding((*path, "choices"), "a number has min and max; only categorical has choices")
    if low is None or high is None:
        for name in ("min", "max"):
            if getattr(parameter, name) is None:
                yield Finding((*path, name), f"is required for type {parameter.type}")
        return
    if not (math.isfinite(low) and math.isfinite(high)) or max(abs(low), abs(high)) > 2**53:
        yield Finding((*path, "min"), "a range lies between -2^53 and 2^53")
        return
    if low > high:
        yield Finding((*path, "min"), f"{low:g} is above max, {high:g}", ((*path, "max"),))
    if parameter.type == "int":
        for name in ("min", "max", "step"):
            value = getattr(parameter, name)
            if value is not None and not float(value).is_integer():
                yield Finding((*path, name), f"wants a whole number for type int; found {value:g}")
    if step is not None and not step > 0:
        yield Finding((*path, "step"), f"must be greater than 0; found {step:g}")
    if parameter.log and low <= 0:
        message = f"a logarithmic scale starts above 0; min is {low:g}"
        yield Finding((*path, "log"), message, ((*path, "min"),))
    if parameter.log and step is not None:
        yield Finding((*path, "step"), "a logarithmic scale has no step", ((*path, "log"),))


def _activation(parameter: Parameter, earlier: Mapping[str, Parameter], path: Path) -> Iterator[Finding]:
    when = parameter.when
    assert when is not None
    other = earlier.get(when.parameter)
    if other is None:
        near = did_you_mean(when.parameter, earlier)
        yield Finding((*path, "parameter"), f"no earlier parameter is called {when.parameter}{near}")
        return
    if other.type == "float":
        yield Finding((*path, "parameter"), f"{other.name} is a float: name a categorical or an int")
        return
    if not when.values:
        yield Finding((*path, "values"), "names at least one value")
    for at, value in enumerate(when.values):
        try:
            read_value(other, value)
        except (ValueError, TypeError) as error:
            yield Finding((*path, "values", at), f"{other.name} {error}")


def _settings(path: Path, chosen: Algorithm | EarlyStopping) -> Iterator[Finding]:
    table = (ALGORITHMS if isinstance(chosen, Algorithm) else STOPPING)[chosen.name]
    path = (*path, "settings")
    for name, value in chosen.settings.items():
        if name not in table:
            known = f"; known are {', '.join(table)}" if table else "; it has none"
            hint = did_you_mean(name, table) or known
            yield Finding((*path, name), f"{chosen.name} has no setting {name}{hint}")
            continue
        try:
            table[name].read(value)
        except ValueError as error:
            yield Finding((*path, name), str(error))
            return
    for name, setting in table.items():
        if setting.required and name not in chosen.settings:
            yield Finding((*path, name), f"is required for {chosen.name}")
    if chosen.name == "threshold" and not {"lower", "upper"} & chosen.settings.keys():
        yield Finding(path, "threshold needs lower, upper or both")
    if any(each not in table for each in chosen.settings):
        return
    values = settings_of(chosen)
    least, most = values.get("minResource"), values.get("maxResource")
    if least is not None and most is not None and least > most:
        yield Finding((*path, "minResource"), f"{least} is above maxResource, {most}")


def _counts(spec: ExperimentSpec) -> Iterator[Finding]:
    if isinstance(spec.parallel, str):
        if spec.parallel != "auto":
            yield Finding(("spec", "parallel"), f"wants a number or auto; found {spec.parallel!r}")
    elif not 1 <= spec.parallel <= 10_000:
        message = f"runs between 1 and 10000 trials at a time; found {spec.parallel}"
        yield Finding(("spec", "parallel"), message)
    most, failed = spec.max_trials, spec.max_failed
    if most is not None and failed is not None and failed > most:
        message = f"{failed} is more than maxTrials, {most}"
        yield Finding(("spec", "maxFailed"), message, (("spec", "maxTrials"),))
    budget = spec.budget
    if budget.node_hours is not None and not budget.node_hours > 0:
        message = f"must be greater than 0; found {budget.node_hours:g}"
        yield Finding(("spec", "budget", "nodeHours"), message)
    if budget.wall_time is not None and not budget.wall_time > 0:
        yield Finding(("spec", "budget", "wallTime"), "must be greater than 0")
    ends = (most, budget.wall_time, budget.node_hours)
    if spec.algorithm.name != "grid" and all(each is None for each in ends):
        message = "nothing ends the experiment: give maxTrials or a budget"
        yield Finding(("spec", "maxTrials"), message, (("spec", "budget"),))


def _collector(spec: ExperimentSpec) -> Iterator[Finding]:
    collector, path = spec.metrics_collector, ("spec", "metricsCollector")
    reads_files = collector.kind in ("File", "TensorFlowEvent")
    if reads_files and not collector.path:
        yield Finding((*path, "path"), f"the collector {collector.kind} wants a path in $SHOAL_OUTPUT")
    scrapes = collector.kind == "PrometheusMetric"
    ports = _port_names(spec.template)
    if scrapes and collector.port not in ports:
        near = did_you_mean(collector.port, ports) or f"; the template has {', '.join(ports) or 'none'}"
        yield Finding((*path, "port"), f"wants the name of a port of a role{near}")
    if collector.port and not scrapes:
        yield Finding((*path, "port"), "a port is for the collector PrometheusMetric")
    if scrapes and collector.path and not collector.path.startswith("/"):
        yield Finding((*path, "path"), "the path of an endpoint begins with /, such as /metrics")
    if (
        not scrapes
        and collector.path
        and (collector.path.startswith("/") or ".." in collector.path.split("/"))
    ):
        yield Finding((*path, "path"), "is relative to $SHOAL_OUTPUT, and stays in it")
    if collector.filters and (collector.kind not in ("StdOut", "File") or collector.format == "JSON"):
        yield Finding((*path, "filters"), "filters are for TEXT of StdOut or of a File")
    for at, text in enumerate(collector.filters):
        try:
            groups = re.compile(text).groups
        except re.error as error:
            yield Finding((*path, "filters", at), f"is no regular expression: {error}")
            continue
        if groups < 2:
            message = "wants a group for the name and one for the value, such as ([\\w-]+)=([0-9.]+)"
            yield Finding((*path, "filters", at), message)


def _port_names(template: Mapping[str, Any]) -> list[str]:
    """Of the roles of a template of any shape."""
    found: list[str] = []
    for role in _items(template.get("spec"), "roles"):
        found += [str(port.get("name")) for port in _items(role, "ports")]
    return found


def _items(value: Any, key: str) -> list[dict[str, Any]]:
    listed: Any = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    entries = cast("list[Any]", listed) if isinstance(listed, list) else []
    return [cast("dict[str, Any]", each) for each in entries if isinstance(each, dict)]


def _combination(spec: ExperimentSpec) -> Iterator[Finding]:
    """What an algorithm cannot do with this space or these objectives."""
    name, path = spec.algorithm.name, ("spec", "algorithm", "name")
    numeric = [each for each in spec.parameters if each.type != "categorical"]
    if name == "cmaes" and len(numeric) < 2:
        yield Finding(path, "cmaes needs at least two numeric parameters")
    if name in ("cmaes", "pbt") and len(spec.objectives) > 1:
        yield Finding(path, f"{name} has one objective; tpe, gp, nsga2 and random take several")
    if name == "pbt" and any(each.when is not None for each in spec.parameters):
        yield Finding(path, "pbt has no conditional parameters")
    if name == "pbt" and spec.early_stopping.name != "none":
        message = "pbt replaces bad trials itself: it has no early stopping"
        yield Finding(("spec", "earlyStopping", "name"), message)
    if name != "grid":
        return
    if any(each.when is not None for each in spec.parameters):
        yield Finding(path, "grid has no conditional parameters")
        return
    if _findings_in(spec.algorithm):
        return
    total = math.prod(grid_sizes(spec))
    if total > LARGEST_GRID:
        message = f"a grid has at most {LARGEST_GRID} points; this one has {total}"
        yield Finding(("spec", "parameters"), message)
    elif spec.max_trials is not None and spec.max_trials > total:
        message = f"{spec.max_trials} is more than the {total} points of the grid"
        yield Finding(("spec", "maxTrials"), message, (("spec", "parameters"),))


def _findings_in(chosen: Algorithm) -> bool:
    return any(True for _ in _settings(("spec",), chosen))


def _points(spec: ExperimentSpec) -> Iterator[Finding]:
    known = {each.name: each for each in spec.parameters}
    for at, point in enumerate(spec.points):
        path: Path = ("spec", "points", at)
        if spec.algorithm.name in ("grid", "pbt"):
            yield Finding(path, f"{spec.algorithm.name} chooses all points itself")
            return
        for name, value in point.items():
            if name not in known:
                near = did_you_mean(name, known)
                yield Finding((*path, name), f"there is no parameter {name}{near}")
                continue
            try:
                read_value(known[name], value)
            except ValueError as error:
                yield Finding((*path, name), f"{name} {error}")
    for at, name in enumerate(spec.warm_start):
        if not is_name(name):
            yield Finding(("spec", "warmStart", at), f"{name!r} is not a name of an experiment")


def _asked(spec: ExperimentSpec) -> Iterator[Finding]:
    """What needs jobs, in an experiment without a template."""
    message = "needs jobs: give a template, or leave it out for client.experiments.ask"
    if spec.algorithm.name == "pbt":
        yield Finding(("spec", "algorithm", "name"), f"pbt {message}")
    if spec.early_stopping.name != "none":
        yield Finding(("spec", "earlyStopping", "name"), f"early stopping {message}")
    if spec.constraints:
        yield Finding(("spec", "constraints"), f"a constraint {message}")
    if spec.metrics_collector.kind != "none":
        yield Finding(("spec", "metricsCollector", "kind"), f"a collector {message}")
    if spec.budget.node_hours is not None:
        yield Finding(("spec", "budget", "nodeHours"), f"a budget of node hours {message}")
    if spec.keep_outputs is not None:
        yield Finding(("spec", "keepOutputs"), f"an output {message}")


def _template(experiment: Experiment) -> Iterator[Finding]:
    spec, path = experiment.spec, ("spec", "template")
    names = [each.name for each in spec.parameters]
    used: set[str] = set()
    findings: list[Finding] = []

    def visit(text: str, at: Path) -> None:
        for match in _PLACEHOLDER.finditer(text):
            escaped, name = match.groups()
            if escaped:
                continue
            if name not in names and name not in _TRIAL_FACTS:
                near = did_you_mean(name, [*names, *_TRIAL_FACTS])
                hint = near or "; write $${ for a literal ${"
                findings.append(Finding(at, f"there is no parameter for ${{{name}}}{hint}"))
            used.add(name)

    _visit(spec.template, path, visit)
    for at, name in enumerate(names):
        if name not in used:
            message = f"no field of the template uses ${{{name}}}"
            findings.append(Finding(("spec", "parameters", at, "name"), message, (path,)))
    for name in spec.template:
        if name not in ("metadata", "spec"):
            near = did_you_mean(name, ("metadata", "spec"))
            findings.append(Finding((*path, name), f"a template has metadata and spec{near}"))
    yield from findings
    if findings:
        return
    from shoal.objects.admit import check_document  # it reads the registry, which reads this kind

    point = {each.name: _some_value(each) for each in spec.parameters}
    document = job_document(experiment, f"{experiment.metadata.name[:40]}-0", 0, point)
    _, problems = check_document(document, namespace=experiment.metadata.namespace)
    for each in problems:
        yield Finding((*path, *each.path), each.message, tuple((*path, *p) for p in each.involves))


def _visit(value: Any, path: Path, visit: Callable[[str, Path], None]) -> None:
    if isinstance(value, str):
        visit(value, path)
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            _visit(inner, (*path, key), visit)
    elif isinstance(value, list):
        for at, inner in enumerate(cast("list[Any]", value)):
            _visit(inner, (*path, at), visit)


def _some_value(parameter: Parameter) -> Any:
    if parameter.type == "categorical":
        return parameter.choices[0]
    low = cast("float", parameter.min)
    return int(low) if parameter.type == "int" else low


def _substituted(value: Any, values: Mapping[str, Any], *, text: bool) -> Any:
    if isinstance(value, str):
        return _filled(value, values, text=text)
    if isinstance(value, dict):
        return {
            key: _substituted(inner, values, text=text or key in _TEXTS)
            for key, inner in cast("dict[str, Any]", value).items()
        }
    if isinstance(value, list):
        made = (_substituted(inner, values, text=text) for inner in cast("list[Any]", value))
        return [each for each in made if each is not None]
    return value


def _filled(value: str, values: Mapping[str, Any], *, text: bool) -> Any:
    whole = _PLACEHOLDER.fullmatch(value)
    if whole and not whole[1] and whole[2] in values:
        found = values[whole[2]]
        return found if found is None or not text else rendered(found)

    def fill(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        found = values.get(match[2])
        return "" if found is None else rendered(found)

    return _PLACEHOLDER.sub(fill, value)


def _grid_size(parameter: Parameter, per_float: int) -> int:
    if parameter.type == "categorical":
        return len(parameter.choices)
    low, high = cast("float", parameter.min), cast("float", parameter.max)
    step = parameter.step or (1.0 if parameter.type == "int" and not parameter.log else None)
    if step is not None:
        return int((high - low) / step + 1e-9) + 1
    if parameter.type == "int":
        return min(per_float, int(high - low) + 1)
    return 1 if low == high else per_float


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
