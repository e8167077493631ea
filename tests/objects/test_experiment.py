"""The rules of the kinds Experiment and Trial, and how a template becomes a Job."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from shoal.objects.admit import admit, check_update
from shoal.objects.errors import Conflict, Invalid
from shoal.objects.experiment import (
    BestTrial,
    Experiment,
    ExperimentStatus,
    TrialCounts,
    cancelled,
    scaled,
    suspended,
)
from shoal.objects.experiment_rules import grid_sizes, job_document, settings_of
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.objects.status_rules import check_numbers
from shoal.objects.trial import Rung, Trial, TrialStatus

LR = {"name": "lr", "type": "float", "min": 1e-4, "max": 0.1, "log": True}
LAYERS = {"name": "layers", "type": "int", "min": 1, "max": 5}
OPT = {"name": "opt", "type": "categorical", "choices": ["sgd", "adam"]}
MOMENTUM = {
    "name": "momentum", "type": "float", "min": 0.5, "max": 0.9,
    "when": {"parameter": "opt", "values": ["sgd"]},
}  # fmt: skip


def document(name: str = "digits", command: Any = ("train", "${lr}"), **spec: Any) -> dict[str, Any]:
    template = {"spec": {"roles": [{"command": list(command)}]}}
    least = {
        "objectives": [{"metric": "accuracy", "direction": "maximize"}],
        "parameters": [LR],
        "maxTrials": 4,
        "template": template,
    }
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Experiment",
        "metadata": {"name": name},
        "spec": least | spec,
    }


def experiment(**spec: Any) -> Experiment:
    made = admit(document(**spec))
    assert isinstance(made, Experiment)
    return made


def problems(**given: Any) -> list[str]:
    with pytest.raises(Invalid) as raised:
        admit(document(**given))
    return [str(each) for each in raised.value.problems]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"parameters": []}, "the search space is empty"),
        ({"parameters": [{**LR, "min": 1}]}, "1 is above max, 0.1"),
        ({"parameters": [{**LR, "min": 0}]}, "a logarithmic scale starts above 0; min is 0"),
        ({"parameters": [{"name": "lr", "type": "int", "min": 0.5, "max": 2}]}, "wants a whole number"),
        ({"parameters": [{"name": "lr", "type": "float", "min": 0}]}, "max: is required for type float"),
        ({"parameters": [{"name": "lr", "type": "categorical"}]}, "at least one choice"),
        ({"parameters": [LR, LR]}, "a parameter lr is listed already"),
        ({"parameters": [MOMENTUM]}, "no earlier parameter is called opt"),
        ({"command": ("train", "${lr}", "${lrr}")}, "no parameter for ${lrr}; did you mean lr?"),
        ({"command": ("train",)}, "no field of the template uses ${lr}"),
        ({"command": "nonsense", "template": {"spc": {"a": "${lr}"}}}, "did you mean spec?"),
        ({"template": {"spec": {"roles": [{"comand": ["${lr}"]}]}}}, "did you mean command?"),
        ({"algorithm": {"name": "tpee"}}, "did you mean tpe?"),
        ({"algorithm": {"settings": {"nStartupTrial": 3}}}, "did you mean nStartupTrials?"),
        ({"algorithm": {"settings": {"nStartupTrials": "many"}}}, "wants a whole number; found 'many'"),
        ({"earlyStopping": {"name": "hyperband"}}, "maxResource: is required for hyperband"),
        ({"earlyStopping": {"name": "threshold"}}, "threshold needs lower, upper or both"),
        ({"objectives": []}, "at least one objective"),
        (
            {"objectives": [{"metric": "a", "direction": "maximize", "goal": "high"}]},
            "goal: wants a number; found the text 'high'",
        ),
        ({"algorithm": {"name": "grid"}, "maxTrials": 6}, "6 is more than the 5 points of the grid"),
        (
            {
                "algorithm": {"name": "grid", "settings": {"pointsPerFloat": 1000}},
                "parameters": [LR, {**LR, "name": "b"}],
                "command": ("${lr}", "${b}"),
            },
            "a grid has at most 100000 points; this one has 1000000",
        ),
        ({"algorithm": {"name": "cmaes"}}, "cmaes needs at least two numeric parameters"),
        ({"parallel": "many"}, "wants a number or auto; found 'many'"),
        ({"parallel": 0}, "runs between 1 and 10000 trials at a time; found 0"),
        ({"maxTrials": None}, "nothing ends the experiment: give maxTrials or a budget"),
        ({"maxFailed": 5}, "5 is more than maxTrials, 4"),
        ({"points": [{"lr": 7}]}, "lr lies between 0.0001 and 0.1; found 7"),
        ({"points": [{"lrr": 7}]}, "there is no parameter lrr; did you mean lr?"),
        ({"name": "a" * 41}, "at most 40 characters; found 41"),
        ({"metricsCollector": {"kind": "Prometheus"}}, "did you mean PrometheusMetric?"),
        (
            {"metricsCollector": {"kind": "PrometheusMetric", "port": "m"}},
            "the name of a port of a role",
        ),
        (
            {"metricsCollector": {"kind": "StdOut", "port": "m"}},
            "a port is for the collector Prometheus",
        ),
        ({"constraints": [{"metric": "memory"}]}, "a constraint has a min, a max or both"),
    ],
)
def test_bad_input_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    found = problems(**given)
    assert len(found) == 1, found
    assert sentence in found[0]


def test_a_template_may_use_parameters_in_any_field() -> None:
    made = experiment(
        parameters=[LR, LAYERS, OPT],
        template={
            "metadata": {"labels": {"opt": "${opt}"}},
            "spec": {
                "roles": [
                    {
                        "replicas": "${layers}",
                        "command": ["train", "--lr=${lr}", "${layers}"],
                        "env": {"WHO": "${trial.experiment}-${trial.number}", "SHELL": "$${HOME}"},
                        "resources": {"cpu": "${layers}", "memory": "${layers}Gi"},
                    }
                ]
            },
        },
    )
    made_job = job_document(made, "digits-7", 7, {"lr": 1e-05, "layers": 3, "opt": "sgd"})
    job = admit(made_job)
    assert made_job["metadata"] == {
        "name": "digits-7", "namespace": "default", "labels": {"opt": "sgd"},
    }  # fmt: skip
    (role,) = job.spec.roles
    assert (role.replicas, role.command) == (3, ("train", "--lr=1e-05", "3"))
    assert role.env == {"WHO": "digits-7", "SHELL": "${HOME}"}
    assert (role.resources.cpu, role.resources.memory) == (3000, 3 << 30)


def test_a_conditional_parameter_that_does_not_exist_leaves_its_argument_out() -> None:
    made = experiment(
        parameters=[OPT, MOMENTUM], command=("t", "${opt}", "${momentum}", "m=${momentum}")
    )
    document = job_document(made, "x-0", 0, {"opt": "adam"})
    assert document["spec"]["roles"][0]["command"] == ["t", "adam", "m="]


def test_settings_have_defaults_and_take_texts() -> None:
    made = experiment(algorithm={"name": "tpe", "settings": {"nStartupTrials": "7", "group": "false"}})
    settings = settings_of(made.spec.algorithm)
    assert (settings["nStartupTrials"], settings["group"], settings["multivariate"]) == (7, False, True)


def test_the_points_of_a_grid_are_counted() -> None:
    made = experiment(
        parameters=[LR, LAYERS, OPT, {"name": "s", "type": "float", "min": 0, "max": 1, "step": 0.25}],
        command=("${lr}", "${layers}", "${opt}", "${s}"),
        algorithm={"name": "grid", "settings": {"pointsPerFloat": 3}},
        maxTrials=None,
    )
    assert grid_sizes(made.spec) == [3, 5, 2, 5]
    assert math.prod(grid_sizes(made.spec)) == 150


def test_what_may_change() -> None:
    old = experiment()
    for change in ({"maxTrials": 9}, {"parallel": 3}, {"budget": {"nodeHours": 2}}, {"suspend": True}):
        check_update(old, experiment(**change))
    with pytest.raises(Invalid, match=r"spec\.parameters: cannot be changed after creation"):
        check_update(old, experiment(parameters=[{**LR, "max": 0.2}]))
    ended = msgspec.structs.replace(old, status=ExperimentStatus(phase="Succeeded"))
    with pytest.raises(Invalid, match="the experiment has ended as Succeeded"):
        check_update(ended, experiment(maxTrials=9))
    point: Any = admit(
        {"metadata": {"name": "t"}, "kind": "Trial", "apiVersion": "shoal.dev/v1alpha1",
         "spec": {"experiment": "digits", "number": 0}}
    )  # fmt: skip
    with pytest.raises(Invalid, match="a trial cannot be changed"):
        check_update(
            point, msgspec.structs.replace(point, spec=msgspec.structs.replace(point.spec, number=1))
        )


def test_verbs_are_edits_of_spec() -> None:
    made = experiment()
    assert cancelled(made).spec.cancelled
    assert suspended(made, True).spec.suspend
    assert scaled(made, 7).spec.parallel == 7
    with pytest.raises(Invalid, match="at least one trial at a time"):
        scaled(made, 0)
    ended = msgspec.structs.replace(made, status=ExperimentStatus(phase="Failed"))
    assert cancelled(ended) is ended
    with pytest.raises(Conflict, match="has failed and cannot be resumed"):
        suspended(ended, False)


def test_rows_and_outcome() -> None:
    status = ExperimentStatus(
        phase="Succeeded",
        trials=TrialCounts(succeeded=3, failed=1),
        best=(BestTrial(trial="digits-2", number=2, parameters={"lr": 0.01}, values=(0.97,)),),
    )
    made = msgspec.structs.replace(experiment(), status=status)
    row = {column.title: column.value(made, 0.0) for column in EXPERIMENT.columns}
    assert (row["TRIALS"], row["FAILED"], row["BEST"]) == ("4/4", "1", "accuracy=0.97")
    outcome = EXPERIMENT.outcome
    assert outcome is not None
    ended = outcome(made)
    assert ended is not None
    assert ended.result == "succeeded"
    assert EXPERIMENT.describe is not None
    best = EXPERIMENT.describe(made, (), 0.0).sections[1]
    assert best.rows == [("digits-2", "0.97", "0.01")]


def test_measured_values_may_be_negative_and_counts_may_not() -> None:
    good = TrialStatus(values=(-1.5,), latest=-2.0, rungs=(Rung(rung=0, value=-3.0),))
    assert list(check_numbers(good)) == []
    assert len(list(check_numbers(TrialStatus(step=-1)))) == 1
    trial = msgspec.structs.replace(
        Trial(metadata=msgspec.structs.replace(experiment().metadata), spec=_spec()), status=good
    )
    row = {column.title: column.value(trial, 0.0) for column in TRIAL.columns}
    assert (row["VALUE"], row["PARAMETERS"]) == ("-1.5", "lr=1e-05 opt=sgd")


def _spec() -> Any:
    from shoal.objects.trial import TrialSpec

    return TrialSpec(experiment="digits", number=0, parameters={"lr": 1e-5, "opt": "sgd"})
