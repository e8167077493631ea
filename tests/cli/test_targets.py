from __future__ import annotations

import pytest

from shoal.cli.failures import Usage
from shoal.cli.settings import Settings
from shoal.cli.targets import Target, one, several, targets
from shoal.objects.errors import NotFound
from shoal.objects.kinds import JOB, NODE, QUEUE


def test_every_way_to_name_objects() -> None:
    settings = Settings(namespace_flag="team-a")
    assert targets(["jobs"], settings) == []
    assert targets(["jobs", "a", "b"], settings) == [
        Target(JOB, "team-a", "a"),
        Target(JOB, "team-a", "b"),
    ]
    assert targets(["job/a", "queue/q"], settings) == [
        Target(JOB, "team-a", "a"),
        Target(QUEUE, "", "q"),
    ]
    assert several(["a", "job/a"], settings, JOB) == [Target(JOB, "team-a", "a")]
    assert str(one("no/n", settings, NODE)) == "node/n"


@pytest.mark.parametrize("words", [["job/"], ["job/a/b"], ["job/a", "b"]])
def test_what_names_nothing(words: list[str]) -> None:
    with pytest.raises(Usage):
        targets(words, Settings())


def test_a_wrong_kind_is_said() -> None:
    with pytest.raises(Usage, match="node/n is not a job"):
        several(["node/n"], Settings(), JOB)
    with pytest.raises(NotFound, match="no kind called 'jop'"):
        targets(["jop/x"], Settings())
