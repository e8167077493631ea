from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.cli import charts
from shoal.client import Client
from shoal.objects import codec
from shoal.objects.experiment import EXPERIMENT_LABEL, Experiment
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.objects.meta import Metadata
from shoal.objects.trial import Trial, TrialSpec
from shoal.store.base import SYSTEM
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer

LR = (0.01, 0.1, 0.02, 0.05)
ACCURACY = (0.7, 0.97, 0.8, 0.9)


def status(server: LiveServer, kind: Any, name: str, **fields: Any) -> None:
    now = server.store.record(kind, "default", name, actor=SYSTEM).object
    server.store.patch_status(
        kind, "default", name, actor=SYSTEM, writer="experiment", uid=now.metadata.uid,
        counter=now.status.writers.get("experiment", 0), fields=fields,
    )  # fmt: skip


def a_search(server: LiveServer, name: str, objectives: int = 1) -> None:
    metrics = ("accuracy", "latency")[:objectives]
    document = {
        "apiVersion": "shoal.dev/v1alpha1", "kind": "Experiment", "metadata": {"name": name},
        "spec": {
            "objectives": [{"metric": metric, "direction": "maximize"} for metric in metrics],
            "parameters": [
                {"name": "lr", "type": "float", "min": 0.01, "max": 0.1, "log": True},
                {"name": "opt.kind", "type": "categorical", "choices": ["sgd", "adam w"]},
            ],
            "template": {"spec": {"roles": [{"command": ["true", "${lr}", "${opt.kind}"]}]}},
        },
    }  # fmt: skip
    server.store.create(codec.convert(document, Experiment), actor=SYSTEM)


def a_trial(server: LiveServer, search: str, number: int, values: tuple[float, ...], lr: float) -> None:
    name = f"{search}-{number}"
    point = {"lr": lr, "opt.kind": ("sgd", "adam w")[number % 2]}
    spec = TrialSpec(experiment=search, number=number, parameters=point)
    metadata = Metadata(name=name, labels={EXPERIMENT_LABEL: search})
    server.store.create(Trial(metadata=metadata, spec=spec), actor=SYSTEM)
    phase = "Succeeded" if values else "MetricsUnavailable"
    status(server, TRIAL, name, phase=phase, values=list(values), step=number + 1)


@pytest.fixture
def search(server: LiveServer, client: Client) -> None:
    a_search(server, "digits")
    for number, (value, lr) in enumerate(zip(ACCURACY, LR, strict=True)):
        a_trial(server, "digits", number, (value,), lr)
    a_trial(server, "digits", 4, (), 0.03)
    best = {"trial": "digits-1", "number": 1, "parameters": {"lr": 0.1, "opt.kind": "adam w"}}
    status(server, EXPERIMENT, "digits", phase="Succeeded", best=[{**best, "values": [0.97]}])


@pytest.mark.slow
@pytest.mark.usefixtures("search")
def test_results_have_the_best_first_and_those_without_a_value_last(sh: Shell) -> None:
    lines = [line.split() for line in sh("experiment", "results", "digits").lines]
    assert lines[0] == ["TRIAL", "PHASE", "ACCURACY", "LR", "OPT.KIND", "STEP"]
    assert [line[0] for line in lines[1:]] == [f"digits-{n}" for n in (1, 3, 2, 0, 4)]
    items = sh("experiment", "results", "digits", "-o", "json").document["items"]
    assert items[0]["values"] == {"accuracy": 0.97}
    assert items[0]["parameters"] == {"lr": 0.1, "opt.kind": "adam w"}
    rows = sh("experiment", "results", "digits", "-o", "csv").lines
    assert rows[0].startswith("trial,number,phase,accuracy,lr,opt.kind,step,")
    assert rows[1].startswith("digits-1,1,Succeeded,0.97,0.1,adam w,2,")
    assert rows[5].startswith("digits-4,4,MetricsUnavailable,,0.03,sgd,5,")


@pytest.mark.usefixtures("search")
def test_results_in_katibs_words(sh: Shell) -> None:
    found = yaml.safe_load(sh("experiment", "results", "digits", "--katib").out)
    assert found["apiVersion"] == "kubeflow.org/v1beta1"
    assert found["status"]["currentOptimalTrial"]["bestTrialName"] == "digits-1"
    assert found["status"]["metricsUnavailableTrialList"] == ["digits-4"]


@pytest.mark.slow
@pytest.mark.usefixtures("search")
def test_the_best_for_a_shell(sh: Shell) -> None:
    assert sh("experiment", "best", "digits", "--env").lines == ["LR=0.1", "OPT_KIND='adam w'"]
    assert sh("experiment", "best", "digits").lines[1].split()[:3] == ["digits-1", "0.97", "0.1"]
    best = sh("experiment", "best", "digits", "-o", "json").document["items"]
    assert best[0]["parameters"]["lr"] == 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("search")
def test_pictures_in_the_terminal(sh: Shell) -> None:
    out = sh("experiment", "plot", "digits").out
    assert "accuracy of digits" in out
    assert "● the best 1 of 4" in out
    assert "that each parameter explains alone" in out
    assert sh("experiment", "plot", "digits", "-k", "pareto").code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("search")
def test_pictures_in_a_file(sh: Shell, server: LiveServer, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for name, path in (("digits", tmp_path / "one.png"), ("front", tmp_path / "two.png")):
        if name == "front":
            two_objectives(server)
        said = sh("experiment", "plot", name, "--png", str(path))
        assert (said.code, said.out) == (0, "")
        assert path.read_bytes().startswith(b"\x89PNG")
    assert sh("experiment", "plot", "digits", "--png", str(tmp_path / "no" / "x.png")).code == 2


def two_objectives(server: LiveServer) -> None:
    a_search(server, "front", objectives=2)
    for number, (value, lr) in enumerate(zip(ACCURACY, LR, strict=True)):
        a_trial(server, "front", number, (value, 1 - value), lr)
    best = [{"trial": f"front-{n}", "number": n, "values": [0.5, 0.5]} for n in range(4)]
    status(server, EXPERIMENT, "front", phase="Succeeded", best=best)


@pytest.mark.slow
def test_several_objectives(sh: Shell, server: LiveServer, client: Client) -> None:
    two_objectives(server)
    assert "Pareto front" in sh("experiment", "plot", "front", "-k", "pareto").out
    said = sh("experiment", "best", "front", "--env")
    assert (said.code, "4 best trials" in said.err) == (2, True)


@pytest.mark.slow
def test_nothing_yet(sh: Shell, server: LiveServer, client: Client) -> None:
    a_search(server, "new")
    assert "no trials yet" in sh("experiment", "results", "new").err
    assert "no trial with a value yet" in sh("experiment", "plot", "new").err
    assert sh("experiment", "best", "new").code == 3
    assert sh("experiment", "results", "absent").code == 3


def data(places: list[float | None], values: list[float], levels: int = 0) -> charts.SearchData:
    axis = charts.Axis("p", tuple(places), "0", "1", levels=levels)
    count = tuple(range(len(values)))
    return charts.SearchData(
        "s", ("m",), (True,), count, tuple((v,) for v in values), (axis,), frozenset()
    )


def test_importance_is_one_for_what_decides_and_zero_for_what_does_not() -> None:
    decides = data([0.0, 1.0] * 6, [1.0, 2.0] * 6, levels=2)
    assert charts.importance(decides) == [("p", 1.0)]
    useless = data([0.0, 0.0, 1.0, 1.0] * 3, [1.0, 2.0] * 6, levels=2)
    assert charts.importance(useless) == [("p", 0.0)]
    assert charts.importance(data([0.1, 0.9], [1.0, 2.0])) == [("p", 0.0)]
    assert (
        charts.importance(data([n / 20 for n in range(20)], [float(n) for n in range(20)]))[0][1] > 0.9
    )
    assert charts.importance(data([None] * 5, [1.0] * 5)) == [("p", 0.0)]


def test_pictures_of_one_trial() -> None:
    one = data([0.5], [3.0])
    for draw in (charts.draw_history, charts.draw_parallel, charts.draw_importance):
        assert all(draw(one))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--algorithm", "tpe", "--algorithm", "gp"], "one algorithm chooses points: tpe or gp?"),
        (["--algorithm", "asha", "--algorithm", "median"], "ends trials early: asha or median?"),
        (["--queue", "nope"], "there is no queue nope"),
    ],
)
def test_a_search_that_cannot_be_meant_is_refused_at_once(
    sh: Shell, client: Client, given: list[str], sentence: str
) -> None:
    words = ["search", "--param", "x=0..1", "--minimize", "loss", "--trials", "2", *given]
    found = sh(*words, "--", "echo", "{x}")
    assert found.code == 2
    assert sentence in found.err
    assert not client.list(EXPERIMENT).records
