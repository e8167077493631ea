from __future__ import annotations

import msgspec
import pytest

from shoal.objects.job import ElasticStatus
from shoal.server.elastic import KEPT_RECOVERIES, KEPT_SIZES, Report, ReportedRecovery, news_of

FIRST = Report(world=2, step=10, state="running")


def told(known: ElasticStatus | None, report: Report, now: float = 100.0, attempt: int = 1):
    news = news_of(known, report, attempt, now)
    assert news is not None
    return news


def test_the_first_is_always_worth_a_write() -> None:
    news = told(None, Report())
    assert (news.resized, news.recoveries) == (True, ())
    assert [each.size for each in news.status.sizes] == [0]


@pytest.mark.parametrize(
    ("change", "worth"),
    [
        ({}, False),
        ({"step": 11, "goodput": 0.5, "step_seconds": 0.1}, False),
        ({"world": 3}, True),
        ({"state": "paused"}, True),
        ({"message": "worker-1 has gone"}, True),
        ({"recoveries": (ReportedRecovery(seconds=0.1, epoch=2),)}, True),
    ],
)
def test_numbers_alone_wait_and_what_happened_does_not(change: dict, worth: bool) -> None:
    known = told(None, FIRST).status
    again = msgspec.structs.replace(FIRST, **change)
    assert (news_of(known, again, 1, 101.0) is not None) == worth
    assert news_of(known, again, 1, 105.0) is not None


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    known = told(None, FIRST, now=1000.0).status
    assert news_of(known, FIRST, 1, 10.0) is not None


def test_a_recovery_counts_once_in_its_attempt() -> None:
    one = ReportedRecovery(seconds=0.2, epoch=4, lost_steps=1, world=1, how="rerun")
    two = ReportedRecovery(seconds=0.3, epoch=6, world=1)
    known = told(None, msgspec.structs.replace(FIRST, recoveries=(one,))).status
    news = told(known, msgspec.structs.replace(FIRST, recoveries=(one, two)))
    assert [each.epoch for each in news.recoveries] == [6]
    status = news.status
    assert (status.recoveries, status.lost_steps) == (2, 1)
    assert status.recovery_seconds == pytest.approx(0.5)
    later = told(status, msgspec.structs.replace(FIRST, recoveries=(one,)), attempt=2)
    assert later.status.recoveries == 3


def test_what_it_said_last_stands_while_the_state_does() -> None:
    said = told(None, msgspec.structs.replace(FIRST, message="worker-1 has gone"))
    assert said.new_message
    quiet = told(said.status, FIRST, now=200.0)
    assert (quiet.status.message, quiet.new_message) == ("worker-1 has gone", False)
    paused = told(said.status, msgspec.structs.replace(FIRST, state="paused"), now=200.0)
    assert paused.status.message == ""


def test_the_status_stays_small() -> None:
    known: ElasticStatus | None = None
    for number in range(1, 2000):
        recovery = ReportedRecovery(seconds=0.1, epoch=number, world=number % 7)
        report = Report(world=number % 7, step=number, message="x" * 9000, recoveries=(recovery,))
        known = told(known, report, now=float(number)).status
    assert known is not None
    assert (len(known.sizes), len(known.last_recoveries)) == (KEPT_SIZES, KEPT_RECOVERIES)
    assert known.recoveries == 1999
    assert len(msgspec.json.encode(known)) < 8192
