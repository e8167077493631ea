"""The numbered scenarios of scheduling, each a file that says what is there and what has to come of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from shoal.simulate.scenario.play import play
from shoal.simulate.scenario.whole import read_scenario

FILES = sorted(Path(__file__).parent.glob("*.yaml"))

NUMBERS = (
    "G1 G2 G3 G4 G5 G7 G8 G9 "
    "E1 E2 E3 E4 E5 E7 E8 E9 E11 E12 E13 E14 E15 "
    "B1 B3 B4 B5 B6 B7 B8 B9 "
    "D1 D2 D3 D4 D5 D6 "
    "T1 T2 T4 C1 C2 F1 F2 F4"
).split()

SHARES = Path(__file__).parent.parent / "shares"
AS_ARITHMETIC = {
    "D2": SHARES / "test_tasks.py",
    "D3": SHARES / "test_tasks.py",
    "E15": SHARES / "test_laws.py",
}
"""Divisible tasks and laws about any queues at all: no file could say them."""

SLOW = frozenset({"B9-equal-jobs-that-cannot-start"})
"""Take more than a quarter of a second."""

MISSING: dict[str, str] = {
    "B3-one-licence": "who lacks a licence alone gets no date, and who is behind it gets its",
    "B3-six-licences": "who lacks a licence alone gets no date, and who is behind it gets its",
    "B5-large-job-under-a-stream-capacity": "small jobs start on what is kept for a starved one",
    "B6-what-is-idle-is-lent-until-the-date": "what was lent is not taken back before the date",
    "B7-unknown-length-takes-turns-quota": "who waits for its queue's limit takes no turns",
    "B7-unknown-length-takes-turns": "who takes a turn has no slots reserved when the other is told",
    "D4-deserved-first-then-by-priority": "a queue's priority has no effect",
    "D5-limit-is-never-exceeded": "of two jobs over the limit the second is told of room",
    "E7-free-node-and-taken-node": "what is idle is not counted beside what is preempted",
    "T1-no-rack-has-room": "the reason does not name the rack",
}
"""What is not right yet, and what it lacks. A file that holds again must be taken off."""


def marks(path: Path) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.slow] if path.stem in SLOW else []
    if path.stem in MISSING:
        found.append(pytest.mark.xfail(strict=True, reason=MISSING[path.stem]))
    return found


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


def test_every_file_has_a_number() -> None:
    assert not [path.stem for path in FILES if path.stem.split("-")[0] not in NUMBERS]
    assert not {*SLOW, *MISSING} - {path.stem for path in FILES}
