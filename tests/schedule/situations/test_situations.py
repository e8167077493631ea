"""What users are owed in situations of field practice, and the numbered scenarios, on both cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.simulate.scenario.play import decided_by, play
from shoal.simulate.scenario.whole import read_scenario

HERE = Path(__file__).parent
SITUATIONS = sorted(HERE.glob("*.yaml"))
SCENARIOS = sorted((HERE.parent / "scenarios").glob("*.yaml"))

OLD: dict[str, str] = {
    "elastic-equal-queues": "the second elastic job stays at its minimum",
    "elastic-production-other-queue": "surplus is not divided by class across queues",
    "elastic-production-same-queue": "surplus is not divided by class inside a queue",
    "explain-scattered": "the reason does not name the largest free block",
    "greedy-user": "usage of users over time does not order their jobs",
    "idle-before-a-date": "reserved capacity is not lent to elastic jobs of other queues",
    "own-quota-gangs-crosswise": "victims and moves are not combined",
    "own-quota-scattered": "victims are chosen apart from nodes",
    "reservation-does-not-drift": "a date is promised that guaranteed capacity rules out",
    "reservation-under-a-stream": "dates slide under claims within another queue's nominal",
}
"""What fails on the core that the server runs, and why. A file that passes must be taken off."""

CORE: dict[str, str] = {}
"""What fails on the core in preparation, and why."""

SLOW = {
    "B4-as-many-dates-as-the-depth": "a thousand jobs",
    "B9-equal-jobs-that-cannot-start": "five thousand jobs",
    "greedy-user": "two hundred decisions with thirty-two dates each",
}


def unmet(path: Path, *, core: bool) -> list[str]:
    scenario = read_scenario(path)
    made = play(decided_by(scenario, edition=2 if core else 1))
    last = max((event.at for event in scenario.events), default=scenario.now)
    assert made[-1].at >= last or made[-1].unmet
    return [sentence for decision in made for sentence in decision.unmet]


def judged(paths: list[Path], missing: dict[str, str]) -> list[object]:
    found: list[object] = []
    for path in paths:
        marks = [pytest.mark.slow] if path.stem in SLOW else []
        if path.stem in missing:
            reason = missing[path.stem]
            marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason))
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", judged(SITUATIONS, OLD))
def test_situation_on_the_core_of_the_server(path: Path) -> None:
    assert unmet(path, core=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", judged(SITUATIONS, CORE))
def test_situation_on_the_core_in_preparation(path: Path) -> None:
    assert unmet(path, core=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", judged(SCENARIOS, CORE))
def test_scenario_on_the_core_in_preparation(path: Path) -> None:
    assert unmet(path, core=True) == []


def test_missing_files_exist() -> None:
    assert OLD.keys() | CORE.keys() | SLOW.keys() <= {path.stem for path in SITUATIONS + SCENARIOS}
