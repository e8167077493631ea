"""What holds for the whole cluster of a home."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cluster.local import settings
from shoal.cluster.local.home import Home
from shoal.cluster.local.settings import ClusterSettings, LiveSettings
from shoal.objects.errors import Invalid

GOOD = ClusterSettings(topology=("block", "rack"), policy="dragon", record=3)


def test_they_are_the_defaults_until_somebody_says_otherwise(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    assert settings.load(home) == ClusterSettings()
    said = ClusterSettings(topology=("block", "rack"))
    settings.save(home, said)
    assert settings.load(Home(tmp_path)) == said
    settings.save(home, ClusterSettings())
    assert settings.load(home) == ClusterSettings()
    assert not list(tmp_path.glob("settings.*[!n]")), "no draft stays"


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    home.settings_json.write_text('{"topology": 3}')
    with pytest.raises(Invalid, match=r"settings\.json cannot be read") as raised:
        settings.load(home)
    assert raised.value.hint == "remove it"


UNREADABLE = {
    "no JSON": b"policy: fifo",
    "empty": b"",
    "half written": b'{"topology": ["block", "rack"], "poli',
    "not an object": b'["fifo"]',
    "no text": b'{"policy": "\xff\xfe"}',
    "a policy of another type": b'{"policy": 7}',
    "levels of another type": b'{"topology": {"block": 1}}',
    "a record of another type": b'{"record": "many"}',
    "a number beyond all": b'{"record": 1e999}',
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_was_read_last_holds_while_the_file_cannot_be_read(tmp_path: Path, name: str) -> None:
    """Said once, and no more once it is mended."""
    home = Home(tmp_path).create()
    settings.save(home, GOOD)
    told: list[str] = []
    watched = LiveSettings(home, told.append)
    assert (watched(), watched.problem) == (GOOD, "")
    home.settings_json.write_bytes(UNREADABLE[name])
    assert [watched() for _ in range(3)] == [GOOD] * 3
    assert told == [watched.problem]
    assert "settings.json cannot be read" in watched.problem
    assert watched.problem.endswith(
        "until it is mended topology stays block,rack, policy stays dragon, record stays 3"
    )
    settings.save(home, ClusterSettings(policy="easy"))
    assert (watched().policy, watched.problem, len(told)) == ("easy", "", 1)


def test_the_problem_is_reported_without_reading_the_file(tmp_path: Path) -> None:
    """Health checks ask for it on the event loop."""
    home = Home(tmp_path).create()
    watched = LiveSettings(home)
    watched()
    home.settings_json.write_bytes(b"{")
    assert watched.problem == ""
    watched()
    assert "settings.json cannot be read" in watched.problem


def test_a_folder_in_its_place_is_told_as_well(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    home.settings_json.mkdir()
    told: list[str] = []
    assert LiveSettings(home, told.append)() == ClusterSettings()
    assert len(told) == 1 and "Is a directory" in told[0]


def test_a_policy_that_this_version_does_not_know_changes_nothing_but_the_policy(tmp_path: Path) -> None:
    """Nor does what a newer version has written beside it."""
    home = Home(tmp_path).create()
    settings.save(home, GOOD)
    told: list[str] = []
    watched = LiveSettings(home, told.append)
    watched()
    home.settings_json.write_text('{"policy": "dragoon", "topology": ["zone"], "newer": {"a": 1}}')
    assert watched() == ClusterSettings(topology=("zone",), policy="dragon")
    (said,) = told
    assert "there is no policy dragoon" in said and "did you mean dragon?" in said
    assert said.endswith("until it is mended policy stays dragon")


def test_before_any_that_can_be_the_defaults_hold(tmp_path: Path) -> None:
    home = Home(tmp_path).create()
    home.settings_json.write_text('{"policy": "x", "topology": ["node"], "record": -1}')
    told: list[str] = []
    watched = LiveSettings(home, told.append)
    assert watched() == ClusterSettings()
    assert len(told) == 1
    for words in ("no policy x", "leave it out", "-1 decisions cannot be kept"):
        assert words in told[0]
