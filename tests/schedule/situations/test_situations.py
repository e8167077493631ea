"""What users are owed in situations that field practice names; each is a scenario file."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.simulate.scenario.play import play
from shoal.simulate.scenario.whole import read_scenario

FILES = sorted(Path(__file__).parent.glob("*.yaml"))

MISSING: dict[str, str] = {
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
"""What fails today, and why. A file that passes must be taken off."""


def unmet(path: Path) -> list[str]:
    scenario = read_scenario(path)
    made = play(scenario)
    assert made[-1].at >= max((event.at for event in scenario.events), default=scenario.now)
    return [sentence for decision in made for sentence in decision.unmet]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_situation(path: Path, request: pytest.FixtureRequest) -> None:
    if path.stem in MISSING:
        request.applymarker(
            pytest.mark.xfail(strict=True, raises=AssertionError, reason=MISSING[path.stem])
        )
    assert unmet(path) == []


def test_every_missing_situation_is_a_file() -> None:
    assert set(MISSING) <= {path.stem for path in FILES}
