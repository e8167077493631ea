"""`shoal search`: the experiment that the options describe, and one that runs in real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shoal.testing.local import nodes
from tests.scenarios.standing import Standing, run_cli

TRAIN = """
import sys
from shoal import report
for step in (1, 2, 3):
    report(score=float(sys.argv[1]) * step, step=step)
"""


@pytest.mark.slow
@pytest.mark.process
def test_a_search_runs_to_its_best_trial(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    search = (
        "search",
        "--name",
        "real",
        "--param",
        "x=0.0..1.0",
        "--maximize",
        "score",
        "--trials",
        "3",
    )
    with Standing(tmp_path / "home", nodes(one={})) as standing:
        home = standing.home.path
        ran = run_cli(home, *search, "--parallel", "2", "--", sys.executable, str(script), "{x}")
        assert ran.code == 0, ran.err
        trials = json.loads(run_cli(home, "get", "trials", "-o", "json").out)["items"]
        values = {each["spec"]["parameters"]["x"]: each["status"]["values"][0] for each in trials}
        assert len(values) == 3
        assert all(value == pytest.approx(3 * x) for x, value in values.items())
        assert f"x={max(values)!r}" in ran.out.decode()
        described = run_cli(home, "describe", "experiment/real").out.decode()
        assert "Search space" in described
        assert "maximize score" in described
        explained = run_cli(home, "explain", "experiment/real").out.decode()
        assert "all 3 trials have ended; the best is" in explained
        assert run_cli(home, "wait", "experiment/real").code == 0


@pytest.mark.slow
def test_the_options_describe_an_experiment(tmp_path: Path) -> None:
    ran = run_cli(
        tmp_path, "search", "--dry-run", "--param", "lr=1e-4..1e-1:log", "--param", "opt=sgd,adam",
        "--minimize", "loss", "--trials", "9", "--parallel", "2", "--algorithm", "tpe", "--algorithm",
        "asha", "--set", "reductionFactor=2", "--set", "nStartupTrials=3", "--env", "A=${B}", "-o",
        "json", "--", sys.executable, "train.py", "--lr={lr}", "{opt}", "{other}",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "note: {other} in the command is not a parameter" in ran.err
    spec = json.loads(ran.out)["spec"]
    role = spec["template"]["spec"]["roles"][0]
    assert role["command"][1:] == ["train.py", "--lr=${lr}", "${opt}", "{other}"]
    assert role["env"]["A"] == "$${B}"
    assert spec["algorithm"]["settings"] == {"nStartupTrials": "3"}
    assert spec["earlyStopping"] == {"name": "asha", "settings": {"reductionFactor": "2"}}
    assert (spec["maxTrials"], spec["parallel"]) == (9, 2)


@pytest.mark.slow
def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    for words, sentence in (
        (("--param", "x=0..1", "--", "true"), "give --maximize METRIC or --minimize METRIC"),
        (("--maximize", "a", "--", "true"), "there is nothing to search"),
        (
            ("--param", "x=1..0", "--maximize", "a", "--trials", "2", "--", "true", "{x}"),
            "1 is above max",
        ),
        (("--param", "x=0..1", "--maximize", "a", "--trials", "2", "--", "true"), "uses ${x}"),
    ):
        ran = run_cli(tmp_path, "search", "--dry-run", *words)
        assert ran.code == 2
        assert sentence in ran.err
