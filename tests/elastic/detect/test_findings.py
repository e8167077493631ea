"""What follows from looks at a worker, told the time."""

from __future__ import annotations

from shoal.elastic.detect.findings import Findings, Look
from shoal.elastic.detect.progress import Shown

INTERVAL = 0.05


class Watching:
    """A worker that is looked at every 50 ms of virtual time; collects what follows."""

    def __init__(self, max_stall: float) -> None:
        self.findings = Findings(max_stall, INTERVAL)
        self.now = 100.0
        self.marks = self.answers = 0
        self.training = True
        self.stopped = False
        self.said: list[str] = []
        self.asked = self.ended = 0
        self.look()

    def look(self, *, gone: bool = False) -> None:
        shown = Shown(self.marks, self.training, self.answers)
        outcome = self.findings.look(Look(gone, self.stopped, shown), self.now)
        self.said += [each["type"] for each in outcome.evidence]
        self.asked += outcome.ask
        self.ended += outcome.end

    def run(self, seconds: float, *, marks: bool = False) -> None:
        for _ in range(round(seconds / INTERVAL)):
            self.now += INTERVAL
            self.marks += marks
            self.look()


def test_progress_is_no_news() -> None:
    worker = Watching(1.0)
    worker.run(60.0, marks=True)
    assert not worker.said
    assert not worker.findings.standing()


def test_a_stall_is_said_once_and_its_worker_asked_once() -> None:
    worker = Watching(1.0)
    worker.run(1.0)
    assert not worker.said
    worker.run(0.5)
    assert (worker.said, worker.asked, worker.ended) == (["stalled"], 1, 0)
    (standing,) = worker.findings.standing()
    assert standing["type"] == "stalled"
    assert 1.4 < standing["seconds"] < 1.6


def test_a_worker_that_does_not_answer_is_ended() -> None:
    """training-V1: after max_stall and the time for an answer, once."""
    worker = Watching(10.0)
    worker.run(11.9)
    assert worker.ended == 0
    worker.run(5.0)
    assert worker.ended == 1


def test_a_worker_that_answers_has_as_long_again() -> None:
    worker = Watching(10.0)
    worker.run(10.1)
    worker.answers += 1
    worker.run(9.8)
    assert worker.ended == 0
    worker.run(0.3)
    assert worker.ended == 1


def test_a_stall_that_is_over_is_forgotten() -> None:
    worker = Watching(1.0)
    worker.run(1.5)
    worker.marks += 1
    worker.run(0.9)
    assert worker.said == ["stalled"]
    assert not worker.findings.standing()
    worker.run(0.3)
    assert worker.said == ["stalled", "stalled"]


def test_waiting_for_others_is_no_stall() -> None:
    worker = Watching(1.0)
    worker.training = False
    worker.run(60.0)
    worker.training = True
    worker.run(0.9)
    assert not worker.said


def test_the_time_that_a_worker_is_stopped_does_not_count() -> None:
    worker = Watching(1.0)
    worker.stopped = True
    worker.run(60.0)
    worker.stopped = False
    worker.run(0.9)
    assert worker.said == ["stopped", "continued"]


def test_the_time_that_the_sidecar_sleeps_does_not_count() -> None:
    """A machine that was frozen for a minute has no stalled workers."""
    worker = Watching(1.0)
    worker.now += 60.0
    worker.look()
    worker.run(0.7)
    assert not worker.said


def test_gone_is_said_once_and_stands_for_all() -> None:
    worker = Watching(1.0)
    worker.stopped = True
    worker.run(0.1)
    worker.look(gone=True)
    worker.look(gone=True)
    assert worker.said == ["stopped", "gone"]
    assert worker.findings.gone
    assert worker.findings.standing() == [{"type": "gone"}]


def test_a_stopped_worker_stands() -> None:
    worker = Watching(1.0)
    assert not Findings(1.0, INTERVAL).standing()
    worker.stopped = True
    worker.run(0.1)
    assert worker.findings.standing() == [{"type": "stopped"}]
