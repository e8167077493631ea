"""The numbered scenarios of scheduling, each a file with what is there and what has to come of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from shoal.simulate.scenario.play import play
from shoal.simulate.scenario.whole import read_scenario

FILES = sorted(Path(__file__).parent.glob("*.yaml"))

NUMBERS = [
    *("G1", "G2", "G3", "G4", "G5", "G7", "G8", "G9"),
    *("E1", "E2", "E3", "E4", "E5", "E7", "E8", "E9", "E11", "E12", "E13", "E14", "E15"),
    *("B1", "B3", "B4", "B5", "B6", "B7", "B8", "B9"),
    *("D1", "D2", "D3", "D4", "D5", "D6"),
    *("T1", "T2", "T4", "C1", "C2", "F1", "F2", "F4"),
]

NAMED = ["experiment-and-production", "worked-example", "sizes-", "policy-"]
"""Scenarios of no list, by the beginning of their names."""


SHARES = Path(__file__).parent.parent / "shares"
AS_ARITHMETIC = {
    "D2": SHARES / "test_tasks.py",
    "D3": SHARES / "test_tasks.py",
    "E15": SHARES / "test_laws.py",
}
"""Divisible tasks and laws about any queues at all: no file could say them."""

SLOW = frozenset({"B9-equal-jobs-that-cannot-start"})
"""Take more than a quarter of a second."""

MISSING: dict[str, str] = {}
"""What is not right yet, and what it lacks. A file that holds again must be taken off."""


def marks(path: Path) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.slow] if path.stem in SLOW else []
    if path.stem in MISSING:
        found.append(pytest.mark.xfail(strict=True, reason=MISSING[path.stem]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [pytest.param(path, id=f"scheduling-{path.stem}", marks=marks(path)) for path in FILES]
)
def test_a_scenario_comes_as_its_file_expects(path: Path) -> None:
    scenario = read_scenario(path)
    assert scenario.description
    assert scenario.expect is not None or any(event.expect for event in scenario.events)
    decisions = play(scenario)
    # an event that nobody came to would be expected in vain
    assert decisions[-1].at >= max((event.at for event in scenario.events), default=scenario.now)
    assert not [sentence for decision in decisions for sentence in decision.unmet]


@pytest.mark.parametrize("number", NUMBERS)
def test_no_scenario_is_missing(number: str) -> None:
    if number in AS_ARITHMETIC:
        tests = ast.walk(ast.parse(AS_ARITHMETIC[number].read_text()))
        said = [ast.get_docstring(each) for each in tests if isinstance(each, ast.FunctionDef)]
        assert any(f"scheduling-{number}" in (words or "") for words in said)
    else:
        assert [path for path in FILES if path.stem.split("-")[0] == number]


def test_every_file_is_of_a_list() -> None:
    known = (*(f"{number}-" for number in NUMBERS), *NAMED)
    assert not [path.stem for path in FILES if not path.stem.startswith(known)]
    assert not {*SLOW, *MISSING} - {path.stem for path in FILES}
