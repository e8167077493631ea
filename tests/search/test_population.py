"""Population based training with real processes, which continue from their parents' checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.client import Client
from shoal.objects.admit import admit
from shoal.objects.experiment import FINISHED, Experiment
from shoal.objects.kinds import EXPERIMENT, TRIAL
from shoal.testing.local import LocalHome, nodes

TRAIN = """
import json, os, sys
from pathlib import Path
from shoal import report
place = Path(os.environ["SHOAL_OUTPUT"], "model.json")
state = json.loads(place.read_text()) if place.exists() else {"weight": 0.0, "trained_by": []}
for step in range(3):
    state["weight"] -= float(sys.argv[1]) * 2 * (state["weight"] - 3)
    report(loss=(state["weight"] - 3) ** 2, step=step)
state["trained_by"].append(os.environ["SHOAL_JOB"])
place.write_text(json.dumps(state))
"""


@pytest.mark.slow
@pytest.mark.process
def test_each_generation_continues_from_the_checkpoint_of_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    role = {"command": [sys.executable, str(script), "${lr}"], "resources": {"cpu": "100m"}}
    spec: dict[str, Any] = {
        "objectives": [{"metric": "loss", "direction": "minimize", "value": "last"}],
        "parameters": [{"name": "lr", "type": "float", "min": 0.001, "max": 0.1, "log": True}],
        "algorithm": {"name": "pbt", "settings": {"populationSize": 2, "truncation": 0.5}, "seed": 1},
        "parallel": 2,
        "maxTrials": 6,
        "template": {"spec": {"roles": [role]}},
    }
    with LocalHome(tmp_path / "home", nodes(one={}), server=True) as local:
        with Client.connect(local.home.path) as client:
            client.create(admit({"metadata": {"name": "pbt"}, "spec": spec}, EXPERIMENT))
            client.wait(Experiment, "default", "pbt", ended, timeout_seconds=120)
            trials = [record.object for record in client.list(TRIAL, namespace="default").records]
        states = {
            trial.status.job: json.loads(
                (local.home.output / "default" / trial.status.job_uid / "model.json").read_text()
            )
            for trial in trials
        }
    by_number = sorted(trials, key=lambda trial: trial.spec.number)
    assert [bool(trial.spec.parent) for trial in by_number] == [False, False, True, True, True, True]
    for trial in by_number:
        before = states[trial.spec.parent]["trained_by"] if trial.spec.parent else []
        assert states[trial.status.job]["trained_by"] == [*before, trial.status.job]
        assert trial.status.values == ((states[trial.status.job]["weight"] - 3) ** 2,)
    exploited = [t for t in by_number[2:] if t.spec.parent != by_number[t.spec.number - 2].status.job]
    assert exploited, "no member took over the checkpoint of the better one"
    parents = {trial.status.job: trial for trial in by_number}
    for trial in exploited:
        assert trial.spec.parameters != parents[trial.spec.parent].spec.parameters


def ended(experiment: Experiment | None) -> bool:
    return experiment is not None and experiment.status.phase in FINISHED
