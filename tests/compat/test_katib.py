from __future__ import annotations

import contextlib
import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.published import DATA

from shoal.cli.manifests import read_manifests
from shoal.cli.settings import Settings
from shoal.compat import Converted, converted, is_foreign
from shoal.compat.katib import ALGORITHMS, status_of
from shoal.objects.admit import admit
from shoal.objects.errors import Invalid
from shoal.objects.experiment import BestTrial, Experiment, ExperimentStatus
from shoal.objects.experiment_rules import job_document
from shoal.objects.meta import Metadata
from shoal.objects.trial import Trial, TrialSpec, TrialStatus

MANIFESTS = DATA / "manifests" / "kubeflow-katib-v1beta1"


def document(**spec: Any) -> dict[str, Any]:
    """An experiment with one parameter of each type; `spec` replaces parts of it."""
    text = """
    apiVersion: kubeflow.org/v1beta1
    kind: Experiment
    metadata: {name: mnist, namespace: team-a}
    spec:
      objective:
        {type: maximize, goal: 0.99, objectiveMetricName: accuracy, additionalMetricNames: [loss]}
      algorithm: {algorithmName: random}
      parallelTrialCount: 3
      maxTrialCount: 12
      maxFailedTrialCount: 3
      parameters:
      - name: lr
        parameterType: double
        feasibleSpace: {min: "0.01", max: "0.1", distribution: logUniform}
      - {name: num-layers, parameterType: int, feasibleSpace: {min: "2", max: "8", step: "2"}}
      - {name: optimizer, parameterType: categorical, feasibleSpace: {list: [sgd, adam]}}
      - {name: width, parameterType: discrete, feasibleSpace: {list: ["64", "128"]}}
      trialTemplate:
        primaryContainerName: main
        trialParameters:
        - {name: learningRate, reference: lr}
        - {name: layers, reference: num-layers}
        - {name: opt, reference: optimizer}
        - {name: width, reference: width}
        - {name: name, reference: "${trialSpec.Name}"}
        - {name: label, reference: "${trialSpec.Labels[team]}"}
        trialSpec:
          apiVersion: batch/v1
          kind: Job
          metadata: {labels: {team: a}}
          spec:
            backoffLimit: 0
            activeDeadlineSeconds: 60
            template:
              spec:
                containers:
                - name: sidecar
                  command: [sleep]
                - name: main
                  image: example.org/train:1
                  command: [sh, -c, "train --lr=${trialParameters.learningRate} $HOME ${HOME}"]
                  args: ["--layers=${trialParameters.layers}", "${trialParameters.opt}",
                         "${trialParameters.width}"]
                  env: [{name: TRIAL, value: "${trialParameters.name}-${trialParameters.label}"}]
                  resources: {requests: {cpu: 500m}, limits: {cpu: "1", memory: 1Gi, nvidia.com/gpu: 1}}
                restartPolicy: Never
    """
    made = yaml.safe_load(text)
    for path, value in spec.items():
        *parents, last = path.split("__")
        part = made["spec"]
        for name in parents:
            part = part.setdefault(name, {})
        part[last] = value
    return made


def experiment(**spec: Any) -> Experiment:
    made = admit(converted(document(**spec)).document)
    assert isinstance(made, Experiment)
    return made


def refused(**spec: Any) -> str:
    with pytest.raises(Invalid) as error:
        converted(document(**spec))
    return "; ".join(str(each) for each in error.value.problems)


def settings(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def test_objective_parameters_and_counts() -> None:
    spec = experiment().spec
    objective = spec.objectives[0]
    assert (objective.metric, objective.direction, objective.goal) == ("accuracy", "maximize", 0.99)
    assert (spec.parallel, spec.max_trials, spec.max_failed) == (3, 12, 3)
    lr, layers, optimizer, width = spec.parameters
    assert (lr.type, lr.min, lr.max, lr.log) == ("float", 0.01, 0.1, True)
    assert (layers.type, layers.min, layers.max, layers.step) == ("int", 2, 8, 2)
    assert (optimizer.choices, width.choices) == (("sgd", "adam"), ("64", "128"))
    assert (spec.metrics_collector.kind, spec.metrics_collector.metrics) == ("StdOut", ("loss",))


def test_the_job_of_a_trial() -> None:
    made = experiment()
    point = {"lr": 0.05, "num-layers": 4, "optimizer": "sgd", "width": "64"}
    job = job_document(made, "mnist-7", 7, point)
    role = job["spec"]["roles"][0]
    assert role["command"] == ["sh", "-c", "train --lr=0.05 $HOME ${HOME}"]
    assert role["args"] == ["--layers=4", "sgd", "64"]
    assert role["env"] == {"TRIAL": "mnist-7-a"}
    assert role["resources"] == {"cpu": "500m", "cpuLimit": "1", "memory": "1Gi", "gpu": 1}
    assert job["metadata"]["labels"] == {"team": "a"}
    assert job["spec"]["restart"] == {"policy": "OnFailure", "limit": 0}
    assert job["spec"]["limits"] == {"wallTime": "60s"}


def test_what_is_different_is_said() -> None:
    notes = " | ".join(converted(document()).notes)
    assert "only the container main runs, not the 1 beside it" in notes
    assert "the image example.org/train:1 is left out" in notes


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"hyperband"}))
def test_every_algorithm(name: str) -> None:
    spec: dict[str, Any] = {"algorithm": {"algorithmName": name}}
    if name == "cmaes":
        spec["parameters"] = document()["spec"]["parameters"][:2]
        template = copy.deepcopy(document()["spec"]["trialTemplate"])
        template["trialParameters"] = template["trialParameters"][:2] + template["trialParameters"][4:]
        template["trialSpec"]["spec"]["template"]["spec"]["containers"][1]["args"] = [
            "${trialParameters.layers}"
        ]
        spec["trialTemplate"] = template
    if name == "grid":
        spec["parameters"] = document()["spec"]["parameters"]
        spec["parameters"][0]["feasibleSpace"] = {"min": "0.1", "max": "0.3", "step": "0.1"}
    assert experiment(**spec).spec.algorithm.name == ALGORITHMS[name][0]


def test_settings_of_an_algorithm() -> None:
    given = settings(
        ("n_startup_trials", "5"), ("n_EI_candidates", "12"), ("random_state", "7"), ("gamma", "1")
    )
    made = converted(document(algorithm={"algorithmName": "tpe", "algorithmSettings": given}))
    algorithm = admit(made.document).spec.algorithm  # type: ignore[attr-defined]
    assert (algorithm.name, algorithm.seed) == ("tpe", 7)
    assert algorithm.settings == {
        "multivariate": False, "group": False, "nStartupTrials": "5", "nEiCandidates": "12",
    }  # fmt: skip
    assert any("gamma has no counterpart" in each for each in made.notes)


def test_hyperband_stops_trials_that_may_use_the_whole_resource() -> None:
    given = settings(("resource_name", "num-layers"), ("r_l", "8"), ("eta", "2"))
    spec = experiment(algorithm={"algorithmName": "hyperband", "algorithmSettings": given}).spec
    assert (spec.algorithm.name, spec.early_stopping.name) == ("random", "hyperband")
    assert spec.early_stopping.settings == {"maxResource": 8, "reductionFactor": 2}
    assert [each.name for each in spec.parameters] == ["lr", "optimizer", "width"]
    assert spec.template["spec"]["roles"][0]["args"][0] == "--layers=8"


def test_median_stopping_has_katibs_defaults() -> None:
    stopping = experiment(earlyStopping={"algorithmName": "medianstop"}).spec.early_stopping
    assert (stopping.name, stopping.settings) == ("median", {"minTrials": 3, "startStep": 4})


@pytest.mark.parametrize(
    ("collector", "expected"),
    [
        ({}, ("StdOut", "", "TEXT")),
        ({"collector": {"kind": "None"}}, ("none", "", "TEXT")),
        ({"collector": {"kind": "Push"}}, ("none", "", "TEXT")),
        (
            {
                "collector": {"kind": "File"},
                "source": {"fileSystemPath": {"path": "/katib/mnist.json", "format": "JSON"}},
            },
            ("File", "katib/mnist.json", "JSON"),
        ),
        (
            {"collector": {"kind": "TensorFlowEvent"}},
            ("TensorFlowEvent", "var/log/katib/tfevent", "TEXT"),
        ),
    ],
)
def test_collectors(collector: dict[str, Any], expected: tuple[str, str, str]) -> None:
    made = experiment(metricsCollectorSpec=collector).spec.metrics_collector
    assert (made.kind, made.path, made.format) == expected


@pytest.mark.parametrize(
    ("strategy", "expected"), [("min", "min"), ("max", "max"), ("latest", "last"), (None, "best")]
)
def test_metric_strategies(strategy: str | None, expected: str) -> None:
    strategies = [{"name": "accuracy", "value": strategy}] if strategy else []
    assert experiment(objective__metricStrategies=strategies).spec.objectives[0].value == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": {"algorithmName": "randm"}}, "no algorithm 'randm'; did you mean random?"),
        ({"algorithm": {"algorithmName": "enas"}}, "neural architecture search is not supported"),
        (
            {"algorithm": {"algorithmName": "tpe", "algorithmSettings": settings(("n_startup", "1"))}},
            "there is no setting n_startup",
        ),
        ({"objective__type": "less"}, "wants minimize or maximize"),
        ({"objective__goal": "soon"}, "wants a number"),
        ({"parameters": []}, "at least one parameter"),
        (
            {"metricsCollectorSpec": {"collector": {"kind": "Custom"}}},
            "a collector of kind Custom is not supported",
        ),
        (
            {
                "metricsCollectorSpec": {
                    "collector": {"kind": "PrometheusMetric"},
                    "source": {"httpGet": {"port": 80, "scheme": "HTTPS"}},
                }
            },
            "an endpoint is read with HTTP alone",
        ),
        ({"trialTemplate": {"configMap": {"configMapName": "x"}}}, "found a configMap"),
        ({"trialTemplate__primaryContainerName": "other"}, "no container 'other'"),
        ({"trialTemplate__trialSpec": {"kind": "TFJob"}}, "manifests of kind TFJob () are"),
        ({"trialTemplate__trialParameters": settings(("a", "b"))}, "no parameter ''"),
        ({"nasConfig": {"graphConfig": {}}}, "neural architecture search"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    assert message in refused(**change)


@pytest.mark.parametrize("name", ["x" * 41, "Upper", "-a", ""])
def test_names_are_katibs(name: str) -> None:
    made = document()
    made["metadata"]["name"] = name
    with pytest.raises(Invalid, match="no name of an experiment"):
        converted(made)


def test_v1alpha3_with_a_go_template() -> None:
    made = document()
    made["apiVersion"] = "kubeflow.org/v1alpha3"
    made["spec"]["parameters"] = [
        {"name": "--lr", "parameterType": "double", "feasibleSpace": {"min": "0.01", "max": "0.03"}},
        {
            "name": "--optimizer",
            "parameterType": "categorical",
            "feasibleSpace": {"list": ["sgd", "adam"]},
        },
    ]
    raw = """apiVersion: batch/v1
kind: Job
metadata:
  name: {{.Trial}}
  namespace: {{.NameSpace}}
spec:
  template:
    spec:
      containers:
      - name: {{.Trial}}
        image: docker.io/x
        command:
        - "python"
        {{- with .HyperParameters}}
        {{- range .}}
        - "{{.Name}}={{.Value}}"
        {{- end}}
        {{- end}}
      restartPolicy: Never
"""
    made["spec"]["trialTemplate"] = {"goTemplate": {"rawTemplate": raw}}
    found = admit(converted(made).document)
    assert isinstance(found, Experiment)
    job = job_document(found, "mnist-0", 0, {"--lr": 0.02, "--optimizer": "sgd"})
    assert job["spec"]["roles"][0]["command"] == ["python", "--lr=0.02", "--optimizer=sgd"]
    made["spec"]["trialTemplate"] = {"goTemplate": {"rawTemplate": "{{if .X}}{{end}}"}}
    with pytest.raises(Invalid, match="not one of Katib's templates"):
        converted(made)


def test_other_kinds_are_refused_by_their_name() -> None:
    assert is_foreign({"apiVersion": "trainer.kubeflow.org/v1alpha1"})
    assert not is_foreign({"apiVersion": "shoal.dev/v1alpha1"})
    assert not is_foreign([])
    with pytest.raises(Invalid, match=r"kind MXJob \(kubeflow.org/v1\) are not supported"):
        converted({"apiVersion": "kubeflow.org/v1", "kind": "MXJob"})


@pytest.mark.parametrize("value", [None, [], "x", {"a": 1}, 3])
@pytest.mark.parametrize("field", sorted(document()["spec"]))
def test_odd_documents_raise_invalid_or_convert(field: str, value: Any) -> None:
    with contextlib.suppress(Invalid):  # the one error that a manifest may cause
        assert isinstance(converted(document(**{field: value})), Converted)


def test_status_in_katibs_words() -> None:
    made = experiment()
    best = BestTrial(trial="mnist-1", number=1, parameters={"lr": 0.05}, values=(0.97,))
    status = ExperimentStatus(phase="Succeeded", best=(best,), message="goal reached")
    made = Experiment(metadata=made.metadata, spec=made.spec, status=status)
    trials = [
        Trial(
            metadata=Metadata(name=f"mnist-{number}"),
            spec=TrialSpec(experiment="mnist", number=number),
            status=TrialStatus(phase=phase),
        )
        for number, phase in enumerate(("EarlyStopped", "Succeeded", "MetricsUnavailable", "Succeeded"))
    ]
    found = status_of(made, trials)
    assert [each["type"] for each in found["conditions"]] == ["Created", "Succeeded"]
    assert found["succeededTrialList"] == ["mnist-1", "mnist-3"]
    assert (found["trials"], found["trialsSucceeded"], found["trialsMetricsUnavailable"]) == (4, 2, 1)
    assert found["currentOptimalTrial"] == {
        "bestTrialName": "mnist-1",
        "parameterAssignments": [{"name": "lr", "value": "0.05"}],
        "observation": {"metrics": [{"name": "accuracy", "max": "0.97"}]},
    }


@pytest.mark.skipif(not MANIFESTS.is_dir(), reason="the published manifests are not on this machine")
@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_published_manifests(path: Path) -> None:
    [found] = read_manifests([str(path)], Settings())
    assert isinstance(found.object, Experiment)
