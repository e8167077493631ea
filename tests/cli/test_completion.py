from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoal.client import Client
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer, a_job


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(sh: Shell, shell: str) -> None:
    said = sh("completion", shell)
    assert said.code == 0
    assert f"_SHOAL_COMPLETE={shell}_complete" in said.out
    assert sh("completion", "powershell").code == 2


def _completed(words: str, home: Path, seconds: str = "20") -> list[str]:
    """What bash would be told for a line that ends in these words."""
    environment = {
        **os.environ,
        "SHOAL_HOME": str(home),
        "SHOAL_COMPLETION_SECONDS": seconds,
        "_SHOAL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - (0 if words.endswith(" ") else 1)),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "shoal.cli"], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


EXPERIMENTS = ["experiments", "experiment/", "trials", "trial/"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("shoal unc", ["uncordon"]),
        ("shoal get ", ["jobs", "job/", "queues", "queue/", "nodes", "node/", *EXPERIMENTS]),
        ("shoal get q", ["queues", "queue/"]),
        ("shoal get jobs ", ["digits", "train"]),
        ("shoal get job/t", ["job/train"]),
        ("shoal logs ", ["job/digits", "job/train"]),
        ("shoal logs tr", ["train"]),
        ("shoal -n team-a cancel job/", ["job/other"]),
        ("shoal cordon ", []),
        ("shoal get xyzzy/", []),
        ("shoal run --work", ["--workers"]),
        ("shoal get jobs -o w", ["wide"]),
    ],
)
def test_live_names(
    server: LiveServer, client: Client, tmp_path: Path, words: str, suggested: list[str]
) -> None:
    for name in ("train", "digits"):
        client.create(a_job(name))
    client.create(a_job("other", namespace="team-a"))
    assert _completed(words, tmp_path / "home") == suggested


@pytest.mark.slow
def test_without_a_server_it_is_silent(tmp_path: Path) -> None:
    assert _completed("shoal get jobs ", tmp_path) == []


@pytest.mark.slow
def test_a_server_that_hangs_costs_no_time(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "api.sock"))
        listener.listen(1)
        begun = time.monotonic()
        assert _completed("shoal get jobs ", tmp_path, "0.3") == []
    assert time.monotonic() - begun < 5.0  # 0.3 s of its own; the rest is a busy machine's


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_accepts_the_script(sh: Shell) -> None:
    script = sh("completion", "bash").out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
