from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.launch import narrator
from shoal.cli.launch.narrator import Narrator
from shoal.cli.settings import Settings
from shoal.objects.job import Job, JobSpec, JobStatus, Restart, Role, Scheduling
from shoal.objects.meta import Condition, Metadata


class _Time:
    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Time:
    made = _Time()
    monkeypatch.setattr(narrator, "time", made)
    return made


def _job(**status: Any) -> Job:
    spec = JobSpec(roles=(Role(command=("x",)),), restart=Restart(limit=3))
    return Job(metadata=Metadata(name="x"), spec=spec, status=JobStatus(**status))


def _waiting(message: str) -> Job:
    return _job(scheduling=Scheduling(code="NoRoom", message=message))


def _told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_reason_to_wait_is_told_once_it_has_held(
    clock: _Time, capsys: pytest.CaptureFixture[str]
) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.tell(_waiting("no nodes"))
    tells.speak()
    assert _told(capsys) == []
    assert 0 < tells.seconds_left() < 1
    clock.seconds += 1
    tells.speak()
    tells.tell(_waiting("no nodes"))
    clock.seconds += 1
    tells.speak()
    assert _told(capsys) == ["job/x waits: no nodes"]
    tells.tell(_waiting("4 cpu are missing"))
    clock.seconds += 1
    tells.speak()
    assert _told(capsys) == ["job/x waits: 4 cpu are missing"]


def test_a_reason_that_passes_is_not_told(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.tell(_waiting("no nodes"))
    tells.tell(_job(phase="Running"))
    clock.seconds += 60
    tells.speak()
    assert _told(capsys) == []
    assert tells.seconds_left() == float("inf")


def test_a_job_that_stands_still_is_said_to(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(home_flag="/h"), "job/x")
    tells.tell(_job(phase="Starting"))
    clock.seconds += 11
    tells.speak()
    tells.speak()
    assert _told(capsys) == [
        "job/x has not got further for a while; see shoal --home /h explain job/x "
        "and shoal --home /h doctor"
    ]


def test_restarts_and_suspensions(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(), "job/x")
    restarting = Condition(type="Restarting", status="True", reason="Backoff", changed=5.0)
    job = _job(phase="Running", failures=1, restart_after=102.0, conditions=(restarting,))
    tells.tell(job)
    tells.tell(job)
    assert _told(capsys) == ["job/x starts again in 2.0s (1 of 3 restarts used)"]
    tells.tell(_job(phase="Suspended"))
    tells.tell(_job(phase="Suspended"))
    assert _told(capsys) == ["job/x is suspended; go on with: shoal resume job/x"]
    preempting = Condition(type="Preempting", status="True", reason="Shrunk", changed=6.0)
    tells.tell(_job(phase="Running", conditions=(preempting,)))
    assert _told(capsys) == ["job/x gives its place to others: Shrunk"]
