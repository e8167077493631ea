from __future__ import annotations

from typing import Any

import pytest

from shoal.cli.launch import attach
from shoal.cli.launch.attach import Narrator
from shoal.cli.settings import Settings
from shoal.history.base import About, Entry
from shoal.objects.job import (
    ElasticStatus,
    Job,
    JobSpec,
    JobStatus,
    Restart,
    Role,
    Scheduling,
    WorldSize,
)
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
    monkeypatch.setattr(attach, "time", made)
    return made


def _job(**status: Any) -> Job:
    spec = JobSpec(roles=(Role(command=("x",)),), restart=Restart(limit=3))
    return Job(metadata=Metadata(name="x"), spec=spec, status=JobStatus(**status))


def _waiting(message: str) -> Job:
    return _job(scheduling=Scheduling(code="NoRoom", message=message))


def _told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_job_that_waits_for_another_says_so(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.observe(_job(reason="Dependency", message="it starts after job/a succeeds"))
    clock.seconds += 1
    tells.speak()
    clock.seconds += 1000
    tells.speak()
    assert _told(capsys) == ["job/x waits: it starts after job/a succeeds"]


def test_a_reason_to_wait_is_told_once_it_has_held(
    clock: _Time, capsys: pytest.CaptureFixture[str]
) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.observe(_waiting("no nodes"))
    tells.speak()
    assert _told(capsys) == []
    assert 0 < tells.seconds_left() < 1
    clock.seconds += 1
    tells.speak()
    tells.observe(_waiting("no nodes"))
    clock.seconds += 1
    tells.speak()
    assert _told(capsys) == ["job/x waits: no nodes"]
    tells.observe(_waiting("4 cpu are missing"))
    clock.seconds += 1
    tells.speak()
    assert _told(capsys) == ["job/x waits: 4 cpu are missing"]


def test_a_reason_that_passes_is_not_told(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.observe(_waiting("no nodes"))
    tells.observe(_job(phase="Running"))
    clock.seconds += 60
    tells.speak()
    assert _told(capsys) == []
    assert tells.seconds_left() == float("inf")


def test_a_job_that_stands_still_is_said_to(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(home_flag="/h"), "job/x")
    tells.observe(_job(phase="Starting"))
    clock.seconds += 11
    tells.speak()
    tells.speak()
    assert _told(capsys) == [
        "job/x makes no progress towards its start; see shoal --home /h explain job/x "
        "and shoal --home /h doctor"
    ]


def _event(identity: str, reason: str, message: str, severity: Any = "Normal") -> Entry:
    about = About(kind="Job", namespace="default", name="x")
    return Entry(
        id=identity, type="event", about=about, at=5.0, reason=reason, message=message, severity=severity
    )


def test_which_worker_ended_and_why(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    recorded: list[Entry] = [_event("1", "Started", "job started")]

    def events(after: str) -> list[Entry]:
        ids = [each.id for each in recorded]
        return recorded[ids.index(after) + 1 if after else 0 :]

    tells = Narrator(Settings(), "job/x", events=events)
    tells.observe(_job(phase="Running"))
    tells.observe(_job(phase="Running", failures=1, restart_after=102.0))
    tells.speak()
    assert _told(capsys) == []  # its event comes a moment after the status
    recorded.append(_event("2", "Restarting", "worker 2 was killed for using 400 MiB", "Warning"))
    clock.seconds += 0.5
    tells.speak()
    clock.seconds += 5
    tells.speak()
    assert _told(capsys) == ["job/x: worker 2 was killed for using 400 MiB"]
    assert tells.seconds_left() == float("inf")
    preempting = Condition(type="Preempting", status="True", reason="Preempted", changed=6.0)
    recorded.append(_event("3", "Preempted", "3 tasks are stopped for job/urgent"))
    tells.observe(_job(phase="Running", failures=1, conditions=(preempting,)))
    tells.speak()
    assert _told(capsys) == ["job/x: 3 tasks are stopped for job/urgent"]


def test_a_change_without_an_event_is_said_from_the_status(
    clock: _Time, capsys: pytest.CaptureFixture[str]
) -> None:
    tells = Narrator(Settings(), "job/x")
    restarting = Condition(type="Restarting", status="True", reason="Backoff", changed=5.0)
    job = _job(phase="Running", failures=1, restart_after=102.0, conditions=(restarting,))
    for _ in range(2):
        tells.observe(job)
        tells.speak()
    clock.seconds += 3
    tells.speak()
    tells.speak()
    assert _told(capsys) == ["job/x: tasks that failed start again in 2.0s; 1 of 3 restarts used"]


def test_a_suspension_is_said_once(clock: _Time, capsys: pytest.CaptureFixture[str]) -> None:
    tells = Narrator(Settings(), "job/x")
    tells.observe(_job(phase="Suspended"))
    tells.observe(_job(phase="Suspended"))
    assert _told(capsys) == ["job/x is suspended; continue it with: shoal resume job/x"]


def _elastic(**status: Any) -> Job:
    role = Role(command=("x",), replicas=4, min_replicas=1)
    spec = JobSpec(roles=(role,), runtime="elastic")
    return Job(metadata=Metadata(name="x"), spec=spec, status=JobStatus(**status))


def test_a_script_that_does_not_join_is_warned_of(
    clock: _Time, capsys: pytest.CaptureFixture[str]
) -> None:
    tells = Narrator(Settings(), "job/x")
    empty = ElasticStatus(
        world=0, sizes=(WorldSize(at=1.0, size=0),)
    )  # what a coordinator reports first
    tells.observe(_elastic(phase="Running", elastic=empty))
    clock.seconds += 31
    tells.speak()
    (line,) = _told(capsys)
    assert line.startswith("warning: no worker of job/x has joined the training")
    tells.end(_elastic(phase="Succeeded"))
    assert _told(capsys) == []
    early = Narrator(Settings(), "job/x")
    early.end(_elastic(phase="Succeeded"))
    assert len(_told(capsys)) == 1
    joined = Narrator(Settings(), "job/x")
    joined.observe(_elastic(phase="Running"))
    joined.observe(_elastic(phase="Running", elastic=ElasticStatus(world=2)))
    clock.seconds += 60
    joined.speak()
    joined.end(_elastic(phase="Succeeded"))
    assert _told(capsys) == []
