"""Real workers with real sidecars, and a coordinator's ear at the other end of a socket."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.elastic.detect.harness import KEY, Ear, sidecars_of, wait_until, worker, write_address

pytestmark = [pytest.mark.process, pytest.mark.slow]

IDLE = "sys.stdin.readline()"
BUSY = """
guardian.training(True)
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    guardian.touch()
    time.sleep(0.01)
"""


@pytest.fixture
def ear() -> Iterator[Ear]:
    ear = Ear()
    yield ear
    ear.close()


def test_hello_and_beats(ear: Ear) -> None:
    with worker(ear, IDLE):
        _, hello = ear.wait("hello")
        assert hello == {
            "type": "hello", "role": "sidecar", "key": KEY, "name": "worker-0", "incarnation": 7
        }  # fmt: skip
        first, _ = ear.wait("beat", where=lambda beat: beat["seq"] == 1)
        tenth, beat = ear.wait("beat", where=lambda beat: beat["seq"] == 10)
        assert beat["late_seconds"] >= 0.0
        assert 0.7 < tenth - first < 5.0


def test_gone_is_told_at_once_and_the_sidecar_ends() -> None:
    latencies: list[float] = []
    for _ in range(5):
        ear = Ear()
        with worker(ear, BUSY) as one:
            killed = one.signal(signal.SIGKILL)
            told, _ = ear.wait("gone")
            latencies.append((told - killed) * 1000)
            ear.wait_closed()
            wait_until(lambda one=one: not sidecars_of(one.pid), "the sidecar lingers", seconds=5)
        assert ear.kinds() == ["hello", "gone"]
        ear.close()
    print(f"gone told after {sorted(round(each, 1) for each in latencies)} ms")
    assert statistics.median(latencies) < 100


def test_stopped_and_continued(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        stopped = one.signal(signal.SIGSTOP)
        told, _ = ear.wait("stopped")
        continued = one.signal(signal.SIGCONT)
        told_again, _ = ear.wait("continued")
        print(f"stopped told after {(told - stopped) * 1000:.0f} ms,", end=" ")
        print(f"continued after {(told_again - continued) * 1000:.0f} ms")
        assert told - stopped < 1.0
        assert ear.kinds() == ["hello", "stopped", "continued"]


def test_gone_while_stopped(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        one.signal(signal.SIGSTOP)
        ear.wait("stopped")
        one.signal(signal.SIGKILL)
        ear.wait("gone")
        assert ear.kinds() == ["hello", "stopped", "gone"]


def test_coordinator_comes_back_elsewhere(ear: Ear, tmp_path: Path) -> None:
    file = tmp_path / "coordinator.json"
    write_address(file, ear.address)
    with worker(ear, BUSY, file=file) as one:
        one.signal(signal.SIGSTOP)
        ear.wait("stopped")
        other = Ear()
        ear.close()
        write_address(file, other.address)
        other.wait("hello")
        other.wait("stopped")
        os.kill(one.pid, signal.SIGKILL)
        other.wait("gone")
        other.close()


def test_a_sidecar_that_dies_is_started_again(ear: Ear) -> None:
    with worker(ear, BUSY) as one:
        began = time.monotonic()
        os.kill(one.sidecar, signal.SIGKILL)
        again, hello = ear.wait("hello", 2)
        print(f"a new sidecar said hello after {(again - began) * 1000:.0f} ms")
        assert hello["incarnation"] == 7
        assert "gone" not in ear.kinds()
        one.signal(signal.SIGKILL)
        ear.wait("gone")
