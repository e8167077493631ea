"""The cheapest measurement, from the command line to what it leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.elastic.jobs.job import REPOSITORY
from bench.elastic.results import load

pytestmark = [pytest.mark.slow, pytest.mark.process]


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.elastic", *words, "--results", str(folder / "results")]
    return subprocess.run(
        [*command, "--folder", str(folder)], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
        capture_output=True, check=False, text=True, timeout=110,
    )  # fmt: skip


@pytest.mark.soak
def test_a_smoke_run_kills_workers_and_keeps_what_it_saw(tmp_path: Path) -> None:
    done = _run("kill2", "--quick", folder=tmp_path)
    print(done.stderr)
    assert done.returncode == 0
    kept = load(tmp_path / "results")["kill2"].report
    (row,) = kept.rows
    assert row.number == "G1"
    assert 0 < row.figure < 60
    (line,) = kept.systems
    assert (line.system, line.recovered) == ("Shoal", line.tries)
    assert "G1 SIGKILL 1 of 2" in done.stdout
    again = _run("--show", folder=tmp_path)
    assert again.stdout == done.stdout


def test_a_smoke_run_is_never_written_to_the_page(tmp_path: Path) -> None:
    done = _run("--quick", "--write", folder=tmp_path)
    assert done.returncode == 2
    assert "never written" in done.stderr
