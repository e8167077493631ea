"""The kind Experiment: a hyperparameter search over trials, each of which is a Job.

People write `ExperimentSpec`; the experiment controller owns the status, creates one `Trial` for each
point it tries (`shoal.objects.trial`), and one Job for each start of a trial, made from `template`.
In the template `${NAME}` is the value of the parameter NAME, `${trial.name}`, `${trial.number}`,
`${trial.experiment}`, `${trial.namespace}` and `${trial.parent}` describe the trial, and `$${` is a
literal `${`. A value that is one placeholder keeps the parameter's type (`replicas: ${workers}`).

The rules between fields and the substitution are in `experiment_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any, Literal, cast

import msgspec

from shoal.objects.columns import AGE, NAME, Column, age
from shoal.objects.errors import Conflict, Invalid, Problem
from shoal.objects.kind import Description, Kind, Outcome, Reference, Section, Size, State, Verb
from shoal.objects.meta import Condition, Name, Object, Part, Stamp
from shoal.objects.paths import Finding
from shoal.objects.quantities import Seconds

__all__ = [
    "EXPERIMENT",
    "EXPERIMENT_LABEL",
    "FINISHED",
    "NUMBER_LABEL",
    "RANK_LABEL",
    "TRIAL_LABEL",
    "Activation",
    "Algorithm",
    "BestTrial",
    "Budget",
    "Constraint",
    "EarlyStopping",
    "Experiment",
    "ExperimentSpec",
    "ExperimentStatus",
    "Measured",
    "MetricsCollector",
    "Objective",
    "Parameter",
    "TrialCounts",
    "cancelled",
    "rendered",
    "scaled",
    "suspended",
]

EXPERIMENT_LABEL = "shoal.dev/experiment"
"""On trials and their jobs: the experiment's name."""
TRIAL_LABEL = "shoal.dev/trial"
"""On the jobs of a trial: the trial's name."""
NUMBER_LABEL = "shoal.dev/trial-number"
"""On trials and their jobs: the trial's number."""
RANK_LABEL = "shoal.dev/trial-rank"
"""On the jobs of trials with rungs: how many rungs their priority accounts for."""

FINISHED = frozenset({"Succeeded", "Failed", "Cancelled"})
Phase = Literal["Pending", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"]
PHASES = ("Pending", "Running", "Suspended", "Succeeded", "Failed", "Cancelled")
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Measured = Annotated[float, msgspec.Meta(extra={"signed": True})]
"""A measured number of a status, which may be below 0."""
ParameterName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[-A-Za-z0-9_]+(\.[-A-Za-z0-9_]+)*$",
        max_length=100,
        description="a name of letters, digits, dashes, underscores and single dots, at most 100",
    ),
]
MetricName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=100, description="the name of a metric")
]


class Objective(Part, frozen=True, kw_only=True):
    """A metric to minimize or maximize."""

    metric: MetricName
    """The name under which trials report it."""
    direction: Literal["minimize", "maximize"]
    """Which values are better."""
    goal: float | None = None
    """The experiment succeeds once a trial reaches this value."""
    value: Literal["best", "last", "min", "max"] = "best"
    """Which of a trial's reports is the trial's value: the best, the last, the least or the largest."""


class Activation(Part, frozen=True, kw_only=True):
    """When a conditional parameter exists."""

    parameter: ParameterName
    """An earlier parameter of type categorical or int."""
    values: tuple[str, ...]
    """The parameter exists in trials in which the other one has one of these values."""


class Parameter(Part, frozen=True, kw_only=True):
    """One dimension of the search space."""

    name: ParameterName
    """What `${...}` in the template names."""
    type: Literal["float", "int", "categorical"]
    """Numbers between `min` and `max`, whole numbers, or one of `choices`."""
    min: float | None = None
    """The least value; of numbers."""
    max: float | None = None
    """The largest value; of numbers."""
    step: float | None = None
    """Distance of neighbouring values from `min` on; absent: any value (1 for whole numbers)."""
    log: bool = False
    """True: uniform in the logarithm."""
    choices: tuple[str, ...] = ()
    """The values of a categorical parameter."""
    when: Activation | None = None


class Algorithm(Part, frozen=True, kw_only=True):
    """How the next point is chosen."""

    name: Literal["random", "grid", "tpe", "gp", "cmaes", "qmc", "nsga2", "pbt"] = "tpe"
    """Random and grid search, population based training, and Optuna's samplers (extra `search`)."""
    settings: dict[str, Any] = {}
    """Of the algorithm, such as `nStartupTrials: 10` for tpe."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    """The same seed and the same order of results give the same points."""


class EarlyStopping(Part, frozen=True, kw_only=True):
    """Which running trials are ended early, from the values that they report at each step."""

    name: Literal["none", "asha", "hyperband", "median", "percentile", "threshold"] = "none"
    """Successive halving (asynchronous), Hyperband, or a comparison with completed trials or bounds."""
    settings: dict[str, Any] = {}
    """Of the rule, such as `minResource: 1, reductionFactor: 3` for asha."""


class Constraint(Part, frozen=True, kw_only=True):
    """A bound on a metric: trials outside it are not best, and the search avoids their region."""

    metric: MetricName
    """Its last reported value counts."""
    min: float | None = None
    """The least allowed value."""
    max: float | None = None
    """The largest allowed value."""


class MetricsCollector(Part, frozen=True, kw_only=True):
    """How metric points are read out of what trials write. Points that a trial's program reports with
    `shoal.report` count as well, whatever is collected."""

    kind: Literal["none", "StdOut", "File", "TensorFlowEvent", "PrometheusMetric"] = "none"
    """The tasks' output, a file, TensorBoard's event files, or a Prometheus endpoint of the task."""
    path: str = ""
    """Of the file, or of the folder of event files, within `$SHOAL_OUTPUT`; of the endpoint, where it is
    `/metrics` unless given."""
    port: str = ""
    """Of the endpoint: the name of a port of a role; the role's first task is read while it runs."""
    format: Literal["TEXT", "JSON"] = "TEXT"
    """Of a file: `name=value` in lines of text, or one JSON object a line."""
    filters: tuple[str, ...] = ()
    """Regular expressions for TEXT, each with a group for the name and one for the value."""
    metrics: tuple[MetricName, ...] = ()
    """Collected in addition to the metrics of objectives and constraints."""


class Budget(Part, frozen=True, kw_only=True):
    """What ends the search, whatever the number of trials; running trials are then cancelled."""

    wall_time: Seconds | None = None
    """From the first trial on, time of suspension included."""
    node_hours: float | None = None
    """Of all trials together: four nodes for an hour are four."""


class ExperimentSpec(Part, frozen=True, kw_only=True):
    """What people ask for."""

    objectives: tuple[Objective, ...]
    """At least one; several give a Pareto front."""
    parameters: tuple[Parameter, ...]
    """The search space; at least one."""
    template: dict[str, Any] = {}
    """The Job of a trial: `metadata` (labels, annotations) and `spec`, with `${...}` in any field.
    Absent: trials have no jobs, and programs evaluate them (`client.experiments.ask`)."""
    algorithm: Algorithm = Algorithm()
    early_stopping: EarlyStopping = EarlyStopping()
    constraints: tuple[Constraint, ...] = ()
    """Bounds on other metrics."""
    metrics_collector: MetricsCollector = MetricsCollector()
    """Where metric points come from, beside the reports of the trials."""
    parallel: int | str = 1
    """Trials that run at a time; `auto`: as many as the cluster starts at once."""
    max_trials: Count | None = None
    """The experiment ends after so many trials; absent for grid: all of its points."""
    max_failed: Count | None = None
    """The experiment fails once so many trials have failed or reported no objective; absent: never."""
    budget: Budget = Budget()
    points: tuple[dict[str, Any], ...] = ()
    """Tried first: values of some or all parameters; the algorithm chooses the others."""
    warm_start: tuple[Name, ...] = ()
    """Experiments of the namespace; the algorithm learns from their completed trials."""
    keep_outputs: Count | None = None
    """Of so many ended trials `$SHOAL_OUTPUT` is kept, the best by the first objective; the others are
    deleted unless a trial may continue from them. Absent: all are kept."""
    user: str = ""
    """The user that its jobs count for; empty: the experiment's submitter."""
    suspend: bool = False
    """True: its jobs are suspended and no trial starts until it is false again."""
    cancelled: bool = False
    """True: its jobs are cancelled and it ends as Cancelled. Cannot be taken back."""


class TrialCounts(Part, frozen=True, kw_only=True):
    """Trials by what became of them."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    early_stopped: int = 0
    failed: int = 0
    metrics_unavailable: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """All that have ended."""
        return self.total - self.pending - self.running

    @property
    def total(self) -> int:
        """All trials."""
        return sum(int(getattr(self, name)) for name in self.__struct_fields__)


class BestTrial(Part, frozen=True, kw_only=True):
    """A trial that no other trial beats in every objective."""

    trial: str
    number: int = 0
    parameters: dict[str, Any] = {}
    values: tuple[float, ...] = ()
    """In the order of the objectives."""


class ExperimentStatus(Part, frozen=True, kw_only=True):
    """Written by the experiment controller."""

    phase: Phase = "Pending"
    reason: str = ""
    """Why it is in this phase, as a CamelCase code."""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    trials: TrialCounts = TrialCounts()
    suggested: int = 0
    """Trial numbers given out so far; numbers are never used twice."""
    best: tuple[BestTrial, ...] = ()
    """One trial; with several objectives the Pareto front (the first hundred by number)."""
    node_seconds: float = 0.0
    """What counts against `budget.nodeHours`."""
    started: Stamp = 0.0
    finished: Stamp = 0.0
    observed_generation: int = 0
    writers: dict[str, int] = {}


class Experiment(Object, frozen=True, kw_only=True):
    """A hyperparameter search: trials over a search space, each of them a Job."""

    spec: ExperimentSpec
    status: ExperimentStatus = ExperimentStatus()
    kind: str = "Experiment"


def cancelled(experiment: Experiment) -> Experiment:
    """End it for good, with its trials. Nothing changes for one that has finished."""
    if experiment.status.phase in FINISHED:
        return experiment
    return _with_spec(experiment, cancelled=True)


def suspended(experiment: Experiment, suspend: bool) -> Experiment:
    """Suspend its jobs and start no trials, or continue.

    Raises:
        Conflict: it has finished.
    """
    _check_active(experiment, "suspended" if suspend else "resumed")
    return _with_spec(experiment, suspend=suspend)


def scaled(
    experiment: Experiment, replicas: int | None, *, role: str = "", min_replicas: int | None = None
) -> Experiment:
    """Run another number of trials at a time.

    Raises:
        Conflict: it has finished.
        Invalid: a role or a minimum is named, which experiments do not have.
    """
    _check_active(experiment, "scaled")
    if role or min_replicas is not None or replicas is None:
        raise Invalid("an experiment is scaled with --replicas: the trials that run at a time")
    if replicas < 1:
        message = f"{replicas} is less than 1"
        raise Invalid("an experiment runs at least one trial at a time", (Problem("replicas", message),))
    return _with_spec(experiment, parallel=replicas)


def rendered(value: Any) -> str:
    """A parameter's value as commands and tables show it: the shortest text that reads back equal."""
    return repr(value) if isinstance(value, float) else str(value)


def _check_active(experiment: Experiment, verb: str) -> None:
    phase = experiment.status.phase
    if phase in FINISHED:
        ended = "been cancelled" if phase == "Cancelled" else phase.lower()
        raise Conflict(f"experiment {experiment.metadata.name} has {ended} and cannot be {verb}")


def _with_spec(experiment: Experiment, **fields: Any) -> Experiment:
    return msgspec.structs.replace(experiment, spec=msgspec.structs.replace(experiment.spec, **fields))


def _check(experiment: Experiment) -> Iterable[Finding]:
    from shoal.objects.experiment_rules import check  # only where objects are admitted

    return check(experiment)


def _check_change(old: Experiment, new: Experiment) -> Iterable[Finding]:
    from shoal.objects.experiment_rules import check_change

    return check_change(old, new)


def _references(experiment: Experiment) -> Iterator[Reference]:
    spec: Any = experiment.spec.template.get("spec")
    named = cast("dict[str, Any]", spec) if isinstance(spec, dict) else {}
    queue = named.get("queue", "default")
    if isinstance(queue, str) and "${" not in queue:
        yield Reference(("spec", "template", "spec", "queue"), "Queue", queue)
    for at, name in enumerate(experiment.spec.warm_start):
        yield Reference(("spec", "warmStart", at), "Experiment", name)


def _phase(experiment: Experiment, _now: float) -> str:
    if experiment.metadata.deleted:
        return "Deleting"
    return _ending(experiment) or experiment.status.phase


def _ending(experiment: Experiment) -> str:
    """Cancelling or Suspending, from the edit of spec until the controller has acted."""
    if experiment.status.phase in FINISHED:
        return ""
    if experiment.spec.cancelled:
        return "Cancelling"
    return "Suspending" if experiment.spec.suspend and experiment.status.phase != "Suspended" else ""


def _trials(experiment: Experiment, _now: float) -> str:
    counts, most = experiment.status.trials, experiment.spec.max_trials
    return f"{counts.ended}/{most}" if most is not None else str(counts.ended)


def _best(experiment: Experiment, _now: float) -> str:
    objectives = experiment.spec.objectives
    if len(objectives) != 1:
        return f"{len(experiment.status.best)} trials"
    values = [f"{value:.6g}" for each in experiment.status.best for value in each.values]
    return f"{objectives[0].metric}={values[0]}" if values else "-"


def _state(experiment: Experiment) -> State:
    status, counts = experiment.status, experiment.status.trials
    phase = _phase(experiment, 0.0)
    running = status.phase == "Running"
    return State(
        phase=phase,
        code=status.reason,
        message=status.message,
        evidence={"trials": msgspec.to_builtins(counts), "suggested": status.suggested},
        since=status.finished if status.phase in FINISHED else status.started,
        size=Size(counts.running, experiment.spec.parallel, "trials")
        if running and isinstance(experiment.spec.parallel, int)
        else None,
    )


def _outcome(experiment: Experiment) -> Outcome | None:
    status = experiment.status
    results: dict[str, Literal["succeeded", "failed", "cancelled"]] = {
        "Succeeded": "succeeded",
        "Failed": "failed",
        "Cancelled": "cancelled",
    }
    if status.phase not in results:
        return None
    return Outcome(
        result=results[status.phase],
        started=status.started,
        finished=status.finished,
        message=status.message if status.phase == "Failed" else "",
    )


def _describe(experiment: Experiment, _all: object, now: float) -> Description:
    spec, status = experiment.spec, experiment.status
    counts = status.trials
    shown = [
        f"{name.replace('_', ' ')} {getattr(counts, name)}"
        for name in counts.__struct_fields__
        if getattr(counts, name)
    ]
    objectives = ", ".join(
        f"{each.direction} {each.metric}" + ("" if each.goal is None else f" (goal {each.goal:g})")
        for each in spec.objectives
    )
    lines = [
        ("Phase", _phase(experiment, now)),
        ("Message", status.message or "-"),
        ("Objectives", objectives),
        ("Algorithm", f"{spec.algorithm.name}, seed {spec.algorithm.seed}"),
        ("Early stopping", spec.early_stopping.name),
        ("Parallel", str(spec.parallel)),
        ("Trials", f"{_trials(experiment, now)} ended" + (f": {', '.join(shown)}" if shown else "")),
        ("Node hours", f"{status.node_seconds / 3600:.3g}"),
        ("Elapsed", age(status.started, status.finished or now)),
    ]
    names = [each.name for each in spec.parameters]
    best = [
        (
            each.trial,
            *(f"{value:.6g}" for value in each.values),
            *(rendered(each.parameters.get(name, "-")) for name in names),
        )
        for each in status.best
    ]
    space = [(each.name, each.type, _range(each)) for each in spec.parameters]
    return Description(
        lines=lines,
        sections=(
            Section("Search space", ("PARAMETER", "TYPE", "VALUES"), space),
            Section("Best", ("TRIAL", *(each.metric for each in spec.objectives), *names), best),
        ),
    )


def _range(parameter: Parameter) -> str:
    if parameter.type == "categorical":
        text = ", ".join(parameter.choices)
    else:
        text = f"{parameter.min:g} to {parameter.max:g}"
        text += f", step {parameter.step:g}" if parameter.step is not None else ""
        text += ", log" if parameter.log else ""
    if parameter.when is not None:
        text += f" (when {parameter.when.parameter} is {' or '.join(parameter.when.values)})"
    return text


EXPERIMENT = Kind(
    name="Experiment",
    plural="experiments",
    aliases=("exp",),
    struct=Experiment,
    status_writers={"experiment": ("*",)},
    check=_check,
    check_change=_check_change,
    references=_references,
    columns=(
        NAME,
        Column("PHASE", _phase),
        Column("TRIALS", _trials),
        Column("RUNNING", lambda obj, now: str(obj.status.trials.running)),
        Column("FAILED", lambda obj, now: str(obj.status.trials.failed)),
        Column("BEST", _best),
        AGE,
        Column("ALGORITHM", lambda obj, now: obj.spec.algorithm.name, wide=True),
        Column("STOPPING", lambda obj, now: obj.spec.early_stopping.name, wide=True),
        Column("PARALLEL", lambda obj, now: str(obj.spec.parallel), wide=True),
        Column("SUBMITTER", lambda obj, now: obj.metadata.submitter or "-", wide=True),
        Column("MESSAGE", lambda obj, now: obj.status.message or "-", wide=True),
    ),
    describe=_describe,
    phases=PHASES,
    state=_state,
    outcome=_outcome,
    verbs={
        "cancel": Verb(cancelled, "is being cancelled", "has finished already"),
        "suspend": Verb(partial(suspended, suspend=True), "is being suspended", "is suspended already"),
        "resume": Verb(partial(suspended, suspend=False), "resumed", "is not suspended"),
        "scale": Verb(scaled, "scaled", "has that size already"),
    },
)
