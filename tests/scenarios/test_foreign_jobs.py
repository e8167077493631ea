"""Foreign job manifests on a real server: each task checks the environment of its framework."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.testing.local import nodes, wait_until
from tests.scenarios.standing import Standing, run_cli

pytestmark = [pytest.mark.slow, pytest.mark.process]

CHECKS = {
    "PyTorchJob": """
assert env["WORLD_SIZE"] == "3" and env["PET_NNODES"] == "3", env
assert (env["RANK"] == "0") == (env["SHOAL_ROLE"] == "master"), env
assert env["MASTER_ADDR"] and int(env["MASTER_PORT"]), env
""",
    "TFJob": """
config = json.loads(env["TF_CONFIG"])
assert {name: len(each) for name, each in config["cluster"].items()} == {"chief": 1, "worker": 2}, config
assert config["task"]["type"] == env["SHOAL_ROLE"] and config["environment"] == "cloud", config
""",
    "XGBoostJob": """
assert env["WORLD_SIZE"] == "3" and len(env["WORKER_ADDRS"].split(",")) == 2, env
""",
}
"""For each kind with a leader and two workers, what each task finds."""
LEADERS = {"PyTorchJob": "Master", "TFJob": "Chief", "XGBoostJob": "Master"}
FIELDS = {"PyTorchJob": "pytorch", "TFJob": "tf", "XGBoostJob": "xgb"}
CONTAINERS = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "XGBoostJob": "xgboost"}


def manifest(kind: str) -> dict[str, Any]:
    program = f"import json, os\nenv = os.environ\n{CHECKS[kind]}\nprint('checked')"
    container = {
        "name": CONTAINERS[kind],
        "image": "example/train:1",
        "command": [sys.executable, "-c", program],
    }
    container["resources"] = {"requests": {"cpu": "100m"}}
    template = {"spec": {"containers": [container]}}
    specs = {LEADERS[kind]: {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": kind.lower()},
        "spec": {f"{FIELDS[kind]}ReplicaSpecs": specs, "runPolicy": {"backoffLimit": 0}},
    }  # fmt: skip


def test_jobs_of_kubeflow_run_to_success_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([manifest(kind) for kind in CHECKS]))
    with Standing(tmp_path / "home", nodes(one={})) as standing:
        home = standing.home.path
        applied = run_cli(home, "apply", "-y", "-f", str(file))
        assert applied.code == 0, applied.err
        assert "the image example/train:1 is left out" in applied.err
        for kind in CHECKS:
            waited = run_cli(home, "wait", f"job/{kind.lower()}", "--timeout", "60")
            assert waited.code == 0, waited.err
            # the leader's success is the job's: the workers, which are left alone, may still be at it
            wait_until(lambda kind=kind: checked(home, kind) == 3, what=f"three tasks of a {kind} check")


def checked(home: Path, kind: str) -> int:
    return run_cli(home, "logs", f"job/{kind.lower()}").out.count(b"checked")
