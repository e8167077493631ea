from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.elastic.settings import Settings

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.process]


def _run(module: str, settings: Settings, *words: str) -> str:
    command = [sys.executable, "-W", "error", "-m", f"bench.elastic.workers.{module}", *words]
    environment = {**os.environ, **settings.environment("static")}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_model_that_counts_gives_away_lost_and_repeated_samples(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    settings = Settings(str(folder), samples=320 + 16, epochs=2, pace_seconds=0.0, count=True)
    _run("static", settings)
    own = folder / "final.static.pt"
    sound = json.loads(_run("judge", settings, str(own)))
    assert (sound["lost"], sound["repeated"], sound["samples"]) == (0, 0, 672)
    assert (sound["steps"], sound["relative"], sound["differing"]) == (12, 0.0, 0)

    state = torch.load(own)
    state["model"]["counts"][7] += 1.0  # applied once less
    state["model"]["counts"][8] -= 1.0
    state["model"]["body.0.weight"][0, 0] += 1e-3
    torch.save(state, folder / "final.1.pt")
    torch.save(state, folder / "final.0.pt")
    reference = tmp_path / "static.pt"
    own.rename(reference)
    found = json.loads(_run("judge", settings, str(reference)))
    assert (found["lost"], found["repeated"]) == (1, 1)
    assert found["relative"] > 1e-6
    assert (found["finals"], found["differing"]) == (2, 0)

    reference.rename(folder / "final.2.pt")
    assert json.loads(_run("judge", settings))["differing"] == 1
