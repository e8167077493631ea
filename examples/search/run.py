"""Search at random, then with ASHA in the same node time, with a kill of the server in the middle.

`python examples/search/run.py` takes about two minutes on two cores and needs scikit-learn.
Nothing of it stays. One run is one sample: `python -m bench search` compares ten seeds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shoal.client import Client
from shoal.objects.admit import admit
from shoal.objects.experiment import FINISHED, Experiment
from shoal.testing.local import LocalHome, nodes

TRAIN = Path(__file__).with_name("train.py")
TRIALS, EPOCHS = 12, 81


def main() -> None:
    """Run both searches and print what they found."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalHome(Path(folder) / "home", nodes(local={"cpu": 2000}), server=True) as local,
    ):
        random = search(local, "random", {"name": "none"}, maxTrials=TRIALS)
        budget = {"nodeHours": random.status.node_seconds / 3600}
        settings = {"minResource": 3, "maxResource": EPOCHS}
        asha = search(local, "asha", {"name": "asha", "settings": settings}, kill=True, budget=budget)
    counts = asha.status.trials
    print(f"random: {described(random)}")
    print(f"ASHA:   {described(asha)}; {counts.early_stopped} of {counts.total} trials stopped early")


def search(
    local: LocalHome, name: str, stopping: dict[str, Any], *, kill: bool = False, **spec: Any
) -> Experiment:
    """Run one experiment to its end."""
    command = [sys.executable, str(TRAIN), "--lr=${lr}", "--width=${width}", "--alpha=${alpha}"]
    # two trials share two cores: more threads each would only get in each other's way
    role = {"command": [*command, f"--epochs={EPOCHS}"], "env": {"OMP_NUM_THREADS": "1"}}
    document = {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": "Experiment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "objectives": [{"metric": "accuracy", "direction": "maximize"}],
            "parameters": [
                {"name": "lr", "type": "float", "min": 1e-5, "max": 1e-1, "log": True},
                {"name": "width", "type": "int", "min": 4, "max": 128, "log": True},
                {"name": "alpha", "type": "float", "min": 1e-6, "max": 1e-1, "log": True},
            ],
            "algorithm": {"name": "random", "seed": 1},
            "earlyStopping": stopping,
            "parallel": 2,
            "template": {"spec": {"roles": [role]}},
            **spec,
        },
    }
    print(f"searching with {name} ...", flush=True)
    with Client.connect(local.home.path) as client:
        client.create(admit(document))
        if kill:
            client.wait(Experiment, "default", name, lambda e: ended(e) >= 3, timeout_seconds=300)
    if kill:
        local.kill("server")
        print("killed the server; starting it again", flush=True)
        time.sleep(1.0)
        local.up()
    with Client.connect(local.home.path) as client:
        done = client.wait(Experiment, "default", name, finished, timeout_seconds=600)
    assert done is not None
    return done


def ended(experiment: Experiment | None) -> int:
    """How many trials have ended."""
    return experiment.status.trials.ended if experiment is not None else 0


def finished(experiment: Experiment | None) -> bool:
    """Whether the search is over."""
    return experiment is not None and experiment.status.phase in FINISHED


def described(experiment: Experiment) -> str:
    """Its end, cost and best parameters."""
    status = experiment.status
    best = status.best[0]
    point = " ".join(f"{name}={value:.4g}" for name, value in best.parameters.items())
    return (
        f"{status.phase}, {status.trials.ended} trials in {status.node_seconds:.0f} node seconds, "
        f"best accuracy {best.values[0]:.4f} with {point}"
    )


if __name__ == "__main__":
    main()
