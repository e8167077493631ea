"""Starting and stopping all of a home, as processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Shell
from tests.cli.test_terminal import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    yield made
    made.sh("down", "-y", "--grace", "1s")


def _processes(home: Path) -> list[int]:
    """Whoever bears the home on its command line."""
    found: list[int] = []
    for process in psutil.process_iter(["cmdline"]):
        if str(home) in " ".join(process.info["cmdline"] or ()):
            found.append(process.pid)  # noqa: PERF401
    return found


@pytest.mark.process
@pytest.mark.slow
def test_run_starts_what_it_needs_and_down_stops_it(machine: Machine) -> None:
    ran = machine.sh("run", "--", "echo", "hello")
    assert ran.stdout == "[worker 0] hello\n"
    assert f"started Shoal (state in {machine.home}); stop it with: shoal down" in ran.stderr
    assert "started Shoal" not in machine.sh("run", "--", "true").stderr
    down = machine.sh("down")  # nothing runs, so nothing is asked
    assert "stopped the server and 1 node" in down.stderr
    assert not _processes(machine.home)
    assert "is not running here" in machine.sh("down").stderr
    assert machine.sh("get", "jobs", code=6).stdout == ""


@pytest.mark.process
@pytest.mark.slow
def test_jobs_go_on_at_the_next_up(machine: Machine) -> None:
    script = "echo start; trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done"
    machine.sh("run", "-d", "--name", "long", "--", "sh", "-c", script)
    machine.sh("wait", "long", "--for", "phase=Running", "--timeout", "60s")
    refused = machine.sh("down", code=2)
    assert "1 job with running tasks: job/long" in refused.stderr
    assert "hint: pass -y" in refused.stderr
    with machine.terminal("down") as terminal:
        terminal.until(r"Stop the tasks\? It continues at the next `shoal up`. \[y/N\] ")
        terminal.press(b"n\n")
        assert terminal.leave() == 1
    assert machine.job("long").status.phase == "Running"
    stopped = json.loads(machine.sh("down", "-y", "-o", "json").stdout)
    assert stopped["jobs"] == [{"namespace": "default", "name": "long"}]
    assert stopped["stopped"] == {"server": True, "nodes": ["local"]}
    assert not _processes(machine.home)
    machine.sh("up")
    with machine.terminal("logs", "-f", "long") as terminal:
        terminal.until("start")
    machine.sh("wait", "long", "--for", "phase=Running", "--timeout", "60s")
    assert "saved" in machine.sh("logs", "long", "--previous").stdout
    assert machine.job("long").status.failures == 0


@pytest.mark.process
@pytest.mark.slow
def test_several_nodes(machine: Machine, tmp_path: Path) -> None:
    first = json.loads(
        machine.sh("up", "--nodes", "2", "--cpu", "4", "--memory", "1Gi", "--json").stdout
    )
    assert first["started"] == {"server": True, "nodes": ["local-0", "local-1"]}
    again = machine.sh("up")
    assert "was up already" in again.stderr
    assert [line.split()[:3] for line in again.stdout.splitlines()[1:]] == [
        ["local-0", "4", "1Gi"],
        ["local-1", "4", "1Gi"],
    ]
    file = tmp_path / "nodes.yaml"
    file.write_text("[{name: big, cpu: 8, memory: 2Gi, labels: {disk: ssd}}]")
    machine.sh("up", "--nodes", str(file), "-o", "name")
    assert machine.sh("get", "nodes", "-o", "name").stdout == "node/big\n"


@pytest.mark.process
@pytest.mark.slow
def test_the_levels_of_the_topology_are_kept(machine: Machine) -> None:
    refused = machine.sh("up", "--topology", "block,node", code=2)
    assert "--topology: node is always the last level: leave it out" in refused.stderr
    first = json.loads(machine.sh("up", "--topology", "block, rack", "--json").stdout)
    assert first["topology"] == ["block", "rack"]
    assert json.loads(machine.sh("up", "--json").stdout)["topology"] == ["block", "rack"]
    cleared = json.loads(machine.sh("up", "--topology", "", "--json").stdout)
    assert cleared["topology"] == []


@pytest.mark.process
@pytest.mark.slow
def test_a_node_with_tasks_cannot_be_left_out(machine: Machine) -> None:
    machine.sh("up", "--nodes", "2", "--cpu", "1")
    machine.sh("run", "-d", "--name", "two", "--workers", "2", "--cpu", "1", "--", "sleep", "60")
    machine.sh("wait", "two", "--for", "phase=Running", "--timeout", "60s")
    machine.sh("down", "-y", "--grace", "1s")
    refused = machine.sh("up", "--nodes", "1", code=4)
    assert "nodes local-0, local-1 still have tasks" in refused.stderr
    assert "shoal drain local-0 local-1" in refused.stderr
    machine.sh("up")
    machine.sh("drain", "local-0", "local-1")
    machine.sh("wait", "two", "--for", "phase=Pending", "--timeout", "60s")
    machine.sh("up", "--nodes", "1")
    assert machine.sh("get", "nodes", "-o", "name").stdout == "node/local\n"


@pytest.mark.process
@pytest.mark.slow
def test_two_homes_live_side_by_side(machine: Machine, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    try:
        ran = machine.sh("--home", other, "run", "--", "echo", "there")
        assert f"stop it with: shoal --home {other} down" in ran.stderr
        assert "echo" in machine.sh("--home", other, "get", "jobs").stdout
        assert machine.sh("get", "jobs", code=6)
    finally:
        machine.sh("--home", other, "down", "-y")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "0"], "--nodes is a number from 1 to 64"),
        (["--nodes", "65"], "--nodes is a number from 1 to 64"),
        (["--nodes", "nope.yaml"], "No such file"),
        (["--cpu", "fast"], "--cpu"),
        (["--nodes", "2", "--gpu", "1000"], "2 x 1000 GPUs are asked for, and this machine has"),
    ],
)
def test_nodes_that_cannot_be(sh: Shell, words: list[str], says: str) -> None:
    said = sh("up", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


@pytest.mark.parametrize("text", ["a: [", "- cpu: 3", "[{name: a, cpus: 3}]", "[]", "---\n[]\n---\n[]"])
def test_files_of_nodes_that_say_nonsense(sh: Shell, tmp_path: Path, text: str) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    said = sh("up", "--nodes", str(file))
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) <= 4
    assert sh("up", "--nodes", str(file), "--cpu", "1").code == 2


@pytest.mark.parametrize("verb", ["up", "down"])
def test_another_machines_server_is_not_started_or_stopped(
    sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.delenv("SHOAL_HOME")
    (tmp_path / "config.toml").write_text("[contexts.lab]\nurl = 'http://127.0.0.1:9'")
    said = sh("--context", "lab", verb)
    assert (said.code, re.search("on this machine", said.err) is not None) == (2, True)


@pytest.mark.process
@pytest.mark.slow
def test_settings_that_mean_nothing_stop_no_decision(machine: Machine) -> None:
    """A policy of another version, and a file that is half written: jobs go on as they were decided on
    before, and whoever looks is told."""
    said = machine.sh("up", "--policy", "fifo-skip").stderr
    assert "the scheduling policy is fifo-skip; shoal up --policy shoal restores the default" in said
    file = machine.home / "settings.json"
    good = file.read_bytes()
    for number, wrong in enumerate((b'{"policy": "of-tomorrow"}', good[:-5])):
        file.write_bytes(wrong)
        machine.sh("run", "--name", f"job-{number}", "--", "true")
        newest = max((machine.home / "decisions").glob("*.json"))
        assert json.loads(newest.read_bytes())["policy"]["rules"]["policy"] == "fifo-skip"
        checks = {
            check["name"]: check
            for check in json.loads(machine.sh("doctor", "--json", code=None).stdout)["checks"]
        }
        assert checks["settings"]["status"] == "warning"
        assert "policy stays fifo-skip" in checks["settings"]["found"]
        assert checks["server"]["status"] == "ok"
    events = [
        event
        for event in json.loads(machine.sh("events", "-A", "--json").stdout)["items"]
        if event["reason"] == "SettingsIgnored"
    ]
    assert ["of-tomorrow" in event["message"] for event in events] == [True, False]
    assert [event.get("count", 1) for event in events] == [1, 1]
    refused = machine.sh("up", "--policy", "easy", code=None)
    assert refused.returncode == 2
    assert "settings.json cannot be read" in refused.stderr and "remove it" in refused.stderr
    file.write_bytes(b'{"policy": "of-tomorrow"}')
    assert "there is no policy of-tomorrow" in machine.sh("up").stderr
    machine.sh("up", "--policy", "easy")
    checks = json.loads(machine.sh("doctor", "--json", code=None).stdout)["checks"]
    assert "settings" not in [check["name"] for check in checks]
