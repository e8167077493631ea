"""How a task ended, in the words of `exit.json`."""

import pytest

from shoal.cluster.local.supervisor_files import classify, not_started, signal_name
from shoal.cluster.local.supervisor_main import MemoryWatch, Stopping

STOP = {"reason": "Preempted", "grace_seconds": 5.0, "at": 0.0}


@pytest.mark.parametrize(
    ("status", "options", "expected"),
    [
        ({"exit_code": 0, "signal": 0}, {}, (0, 0, "Exited", "")),
        ({"exit_code": 3, "signal": 0}, {"stop": STOP}, (3, 0, "Exited", "")),
        ({"exit_code": 139, "signal": 11}, {}, (139, 11, "Signalled", "killed by SIGSEGV")),
        (
            {"exit_code": 137, "signal": 9},
            {"stop": STOP, "grace_over": True},
            (137, 9, "Signalled", "killed: it had not ended 5 s after SIGTERM"),
        ),
        (
            {"exit_code": 137, "signal": 9},
            {"out_of_memory_kills": 1, "memory_bytes": 3 << 29},
            (137, 9, "OutOfMemory", "killed for using more memory than its limit of 1536 MiB"),
        ),
        (
            {"exit_code": 1, "signal": 0},
            {"out_of_memory_kills": 2},
            (1, 0, "OutOfMemory", "killed for using more memory than its limit (2 processes)"),
        ),
        ({"exit_code": 0, "signal": 0}, {"out_of_memory_kills": 1}, (0, 0, "Exited", "")),
        (
            {"exit_code": 127, "reason": "CommandNotFound", "message": "command not found: x"},
            {},
            (127, 0, "CommandNotFound", "command not found: x"),
        ),
        (None, {}, (-1, 0, "SupervisorLost", "the task's supervisor was killed, and the task with it")),
    ],
)
def test_classify(status, options, expected):
    ended = classify(status, **options)
    assert (ended["exit_code"], ended["signal"], ended["reason"], ended["message"]) == expected
    assert ended["stop_reason"] == (STOP["reason"] if "stop" in options else None)


def test_not_started():
    assert not_started("no room")["reason"] == "StartFailed"
    assert not_started("", STOP) == {
        "exit_code": 143, "signal": 15, "reason": "Signalled",
        "message": "stopped before it was started", "stop_reason": "Preempted",
    }  # fmt: skip


def test_signal_name():
    assert [signal_name(number) for number in (9, 15, 44)] == ["SIGKILL", "SIGTERM", "signal 44"]


class Requests:
    """Stands for the folder with stop.json: what is asked for now."""

    def __init__(self, monkeypatch):
        self.stop = None
        monkeypatch.setattr(
            "shoal.cluster.local.supervisor_files.read",
            lambda folder, name: self.stop and dict(self.stop),
        )

    def ask(self, grace_seconds):
        self.stop = {"reason": "Cancelled", "grace_seconds": grace_seconds, "at": 0.0}


@pytest.fixture
def requests(monkeypatch):
    return Requests(monkeypatch)


def test_a_stop_from_its_request_to_the_last_resort(requests):
    stopping = Stopping("")
    assert stopping.heard(100.0) == ""
    assert stopping.due(1e9) == ""
    requests.ask(10)
    assert stopping.heard(100.0) == "term"
    assert (stopping.next_at, stopping.due(109.9)) == (110.0, "")
    assert stopping.due(110.0) == "kill"
    assert stopping.due(110.1) == ""
    assert stopping.due(112.0) == "destroy"
    assert stopping.heard(113.0) == ""


def test_a_second_request_may_only_shorten(requests):
    stopping = Stopping("")
    requests.ask(10)
    stopping.heard(100.0)
    requests.ask(1000)
    assert (stopping.heard(101.0), stopping.next_at) == ("", 110.0)
    requests.ask(2)
    assert (stopping.heard(102.0), stopping.next_at) == ("", 104.0)
    requests.ask(0)
    assert stopping.heard(103.0) == "kill"
    assert stopping.grace_over


def test_no_grace_is_a_kill(requests):
    stopping = Stopping("")
    requests.ask(-1)
    assert stopping.heard(100.0) == "kill"


def test_the_watch_looks_now_and_then(monkeypatch):
    used = iter([10, 60, 200])
    monkeypatch.setattr("shoal.cluster.local.supervisor_processes.memory_bytes", lambda pids: next(used))
    watch = MemoryWatch(100, 1)
    assert [watch.look(now) for now in (1.0, 1.1, 1.3, 1.35, 1.6)] == [False, False, False, False, True]
    assert (watch.peak_bytes, watch.exceeded) == (200, True)
    idle = MemoryWatch(None, 1)
    assert (idle.look(5.0), idle.next_at) == (False, None)
