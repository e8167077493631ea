"""The watchdog's judgement; that it starts real components is in test_components."""

import os
import subprocess
import sys
import threading

import pytest

from shoal.background import reports
from shoal.cluster.local import components, watchdog
from shoal.cluster.local.home import Home
from shoal.cluster.local.watchdog import Watchdog
from shoal.testing.local import wait_until

HOLD = (
    "import sys, time\n"
    "from shoal.cluster.local.home import Lock\n"
    "from pathlib import Path\n"
    "lock = Lock(Path(sys.argv[1])); lock.acquire(5)\n"
    "time.sleep(float(sys.argv[2]))\n"
)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home").create()


@pytest.fixture
def starts(home, monkeypatch):
    """Components are started as processes that hold their lock for the seconds in `lives`."""
    processes = []
    lives = []

    def start(where, component):
        seconds = lives.pop(0) if lives else 600
        path = str(where.component_lock(component).path)
        words = [sys.executable, "-c", HOLD, path, str(seconds)]
        processes.append(subprocess.Popen(words))
        return processes[-1].pid

    monkeypatch.setattr(components, "start", start)
    yield processes, lives
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.process
def test_what_ends_is_started_again_until_the_home_is_down(home, starts):
    processes, lives = starts
    lives[:] = [0, 0]
    told = []
    kept = Watchdog(home, lambda: ["a", "b"], told.append)
    kept.open()
    try:
        lock = home.component_lock
        wait_until(lambda: len(processes) == 4 and lock("a").holder() and lock("b").holder())
        assert sorted(told)[:1] == ["a"]
        home.down.touch()
        processes[-1].kill()
        processes[-2].kill()
        wait_until(lambda: not lock("a").holder() and not lock("b").holder())
        home.down.unlink()
        wait_until(lambda: bool(lock("a").holder() and lock("b").holder()))
    finally:
        kept.close()
        kept.close()


@pytest.mark.slow
@pytest.mark.process
def test_what_cannot_be_started_does_not_end_the_watchdog(home, starts, monkeypatch):
    start, failures = components.start, []

    def fails_once(where, component):
        if not failures:
            failures.append(component)
            raise BlockingIOError(11, "no more processes")
        return start(where, component)

    monkeypatch.setattr(components, "start", fails_once)
    monkeypatch.setattr(watchdog, "LONGEST_BACKOFF_SECONDS", 0.05)
    kept = Watchdog(home, lambda: ["a"])
    kept.open()
    try:
        wait_until(lambda: bool(home.component_lock("a").holder()))
        assert failures == ["a"]
    finally:
        kept.close()


def test_it_leaves_a_home_to_whoever_starts_or_ends_it(home, starts):
    processes, _ = starts
    with home.component_lock("components") as lock:
        lock.acquire(1.0)
        kept = Watchdog(home, lambda: ["a"])
        kept.open()
        kept.close()
    assert not processes


def test_short_lives_are_forgiven_for_a_while():
    waits = [watchdog._backoff(lives) for lives in range(1, watchdog.PATIENCE + 2)]
    assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert waits[-2:] == [1.0, watchdog.LONGEST_BACKOFF_SECONDS]


def test_nothing_stays_open(home):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    kept = Watchdog(home, list)
    kept.open()
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.slow
@pytest.mark.process
def test_declarations_that_cannot_be_read_end_no_watchdog(home, starts):
    processes, _ = starts
    broken = threading.Event()

    def wanted():
        if broken.is_set():
            raise ValueError("nodes.json cannot be read")
        return ["a", "b"] if mended else ["a"]

    mended = False
    kept = Watchdog(home, wanted)
    kept.open()
    try:
        wait_until(lambda: home.component_lock("a").holder())
        broken.set()
        wait_until(lambda: kept.problem)
        assert "nodes.json cannot be read" in kept.problem
        processes[0].kill()
        processes[0].wait()
        wait_until(lambda: len(processes) == 2 and home.component_lock("a").holder())
        mended = True
        broken.clear()
        wait_until(lambda: home.component_lock("b").holder())
        assert kept.problem == ""
    finally:
        kept.close()


@pytest.mark.slow
@pytest.mark.process
def test_one_component_that_cannot_be_started_does_not_stop_the_others(home, starts, monkeypatch):
    start = components.start

    def picky(where, component):
        if component == "a":
            raise LookupError("no such node")
        return start(where, component)

    monkeypatch.setattr(components, "start", picky)
    kept = Watchdog(home, lambda: ["a", "b"])
    kept.open()
    try:
        wait_until(lambda: home.component_lock("b").holder())
    finally:
        kept.close()


@pytest.mark.slow
@pytest.mark.process
def test_the_watchdog_survives_an_exception_that_it_does_not_expect(home, starts, monkeypatch):
    wait, calls = Watchdog._wait, []

    def failing(self):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("injected")
        wait(self)

    monkeypatch.setattr(Watchdog, "_wait", failing)
    kept = Watchdog(home, lambda: ["a", "b"] if len(calls) > 1 else [])
    kept.open()
    try:
        wait_until(lambda: home.component_lock("b").holder())
        mine = next(report for report in reports() if report.name == "watchdog")
        assert mine.restarts == 1
    finally:
        kept.close()
