from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.offline.multi_value_options import spread
from tests.cli.conftest import Shell
from tests.simulate.measured import write_application

FIELDS = [
    *("policy", "workload", "avg_jct", "p50", "p90", "p99", "makespan", "wait", "restarts_per_job"),
    *("gpu_hours", "ftf_p95", "ftf_max", "ms_per_decision", "information"),
]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    write_application(tmp_path / "traces" / "toy", noise=3.0)
    lists = tmp_path / "lists"
    lists.mkdir()
    head = "name,time,application,num_replicas,batch_size\n"
    (lists / "few.csv").write_text(head + "a,0,toy,2,16\nb,30,toy,4,32\nc,70,toy,1,8\n")
    (lists / "one.csv").write_text(head + "a,0,toy,1,8\n")
    return lists


def test_a_record_for_each_list_and_policy(sh: Shell, jobs: Path) -> None:
    words = ["--workload", str(jobs / "few.csv"), str(jobs / "one.csv"), "--policy", "fifo", "shoal"]
    said = sh("simulate", *words, "--nodes", "1", "--json")
    assert said.code == 0, said.err
    records = said.document
    assert [(each["workload"], each["policy"], each["information"]) for each in records] == [
        ("few", "fifo", "none"),
        ("few", "shoal", "declared"),
        ("one", "fifo", "none"),
        ("one", "shoal", "declared"),
    ]
    assert all(list(each) == FIELDS for each in records)
    assert records[2]["avg_jct"] == 290.0  # decided on at 60, a pause of 30, 200 steps


@pytest.mark.slow
def test_a_table_for_people_and_progress_beside_it(sh: Shell, jobs: Path) -> None:
    said = sh("simulate", "--workload", str(jobs / "one.csv"), "--policy", "fifo", "--policy", "easy")
    assert said.code == 0, said.err
    assert said.lines[0].split()[:4] == ["POLICY", "WORKLOAD", "KNOWS", "JCT"]
    assert [line.split()[:4] for line in said.lines[1:]] == [
        ["fifo", "one", "none", "290"],
        ["easy", "one", "declared", "290"],
    ]
    assert "one: fifo, 1 jobs" in said.err


@pytest.mark.slow
def test_the_example_needs_nothing_else(sh: Shell) -> None:
    said = sh("simulate", "--example", "--json")
    assert said.code == 0, said.err
    records = {each["policy"]: each for each in said.document}
    assert list(records) == ["fifo-skip", "tiresias", "shoal"]
    assert {each["workload"] for each in said.document} == {"example"}
    assert records["shoal"]["avg_jct"] < records["fifo-skip"]["avg_jct"]
    assert sh("simulate").code == 2
    assert "leave --workload out" in sh("simulate", "--example", "--workload", "x.csv").err


@pytest.mark.slow
def test_what_shoal_is_told_is_shown(sh: Shell, jobs: Path) -> None:
    for information in ("none", "profiles"):
        words = ["--workload", str(jobs / "few.csv"), "--policy", "shoal", "--information", information]
        said = sh("simulate", *words, "--json")
        assert [each["information"] for each in said.document] == [information]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no list of jobs is given"),
        (["--workload", "few.csv", "--policy", "lifo"], "there is no policy 'lifo'"),
        (["--workload", "none.csv"], "none.csv cannot be read: No such file or directory"),
        (["--workload", "few.csv", "--nodes", "0"], "--nodes"),
        (["--workload", "few.csv", "--interval", "0"], "decisions cannot be 0 seconds apart"),
        (["--workload", "few.csv", "--profiles", "nowhere"], "nowhere is not a folder"),
        (["--workload", "few.csv", "--information", "all"], "--information"),
        (["--workload", "few.csv", "--declared-error", "0.5"], "off by a factor of 0.5"),
        (["--workload", "few.csv", "--liars", "2"], "2 is no part of the jobs"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    sh: Shell,
    jobs: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(jobs)
    said = sh("simulate", *words)
    assert said.code == 2
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_a_job_that_can_never_start_is_named(sh: Shell, jobs: Path) -> None:
    words = ["--workload", str(jobs / "few.csv"), "--policy", "fifo", "--nodes", "1"]
    said = sh("simulate", *words, "--gpus-per-node", "3")
    assert said.code == 1
    assert "b, c of 2 jobs will never start on 3 GPUs" in said.err


@pytest.mark.slow
def test_pictures_and_a_page_of_them(sh: Shell, jobs: Path, tmp_path: Path) -> None:
    words = ["--workload", str(jobs / "few.csv"), str(jobs / "one.csv"), "--policy", "fifo", "shoal"]
    said = sh("simulate", *words, "--plots", str(tmp_path / "new" / "plots"))
    assert said.code == 0, said.err
    page = (tmp_path / "new" / "plots" / "index.html").read_text()
    for name in ("few", "one"):
        assert f'src="{name}.png"' in page
        picture = (tmp_path / "new" / "plots" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 10_000
    assert page.count("<tr>") == 6
    said = sh("simulate", *words, "--plots", str(jobs / "few.csv" / "below"))
    assert said.code == 2
    assert "cannot be written: Not a directory" in said.err


def test_words_after_an_option_belong_to_it() -> None:
    options = frozenset({"--policy"})
    assert spread(["--policy", "a", "b", "--json", "--policy", "c"], options) == [
        *("--policy", "a", "--policy", "b"),
        *("--json", "--policy", "c"),
    ]
    assert spread(["--nodes", "2", "x"], options) == ["--nodes", "2", "x"]
