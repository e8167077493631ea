from __future__ import annotations

import pytest

from shoal.history.base import About, Entry
from shoal.history.recorder import COALESCE_SECONDS, Recorder, about
from shoal.objects.meta import Metadata, Object
from shoal.objects.task import Placement, TaskSpec
from shoal.testing.clock import VirtualClock
from tests.support.memory_history import MemoryHistory

JOB = About(kind="Job", namespace="team-a", name="digits", uid="u1")
TASK = TaskSpec(
    namespace="team-a", name="digits-u1-worker-2-1", job="digits", job_uid="u1", role="worker", index=2,
    attempt=1, incarnation=1, placement=Placement(node="node-1", devices=("gpu-0",)), command=("true",),
)  # fmt: skip


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now=1000.0)


@pytest.fixture
def history() -> MemoryHistory:
    return MemoryHistory()


@pytest.fixture
def recorder(history: MemoryHistory, clock: VirtualClock) -> Recorder:
    return Recorder(history, clock)


def only(history: MemoryHistory) -> Entry:
    (entry,) = history.entries()
    return entry


def test_about_an_object() -> None:
    obj = Object(metadata=Metadata(name="digits", namespace="team-a", uid="u1"), spec=None, kind="Job")
    assert about(obj) == JOB


def test_equal_events_close_together_are_counted(
    recorder: Recorder, history: MemoryHistory, clock: VirtualClock
) -> None:
    for _ in range(5):
        recorder.event(JOB, "Refused", "It was refused.", severity="Warning")
        clock.advance(10.0)
    entry = only(history)
    assert (entry.count, entry.at, entry.data) == (5, 1000.0, {"last": 1040.0})
    assert (entry.reason, entry.severity, entry.about) == ("Refused", "Warning", JOB)


def test_an_event_that_goes_on_is_told_again(
    recorder: Recorder, history: MemoryHistory, clock: VirtualClock
) -> None:
    for _ in range(7):
        recorder.event(JOB, "Refused", "It was refused.")
        clock.advance(COALESCE_SECONDS / 3)
    assert [entry.count for entry in history.entries()] == [3, 3, 1]


@pytest.mark.parametrize(
    "other",
    [
        {"reason": "B"},
        {"message": "Other."},
        {"severity": "Warning"},
        {"actor": "eve"},
        {"about": About(kind="Job", namespace="team-a", name="digits", uid="u2")},
    ],
)
def test_events_that_differ_are_apart(
    recorder: Recorder, history: MemoryHistory, other: dict[str, str]
) -> None:
    same = {"about": JOB, "reason": "A", "message": "Said."}
    recorder.event(**same)
    recorder.event(**{**same, **other})
    assert len(history.entries()) == 2


def test_a_clock_set_back_does_not_split_or_join(
    recorder: Recorder, history: MemoryHistory, clock: VirtualClock
) -> None:
    recorder.event(JOB, "A", "Said.")
    clock.set_wall(10.0)
    recorder.event(JOB, "A", "Said.")
    assert only(history).count == 2


def test_an_attempt_is_one_entry_from_start_to_end(
    recorder: Recorder, history: MemoryHistory, clock: VirtualClock
) -> None:
    recorder.attempt(JOB, TASK, started=990.0)
    entry = only(history)
    assert (entry.type, entry.at, entry.severity) == ("attempt", 990.0, "Normal")
    assert entry.data == {
        "task": TASK.name, "role": "worker", "index": 2, "incarnation": 1, "attempt": 1,
        "node": "node-1", "devices": ["gpu-0"], "started": 990.0,
    }  # fmt: skip
    again = Recorder(history, clock)
    for _ in range(2):
        again.attempt(JOB, TASK, started=990.0, ended=999.0, exit_code=137, reason="OutOfMemory")
    entry = only(history)
    assert (entry.reason, entry.severity, entry.at) == ("OutOfMemory", "Warning", 990.0)
    assert (entry.data["ended"], entry.data["exitCode"]) == (999.0, 137)


def test_an_end_that_the_platform_asked_for_is_no_warning(
    recorder: Recorder, history: MemoryHistory
) -> None:
    recorder.attempt(
        JOB, TASK, started=1.0, ended=2.0, exit_code=143, reason="Signalled", stop_reason="Preempted"
    )
    assert only(history).severity == "Normal"
    assert only(history).data["stopReason"] == "Preempted"


def test_a_task_that_never_started(recorder: Recorder, history: MemoryHistory) -> None:
    recorder.attempt(JOB, TASK, started=0.0, ended=995.0, exit_code=127, reason="CommandNotFound")
    assert (only(history).at, only(history).data["started"]) == (995.0, 0.0)


def test_usage_decision_and_metric(recorder: Recorder, history: MemoryHistory) -> None:
    for _ in range(2):
        recorder.usage(JOB, TASK, ended=1.0, cpu_seconds=12.5, peak_memory_bytes=4096, gpu_ratio=0.5)
        recorder.decision(JOB, "allocation-3", "Started", "It fits.", {"free": 4})
    recorder.metric(JOB, "loss", 0.25, at=3.0, labels={"rank": "0"})
    usage, metric, decision = history.entries()
    assert (usage.type, usage.value, usage.at) == ("usage", 12.5, 1.0)
    assert (usage.data["peakMemoryBytes"], usage.data["gpuRatio"]) == (4096, 0.5)
    assert (decision.type, decision.reason, decision.data) == ("decision", "Started", {"free": 4})
    assert (metric.reason, metric.value, metric.data) == ("loss", 0.25, {"rank": "0"})
