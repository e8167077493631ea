from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shoal.cli.offline import doctor, start
from shoal.cli.settings import Settings
from tests.cli.conftest import Shell
from tests.server.harness import LiveServer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying the isolations has tests of its own; here it is what is made of the answer."""
    from shoal.cluster.local.isolation import namespaces, probe

    found = {**dict.fromkeys(namespaces.STRICT, "enforced"), "network": "the kernel says no"}
    monkeypatch.setattr(probe, "probe", lambda: found)


def test_what_a_healthy_machine_shows(sh: Shell, server: LiveServer) -> None:
    said = sh("doctor")
    assert said.code == 0, said.err
    assert said.lines[0].split() == ["CHECK", "FOUND"]
    assert {(line.split() or [""])[0] for line in said.lines} >= {
        "shoal",
        "home",
        "disk",
        "machine",
        "tmp",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="isolations are Linux's")
def test_an_isolation_that_is_missing_is_named_with_the_reason(sh: Shell) -> None:
    said = sh("doctor")
    assert "  no network: the kernel says no" in said.lines
    assert said.lines[-1] == "`isolation: strict` is refused here, because not all of it can be had."
    document = sh("doctor", "--json").document
    assert (document["healthy"], document["strict"]) == (True, False)
    by_name = {each["name"]: each for each in document["isolations"]}
    assert by_name["network"]["reason"] == "the kernel says no"
    assert by_name["tmp"]["enforced"] is True
    assert by_name["tmp"]["byDefault"] is True


def test_a_home_that_cannot_be_used_is_a_problem(sh: Shell, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    said = sh("--home", str(blocked / "home"), "doctor", "-o", "json")
    assert said.code == 1
    home = next(check for check in said.document["checks"] if check["name"] == "home")
    assert (home["status"], bool(home["remedy"])) == ("problem", True)


def test_no_server_is_worth_a_note_only(sh: Shell) -> None:
    checked = {check["name"]: check for check in sh("doctor", "--json").document["checks"]}
    assert checked["server"]["status"] == "note"
    assert checked["server"]["remedy"] == "shoal up"


def test_a_home_that_others_can_enter(tmp_path: Path) -> None:
    home = tmp_path / "open"
    home.mkdir(mode=0o755)
    home.chmod(0o755)
    found = {check.name: check for check in doctor.all_checks(Settings(home_flag=str(home)))}
    assert (found["home"].status, found["home"].remedy) == ("warning", f"chmod 700 {home}")


@pytest.mark.parametrize("words", [["up", "-o", "json"], ["run", "--json", "--", "true"]])
def test_nothing_is_started_on_a_full_disk(
    sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr(start.shutil, "disk_usage", lambda path: Usage)
    said = sh(*words)
    assert (said.code, said.document["code"]) == (1, "DiskFull")
    assert not (tmp_path / "home").exists()


def test_little_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((2**40, "ok"), (2**30, "warning"), (2**20, "problem")):

        class Usage:
            total = 2**41

        Usage.free = free  # type: ignore[attr-defined]
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path, usage=Usage: usage)
        found = {check.name: check for check in doctor.all_checks(Settings(home_flag=str(tmp_path)))}
        assert found["disk"].status == status
