from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell

TEXT = """\
description: A job of low priority gives way.
nodes: [{gpus: 2}]
jobs:
  - {name: low, gpus: 2, running: node0}
  - {name: high, gpus: 2, priority: 5, created: 1m}
now: 1m
expect: {stop: {low: {for: high}}, reserve: [high]}
events:
  - {at: 65s, gone: all, expect: {start: {high: [node0]}}}
"""
FIELDS = ["scenario", "at", "happened", "steps", "again_at", "unmet"]
STEP = ["step", "job", "tasks", "to", "at", "beneficiary", "code", "reason", "remedy", "evidence"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "good.yaml").write_text(TEXT)
    (tmp_path / "bad.yaml").write_text(TEXT.replace("{high: [node0]}", "[low]"))
    (tmp_path / "broken.yaml").write_text(TEXT.replace("running: node0", "running: node1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_for_people(sh: Shell, files: Path) -> None:
    said = sh("simulate", "scenario", "good.yaml")
    assert said.code == 0, said.err
    assert said.lines[0].split() == ["SCENARIO", "AT", "STEP", "JOB", "TASKS", "WHY"]
    rows = [line.split(maxsplit=5) for line in said.lines[1:]]
    assert [row[:5] for row in rows[:3]] == [
        ["good", "1m", "reserve", "high", "1@node0"],
        ["good", "1m", "preempt", "low", "1@node0"],
        ["good", "1m5s", "start", "high", "1@node0"],
    ]
    assert rows[1][5].endswith("(for high)")
    assert said.err == ""


def test_a_record_for_each_decision(sh: Shell, files: Path) -> None:
    said = sh("simulate", "scenario", "good.yaml", "good.yaml", "--json")
    assert said.code == 0, said.err
    records = said.document
    assert [(each["scenario"], each["at"]) for each in records] == [("good", 60), ("good", 65)] * 2
    assert all(list(each) == FIELDS for each in records)
    steps = [step for each in records for step in each["steps"]]
    assert all(list(step) == STEP for step in steps)
    assert steps[0]["tasks"] == [{"role": "worker", "index": 0, "node": "node0", "gpus": [0, 1]}]
    assert [step["beneficiary"] for step in steps[:2]] == ["", "high"]
    assert records[1]["happened"] == ["who was told to stop is gone"]
    assert records[1]["unmet"] == []


def test_what_does_not_come_as_expected_is_a_line_and_an_exit_code(sh: Shell, files: Path) -> None:
    said = sh("simulate", "scenario", "good.yaml", "bad.yaml")
    assert said.code == 1
    assert "bad.yaml, line 9, events[0].expect.start[0]: start of low expected, but: " in said.err
    assert len(said.lines) > 5, "the plans are shown all the same"
    (first, *_) = sh("simulate", "scenario", "bad.yaml", "--json").document[1]["unmet"]
    assert "start of low expected" in first


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["broken.yaml"], "broken.yaml, line 4, jobs[0].running: there is no node node1"),
        (["good.yaml", "absent.yaml"], "absent.yaml cannot be read: No such file or directory"),
        ([], "FILE..."),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    sh: Shell, files: Path, words: list[str], sentence: str
) -> None:
    said = sh("simulate", "scenario", *words)
    assert said.code == 2
    assert sentence in said.err
    assert said.out == "" and "Traceback" not in said.err


def test_many_nodes_are_named_in_a_wide_table_only(sh: Shell, files: Path) -> None:
    (files / "many.yaml").write_text(
        "nodes: [{count: 5, gpus: 1}]\njobs: [{name: a, tasks: 5, gpus: 1}]\n"
    )
    assert "1@node0,1@node1,1@node2 and 2 nodes more" in sh("simulate", "scenario", "many.yaml").out
    wide = sh("simulate", "scenario", "many.yaml", "-o", "wide").out
    assert "1@node3,1@node4" in wide and "more" not in wide
