"""Katib's manifests on a real server and real tasks, with the programs replaced by a small one."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.published import DATA

from shoal.client import Client
from shoal.compat import converted
from shoal.objects.admit import admit
from shoal.objects.experiment import FINISHED, Experiment
from shoal.objects.trial import Trial
from shoal.testing.local import LocalHome, nodes

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(300)]

FOLDER = DATA / "manifests" / "kubeflow-katib-v1beta1"
PROGRAM = """
import json, os, sys, time
from shoal import report
if "SHOAL_PORT_METRICS" in os.environ:
    from prometheus_client import Gauge, start_http_server
    Gauge("accuracy", "of the test set").set(0.75)
    start_http_server(int(os.environ["SHOAL_PORT_METRICS"]), "127.0.0.1")
    time.sleep(4)
    sys.exit()
lr = float(next(a for a in sys.argv if "lr=" in a).partition("lr=")[2])
for epoch in range(5):
    loss = (lr - 0.03) ** 2 + 0.1 + 1 / (epoch + 10)
    if "--logger=hypertune" in sys.argv:
        os.makedirs(os.environ["SHOAL_OUTPUT"] + "/katib", exist_ok=True)
        with open(os.environ["SHOAL_OUTPUT"] + "/katib/mnist.json", "a") as file:
            file.write(json.dumps({"accuracy": 1 - loss, "loss": str(loss)}) + "\\n")
    else:
        print(f"epoch {epoch} loss={loss} Validation-accuracy={1 - loss}", flush=True)
    report(reported=loss, step=epoch)
"""


def with_program(document: dict[str, Any], program: Path) -> dict[str, Any]:
    """The manifest with its program replaced, and as few trials as show that it works."""
    made = copy.deepcopy(document)
    made["metadata"]["namespace"] = "default"
    spec = made["spec"]
    spec["maxTrialCount"] = min(spec.get("maxTrialCount", 2), 2)
    spec["maxFailedTrialCount"] = 1
    container = spec["trialTemplate"]["trialSpec"]["spec"]["template"]["spec"]["containers"][0]
    container["command"][:2] = [sys.executable, str(program)]
    container.pop("resources", None)
    return made


def manifests() -> list[Path]:
    return [
        path
        for path in sorted(FOLDER.glob("*.yaml"))
        if yaml.safe_load(path.read_text())["spec"]["trialTemplate"]["trialSpec"]["kind"] == "Job"
    ]


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the published manifests are not in {DATA}")
def test_the_published_manifests_run_to_success_though_the_server_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    with LocalHome(tmp_path / "home", nodes(one={"cpu": 12000}), server=True) as local:
        with Client.connect(local.home.path) as client:
            names: list[str] = []
            for path in manifests():
                document = with_program(yaml.safe_load(path.read_text()), program)
                found = admit(converted(document).document)
                names.append(client.create(found).metadata.name)
            # no published manifest has an endpoint: the last one, with the collector that reads it
            document["metadata"]["name"] = "endpoint"
            document["spec"]["objective"] = {"type": "maximize", "objectiveMetricName": "accuracy"}
            document["spec"].pop("earlyStopping", None)
            document["spec"]["metricsCollectorSpec"] = {
                "collector": {"kind": "PrometheusMetric"},
                "source": {"httpGet": {"port": 8080, "path": "/metrics"}},
            }
            names.append(client.create(admit(converted(document).document)).metadata.name)
        local.kill("server")
        local.up()
        with Client.connect(local.home.path) as client:
            for name in names:
                ended = client.wait(Experiment, "default", name, finished, timeout_seconds=200)
                assert ended is not None
                assert ended.status.phase == "Succeeded", f"{name}: {ended.status.message}"
                counts = ended.status.trials
                assert (counts.failed, counts.metrics_unavailable) == (0, 0), name
                assert ended.status.best, name
            trial = client.get(Experiment, "default", names[0]).status.best[0].trial
            reported = [
                p for p in client.metrics("default", job_of(client, trial)) if p.name == "reported"
            ]
            assert [each.step for each in reported] == list(range(len(reported)))


def finished(experiment: Experiment | None) -> bool:
    return experiment is not None and experiment.status.phase in FINISHED


def job_of(client: Client, trial: str) -> str:
    return client.get(Trial, "default", trial).status.job
