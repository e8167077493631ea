"""What every History and every Logs must do: inherit, and give a fixture that makes one.

    class TestMine(HistoryContract):
        @pytest.fixture
        def history(self) -> Iterator[History]: ...

Each test's name is the rule. `shoal.history.base` says the rules in words.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from msgspec import structs

from shoal.history.base import (
    MESSAGE_LIMIT,
    About,
    Entry,
    History,
    JobKey,
    LogChunk,
    LogKey,
    Logs,
    Point,
    Retention,
)
from shoal.objects.errors import Expired

__all__ = ["HistoryContract", "LogsContract"]

JOB = About(kind="Job", namespace="team-a", name="digits", uid="u1")
NODE = About(kind="Node", namespace="", name="node-1", uid="n1")


class HistoryContract:
    """The rules of `shoal.history.base.History`. The fixture `history` gives an empty one."""

    def test_an_entry_comes_back_as_it_was(self, history: History) -> None:
        event = Entry(
            id="a", type="event", about=JOB, at=1000.25, reason="Started", message="It has started.",
            severity="Warning", count=3, value=0.5, data={"b": [1, 2.5, None, {"c": "é\n"}]},
        )  # fmt: skip
        history.append((event,))
        assert history.entries() == (event,)
        assert history.entries()[0] == event

    def test_nothing_is_there_at_first(self, history: History) -> None:
        assert history.entries() == ()
        assert history.entries(newest=True, limit=3) == ()
        history.append(())
        assert history.entries() == ()

    def test_entries_come_in_the_order_of_stamps_then_of_appending(self, history: History) -> None:
        history.append((entry("late", 30.0), entry("first", 10.0)))
        history.append((entry("z", 20.0), entry("b", 20.0)))
        history.append((entry("a", 20.0),))
        assert ids(history) == ["first", "z", "b", "a", "late"]

    def test_the_same_id_is_one_entry_and_keeps_its_place(self, history: History) -> None:
        history.append((entry("a", 10.0), entry("b", 10.0), entry("c", 11.0)))
        for count in (2, 3):
            history.append((entry("a", 99.0, count=count, reason="Again", data={"n": count}),))
        assert ids(history) == ["a", "b", "c"]
        again = history.entries()[0]
        assert (again.at, again.count, again.reason, again.data) == (10.0, 3, "Again", {"n": 3})

    def test_the_same_id_twice_in_one_append(self, history: History) -> None:
        history.append((entry("a", 10.0), entry("a", 10.0, count=2)))
        assert [(each.id, each.count) for each in history.entries()] == [("a", 2)]

    def test_types_select(self, history: History) -> None:
        history.append((entry("a", 1.0), entry("b", 2.0, type="usage"), entry("c", 3.0, type="metric")))
        assert ids(history, types=("usage",)) == ["b"]
        assert ids(history, types=("event", "metric")) == ["a", "c"]

    def test_an_object_has_its_own_history(self, history: History) -> None:
        other = About(kind="Job", namespace="team-b", name="digits", uid="u2")
        later = About(kind="Job", namespace="team-a", name="digits", uid="u3")
        second = About(kind="Job", namespace="team-a", name="speech", uid="u4")
        for at, about in enumerate((JOB, other, later, second, NODE)):
            history.append((entry(about.uid, float(at), about=about),))
        assert ids(history, about=JOB) == ["u1"]
        assert ids(history, about=About(kind="Job", namespace="team-a", name="digits")) == ["u1", "u3"]
        assert ids(history, about=About(kind="Job", namespace="team-a", name="")) == ["u1", "u3", "u4"]
        assert ids(history, about=About(kind="Job", namespace="", name="")) == ["u1", "u2", "u3", "u4"]
        assert ids(history, about=About(kind="Node", namespace="", name="node-1")) == ["n1"]
        assert ids(history, about=About(kind="Queue", namespace="", name="node-1")) == []
        assert ids(history, namespace="team-b") == ["u2"]

    def test_since_is_inclusive(self, history: History) -> None:
        history.append(tuple(entry(str(at), float(at)) for at in range(5)))
        assert ids(history, since=3.0) == ["3", "4"]
        assert ids(history, since=3.5) == ["4"]

    def test_pages_continue_after_an_entry(self, history: History) -> None:
        wanted = [f"e{number}" for number in range(25)]
        history.append(tuple(entry(each, float(at // 4)) for at, each in enumerate(wanted)))
        seen: list[str] = []
        while page := history.entries(after=seen[-1] if seen else "", limit=4):
            seen += [each.id for each in page]
        assert seen == wanted

    def test_newest_is_the_last_in_the_same_order(self, history: History) -> None:
        history.append(tuple(entry(str(at), float(at)) for at in range(10)))
        assert ids(history, newest=True, limit=3) == ["7", "8", "9"]
        assert ids(history, newest=True, limit=3, after="7") == ["8", "9"]
        assert ids(history, newest=True) == ids(history)

    def test_after_an_entry_that_is_not_there(self, history: History) -> None:
        history.append((entry("a", 1.0),))
        with pytest.raises(Expired):
            history.entries(after="gone")

    def test_any_text_can_be_kept(self, history: History) -> None:
        nasty = "nul \0, surrogate \ud800, emoji \U0001f41f, quote ' \" \\ %s :x"
        data: dict[str, Any] = {nasty: [nasty, {"x": (nasty,)}]}
        history.append((entry("a", 1.0, reason=nasty, message=nasty, data=data), entry("b", 2.0)))
        found = history.entries()
        assert [each.id for each in found] == ["a", "b"]
        assert "emoji \U0001f41f, quote ' \" \\ %s :x" in found[0].message
        assert len(found[0].data) == 1

    def test_a_long_message_is_cut_and_says_so(self, history: History) -> None:
        history.append((entry("a", 1.0, message="x" * (MESSAGE_LIMIT + 500)),))
        assert history.entries()[0].message.endswith("(500 more characters)")

    def test_what_is_not_a_number_has_no_value(self, history: History) -> None:
        values = (1.5, float("nan"), float("inf"), None)
        history.append(tuple(entry(str(at), float(at), value=v) for at, v in enumerate(values)))
        assert [each.value for each in history.entries()] == [1.5, None, None, None]

    def test_old_entries_are_trimmed(self, history: History) -> None:
        history.append(tuple(entry(str(at), float(at)) for at in range(10)))
        assert history.trim(Retention(max_age_seconds=5.0), now=12.0) == 7
        assert ids(history) == ["7", "8", "9"]
        assert history.trim(Retention(max_age_seconds=5.0), now=12.0) == 0

    def test_each_object_keeps_its_newest(self, history: History) -> None:
        for number in range(6):
            history.append((entry(f"j{number}", float(number)), entry(f"n{number}", 0.0, about=NODE)))
        retention = Retention(max_age_seconds=1e9, max_entries_per_object=4)
        assert history.trim(retention, now=10.0) == 4
        assert ids(history, about=JOB) == ["j2", "j3", "j4", "j5"]
        assert ids(history, about=NODE) == ["n2", "n3", "n4", "n5"]

    def test_there_is_a_bound_on_all(self, history: History) -> None:
        for number in range(6):
            about = About(kind="Job", namespace="a", name=str(number), uid=str(number))
            history.append((entry(str(number), float(number), about=about),))
        assert history.trim(Retention(max_age_seconds=1e9, max_entries=2), now=10.0) == 4
        assert ids(history) == ["4", "5"]

    def test_threads_append_and_read_at_once(self, history: History) -> None:
        def work(thread: int) -> None:
            for number in range(50):
                history.append((entry(f"{thread}/{number}", float(number)),))
                mine = [i for i in ids(history) if i.startswith(f"{thread}/")]
                seen.append(mine == [f"{thread}/{n}" for n in range(number + 1)])

        seen: list[bool] = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert seen == [True] * 200

    def test_points_come_back_in_the_order_of_appending(self, history: History) -> None:
        first, second = point(1, step=7, role="worker", index=3, incarnation=2), point(2, at=1.0)
        assert history.append_points((first, second)) == 2
        assert history.append_points((point(1, writer="other"),)) == 1
        found = history.points("team-a", job="digits")
        assert [each.order for each in found] == sorted({each.order for each in found})
        assert [structs.replace(each, order=0) for each in found[:2]] == [first, second]
        assert found[2].writer == "other"

    def test_a_point_that_is_appended_again_is_ignored(self, history: History) -> None:
        assert history.append_points((point(1, value=0.5), point(1, value=0.6))) == 1
        assert history.append_points((point(1, value=0.7), point(2))) == 1
        assert [each.value for each in history.points("team-a", uid="u1")] == [0.5, 0.0]
        assert history.append_points(()) == 0

    def test_points_that_are_no_finite_number_are_kept(self, history: History) -> None:
        values = (math.nan, math.inf, -math.inf)
        history.append_points([point(at, value=value) for at, value in enumerate(values)])
        found = [each.value for each in history.points("team-a")]
        assert math.isnan(found[0])
        assert found[1:] == [math.inf, -math.inf]

    def test_points_are_selected(self, history: History) -> None:
        other = JobKey(namespace="team-a", name="digits", uid="u2")
        history.append_points((point(1, name="loss"), point(2, name="accuracy"), point(3, job=other)))
        assert numbers(history, uid="u1") == [1, 2]
        assert numbers(history, job="digits") == [1, 2, 3]
        assert numbers(history, job="digits", uid="u2") == [3]
        assert numbers(history, names=("loss",)) == [1, 3]
        assert numbers(history, limit=2) == [1, 2]
        place = history.points("team-a", limit=1)[0].order
        assert numbers(history, after=place) == [2, 3]
        assert history.points("team-b") == ()

    def test_jobs_with_new_points(self, history: History) -> None:
        assert history.jobs_with_points(0) == (0, ())
        other = JobKey(namespace="team-b", name="speech", uid="u2")
        history.append_points((point(1), point(2, job=other), point(3)))
        place, jobs = history.jobs_with_points(0)
        assert jobs == (other, POINTS_JOB)
        assert history.jobs_with_points(place) == (place, ())
        history.append_points((point(4, job=other),))
        assert history.jobs_with_points(place)[1] == (other,)

    def test_points_are_trimmed(self, history: History) -> None:
        history.append_points([point(at, at=float(at)) for at in range(10)])
        assert history.trim(Retention(max_age_seconds=7.0), now=10.0) == 3
        assert history.trim(Retention(max_age_seconds=1e9, max_points_per_job=5), now=10.0) == 2
        assert history.trim(Retention(max_age_seconds=1e9, max_points=4), now=10.0) == 1
        assert numbers(history) == [6, 7, 8, 9]

    def test_close_may_be_called_again(self, history: History) -> None:
        history.append((entry("a", 1.0),))
        history.close()
        history.close()


class LogsContract:
    """The rules of `shoal.history.base.Logs`. The fixture `logs` gives an empty one that keeps at
    least a megabyte of each log."""

    def test_what_is_appended_is_read(self, logs: Logs) -> None:
        key = log()
        logs.append(key, 100.0, b"one\n")
        logs.append(key, 200.0, b"\xff\xfe\x00two")
        assert list(logs.read(key)) == [
            LogChunk(key=key, at=100.0, offset=0, data=b"one\n"),
            LogChunk(key=key, at=200.0, offset=4, data=b"\xff\xfe\x00two"),
        ]

    def test_a_log_that_is_not_there_is_empty(self, logs: Logs) -> None:
        assert list(logs.read(log())) == []
        assert logs.keys("team-a", "digits") == ()

    def test_reading_from_an_offset(self, logs: Logs) -> None:
        logs.append(log(), 100.0, b"0123")
        logs.append(log(), 200.0, b"4567")
        chunk = next(logs.read(log(), offset=2))
        assert (chunk.offset, chunk.data, chunk.at) == (2, b"23", 100.0)
        assert content(logs, offset=5) == b"567"
        assert content(logs, offset=8) == content(logs, offset=80) == b""

    def test_reading_since(self, logs: Logs) -> None:
        for at in (100.0, 200.0, 300.0):
            logs.append(log(), at, b"%d\n" % at)
        assert content(logs, since=200.0) == b"200\n300\n"
        assert content(logs, since=201.0) == b"300\n"
        assert content(logs, since=301.0) == b""

    def test_the_last_lines(self, logs: Logs) -> None:
        logs.append(log(), 1.0, b"a\nb\n")
        logs.append(log(), 2.0, b"c\nd\n")
        assert content(logs, tail_lines=1) == b"d\n"
        assert content(logs, tail_lines=3) == b"b\nc\nd\n"
        assert content(logs, tail_lines=99) == content(logs) == b"a\nb\nc\nd\n"
        logs.append(log(), 3.0, b"unfinished")
        assert content(logs, tail_lines=1) == b"unfinished"

    def test_following(self, logs: Logs) -> None:
        seen, offset = b"", 0
        for number in range(20):
            logs.append(log(), float(number), b"line %d\n" % number)
            for chunk in logs.read(log(), offset=offset):
                assert chunk.offset == offset
                seen, offset = seen + chunk.data, chunk.offset + len(chunk.data)
        assert seen == content(logs)

    def test_keys_are_in_order_and_selected(self, logs: Logs) -> None:
        wanted = [
            log(job_uid="u1", role="ps", index=0),
            log(job_uid="u1", index=2, incarnation=1),
            log(job_uid="u1", index=2, incarnation=2),
            log(job_uid="u1", index=10, incarnation=1),
            log(job_uid="u0", role="my-role", index=0),
        ]
        for key in (wanted[1], wanted[3], wanted[0], wanted[2], wanted[4]):
            logs.append(key, 1.0, b"x")
        logs.append(log(job="other", job_uid="u9"), 1.0, b"x")
        logs.append(log(namespace="team-b", job_uid="u8"), 1.0, b"x")
        assert logs.keys("team-a", "digits") == tuple(wanted)
        assert logs.keys("team-a", "digits", "u1") == tuple(wanted[:4])
        assert logs.keys("team-a", "digits", role="worker") == tuple(wanted[1:4])
        assert logs.keys("team-a", "digits", role="worker", index=2) == tuple(wanted[1:3])
        assert logs.keys("team-a", "digits", "u9") == ()

    def test_a_job_is_forgotten(self, logs: Logs) -> None:
        for uid in ("u1", "u2"):
            logs.append(log(job_uid=uid), 1.0, b"x")
        logs.forget("team-a", "u1")
        logs.forget("team-a", "never-there")
        assert logs.keys("team-a", "digits") == (log(job_uid="u2"),)
        assert list(logs.read(log(job_uid="u1"))) == []

    def test_the_log_written_to_longest_ago_goes_first(self, logs: Logs) -> None:
        for index, at in ((0, 300.0), (1, 100.0), (2, 200.0)):
            logs.append(log(index=index), at, b"x" * 1000)
        assert logs.trim(3000, 1e9, now=400.0) == 0
        assert logs.trim(1500, 1e9, now=400.0) == 2000
        assert logs.keys("team-a", "digits") == (log(index=0),)

    def test_old_logs_go(self, logs: Logs) -> None:
        logs.append(log(index=0), 100.0, b"x" * 10)
        logs.append(log(index=1), 190.0, b"x" * 10)
        assert logs.trim(1_000_000, 50.0, now=200.0) == 10
        assert logs.keys("team-a", "digits") == (log(index=1),)

    def test_a_large_log(self, logs: Logs) -> None:
        data = bytes(range(256)) * 4000
        logs.append(log(), 1.0, data)
        assert content(logs) == data
        assert content(logs, offset=len(data) - 7) == data[-7:]


def entry(name: str, at: float, **fields: Any) -> Entry:
    """An event about a job, for what a test does not care for."""
    given: dict[str, Any] = {"type": "event", "about": JOB, "reason": "Tested", **fields}
    return Entry(id=name, at=at, **given)


POINTS_JOB = JobKey(namespace="team-a", name="digits", uid="u1")


def point(sequence: int, **fields: Any) -> Point:
    """A metric point of a job, for what a test does not care for."""
    given: dict[str, Any] = {
        "job": POINTS_JOB, "name": "loss", "value": 0.0, "at": 100.0, "writer": "w", **fields,
    }  # fmt: skip
    return Point(sequence=sequence, **given)


def numbers(history: History, **query: Any) -> list[int]:
    """The sequence numbers of the points that a query finds."""
    return [each.sequence for each in history.points("team-a", **query)]


def ids(history: History, **query: Any) -> list[str]:
    """The ids that a query finds."""
    return [each.id for each in history.entries(**query)]


def log(**fields: Any) -> LogKey:
    """A task's log."""
    given: dict[str, Any] = {
        "namespace": "team-a", "job": "digits", "job_uid": "u1", "role": "worker", "index": 0,
        "incarnation": 1, **fields,
    }  # fmt: skip
    return LogKey(**given)


def content(logs: Logs, **query: Any) -> bytes:
    """What is read of the log."""
    return b"".join(chunk.data for chunk in logs.read(log(), **query))
