"""Small scenario files, written and read."""

from __future__ import annotations

import textwrap
from pathlib import Path

from shoal.objects.yaml_events import parse_documents
from shoal.simulate.scenario.play import Decision, play
from shoal.simulate.scenario.spot import Spot
from shoal.simulate.scenario.whole import Scenario, read_scenario

__all__ = ["played", "scenario", "spot"]


def scenario(folder: Path, text: str) -> Scenario:
    path = folder / "small.yaml"
    path.write_text(textwrap.dedent(text))
    return read_scenario(path)


def played(folder: Path, text: str) -> list[Decision]:
    return play(scenario(folder, text))


def spot(text: str) -> Spot:
    """The value of a file of one value."""
    (document,), problems = parse_documents(textwrap.dedent(text))
    assert not problems
    return Spot(document.value, (), document, "small.yaml")
