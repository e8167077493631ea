from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.simulate.packing.small import write_nodes, write_pods

FIELDS = [
    "policy",
    "information",
    "nodes",
    "pods",
    "demand_percent",
    "seeds",
    "allocated_gpu_percent",
    "mean",
    "placed",
    "refused",
    "cpu_seconds",
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_nodes(tmp_path / "nodes.csv", [*["16000,100,4,T4"] * 2, "32000,100,0,"])
    write_pods(tmp_path / "pods.csv", ["3000,1,1,500", "2000,1,1,1000", "1,1,0,0"] * 5)
    write_nodes(tmp_path / "cpu-only.csv", ["32000,100,0,"])
    write_pods(tmp_path / "half-more.csv", ["1,1,1,1000", "1,1,1,1500"])
    write_pods(tmp_path / "no-gpu.csv", ["1,1,0,0"])
    (tmp_path / "short.csv").write_text("name,cpu_milli\na,1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = ("simulate", "packing", "--nodes", "nodes.csv", "--pods", "pods.csv")


def test_a_record_for_each_policy_with_a_value_for_each_seed(sh: Shell, files: Path) -> None:
    said = sh(*WORDS, "--policy", "random", "shoal", "--seeds", "5", "6", "7", "--json")
    assert said.code == 0, said.err
    records = said.document
    assert [each["policy"] for each in records] == ["random", "shoal"]
    assert [each["information"] for each in records] == ["none", "mix"]
    assert all(list(each) == FIELDS for each in records)
    for record in records:
        assert (record["nodes"], record["pods"], record["seeds"]) == (2, 15, [5, 6, 7])
        assert record["demand_percent"] == 130
        percents = record["allocated_gpu_percent"]
        assert len(percents) == len(record["cpu_seconds"]) == 3
        assert record["mean"] == sum(percents) / 3
        assert all(0 < percent <= 100 for percent in percents)
        assert min(record["placed"]) > 0
        assert len(record["refused"]) == 3
    assert "1 nodes without GPUs take no part" in said.err


@pytest.mark.slow
def test_a_table_for_people_and_all_policies_unless_some_are_named(sh: Shell, files: Path) -> None:
    said = sh(*WORDS, "--demand", "50")
    assert said.code == 0, said.err
    assert said.lines[0].split()[:7] == ["POLICY", "KNOWS", "NODES", "PODS", "RUNS", "GPU", "%"]
    rows = [line.split() for line in said.lines[1:]]
    assert [row[:5] for row in rows] == [
        [name, knows, "2", "15", "10"]
        for name, knows in (("random", "none"), ("best-fit", "none"), ("fgd", "mix"), ("shoal", "mix"))
    ]
    assert all(float(row[5]) <= 50 and row[9] == "0" for row in rows)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (["--policy", "worst-fit"], "there is no policy 'worst-fit'"),
        (["--nodes", "none.csv"], "none.csv cannot be read: No such file or directory"),
        (["--nodes", "cpu-only.csv"], "cpu-only.csv: none of its 1 nodes has a GPU"),
        (["--pods", "short.csv"], "short.csv lacks the column memory_mib, num_gpu, gpu_milli"),
        (["--pods", "half-more.csv"], "half-more.csv, line 3: a part of one GPU or whole ones"),
        (["--pods", "no-gpu.csv"], "none of the pods asks for a GPU"),
        (["--pods", "nodes.csv"], "nodes.csv lacks the column name"),
        (["--demand", "0"], "pods can ask for 0 to 1000 % of the GPUs, not for 0 %"),
        (["--demand", "nan"], "not for nan %"),
        (["--demand", "inf"], "not for inf %"),
        (["--demand", "much"], "--demand"),
        (["--seeds", "-1"], "-1"),
        (["--seeds", "x"], "--seeds"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    sh: Shell, files: Path, change: list[str], sentence: str
) -> None:
    said = sh(*WORDS, *change)
    assert said.code == 2
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_both_files_have_to_be_named(sh: Shell) -> None:
    said = sh("simulate", "packing", "--policy", "fgd")
    assert said.code == 2
    assert "--nodes" in said.err
