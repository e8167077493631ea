from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from shoal.background import reports
from shoal.clock import SystemClock
from shoal.control.lease import LeaderLease, NotLeader
from shoal.control.runner import Runner
from shoal.objects.errors import Unavailable
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore
from shoal.testing.clock import VirtualClock
from tests.control.test_runner import A, Feed, Recorder


class World:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock)

    def lease(self, holder: str, **options) -> LeaderLease:
        return LeaderLease(self.store, "leader", holder, actor=SYSTEM, clock=self.clock, **options)


def test_one_holds_and_the_other_waits_until_the_lease_has_run_out():
    world = World()
    one, two = world.lease("one"), world.lease("two")
    one.step()
    two.step()
    assert one.held() and not two.held()
    world.clock.advance(14.9)
    two.step()
    assert not two.held()
    world.clock.advance(0.1)
    two.step()
    assert two.held()


def test_the_holder_stops_before_another_may_begin():
    world = World()
    one, two = world.lease("one"), world.lease("two")
    one.step()
    two.step()
    both = 0
    for _ in range(300):
        world.clock.advance(0.1)
        two.step()
        both += one.held() and two.held()
    assert two.held() and not both


def test_renewing_keeps_it():
    world = World()
    one, two = world.lease("one"), world.lease("two")
    for _ in range(30):
        one.step()
        two.step()
        assert one.held() and not two.held()
        world.clock.advance(2)


def test_a_store_that_does_not_answer_costs_the_lease_at_its_deadline():
    world = World()
    one = world.lease("one")
    one.step()
    one.enter()

    def silent(*args, **options):
        raise Unavailable("no answer")

    world.store.acquire = silent
    world.clock.advance(9.9)
    one.step()
    one.check()
    world.clock.advance(0.1)
    one.step()
    with pytest.raises(NotLeader, match="not held"):
        one.check()


def test_a_slow_renewal_counts_from_when_it_was_sent():
    world = World()
    one = world.lease("one")
    acquire = world.store.acquire

    def slow(*args, **options):
        world.clock.advance(4)
        return acquire(*args, **options)

    world.store.acquire = slow
    one.step()
    world.clock.advance(5.9)
    assert one.held()
    world.clock.advance(0.1)
    assert not one.held()


def test_work_that_began_under_an_earlier_term_does_not_write_in_a_later_one():
    world = World()
    one = world.lease("one")
    one.step()
    assert one.enter()
    one.check()
    world.clock.advance(11)  # stalled: nobody renewed
    with pytest.raises(NotLeader, match="not held"):
        one.check()
    one.step()
    assert one.held()
    with pytest.raises(NotLeader, match="lost in between"):
        one.check()
    assert one.enter()
    one.check()


def test_renewal_in_time_is_the_same_term():
    world = World()
    one = world.lease("one")
    one.step()
    one.enter()
    for _ in range(5):
        world.clock.advance(9)
        one.step()
    one.check()


def test_giving_it_back_lets_the_next_begin_at_once():
    world = World()
    one, two = world.lease("one"), world.lease("two")
    told: list[bool] = []
    one.on_change(lambda: told.append(one.held()))
    one.step()
    one.stop()
    two.step()
    assert two.held() and not one.held()
    assert told == [True, False]


def test_a_new_process_under_the_same_name_need_not_wait():
    world = World()
    world.lease("one").step()
    again = world.lease("one")
    again.step()
    assert again.held()


def test_deadlines_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="retry < renew deadline < duration"):
        World().lease("one", duration_seconds=10, renew_deadline_seconds=10)


def test_it_renews_in_a_thread():
    store = MemoryStore()
    lease = LeaderLease(
        store, "leader", "one", actor=SYSTEM, clock=SystemClock(),
        duration_seconds=3, renew_deadline_seconds=2, retry_seconds=0.01,
    )  # fmt: skip
    won = threading.Event()
    lease.on_change(won.set)
    lease.start()
    assert won.wait(10) and lease.held()
    lease.stop()
    assert not lease.held()


def test_of_two_runners_on_one_store_one_works_at_a_time():
    world = World()
    leases = [world.lease("one"), world.lease("two")]
    feeds = [Feed(), Feed()]
    recorders = [Recorder(feed) for feed in feeds]
    runners = [
        Runner([(recorder, 1)], clock=world.clock, guard=lease)
        for recorder, lease in zip(recorders, leases, strict=True)
    ]

    def pass_time(seconds: float, *alive: int) -> None:
        for feed in feeds:
            feed.push(A)
        for number in alive:
            leases[number].step()
        for runner in runners:
            runner.run_once()
        world.clock.advance(seconds)

    pass_time(2, 0, 1)
    pass_time(2, 0, 1)
    assert [len(recorder.calls) for recorder in recorders] == [2, 0]
    pass_time(9, 1)  # the first is stalled from here on
    pass_time(3, 1)
    assert [len(recorder.calls) for recorder in recorders] == [3, 0]
    pass_time(4, 1)
    pass_time(1, 1)
    assert [len(recorder.calls) for recorder in recorders] == [3, 1]
    pass_time(1, 0, 1)
    assert [len(recorder.calls) for recorder in recorders] == [3, 2]


_STALLED = """
import sys, threading
from shoal.background import reports
from shoal.clock import SystemClock
from shoal.control.lease import LeaderLease, NotLeader
from shoal.store.base import SYSTEM
from shoal.store.memory import MemoryStore

lease = LeaderLease(MemoryStore(), "leader", "one", actor=SYSTEM, clock=SystemClock(),
                    duration_seconds=3.0, renew_deadline_seconds=1.5, retry_seconds=0.05)
lease.step()
lease.enter()
lease.check()
print("working", flush=True)
sys.stdin.readline()
try:
    lease.check()
    print("wrote", flush=True)
except NotLeader as error:
    print(error, flush=True)
lease.step()
try:
    lease.check()
    print("wrote", flush=True)
except NotLeader as error:
    print(error, flush=True)
print("leads again" if lease.enter() else "does not lead", flush=True)
"""


@pytest.mark.slow
@pytest.mark.process
def test_a_stopped_process_that_comes_back_does_not_write(tmp_path: Path):
    script = tmp_path / "stalled.py"
    script.write_text(_STALLED)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "working\n"
        os.kill(process.pid, signal.SIGSTOP)
        threading.Event().wait(1.7)  # longer than its renew deadline
        os.kill(process.pid, signal.SIGCONT)
        output, _ = process.communicate("go on\n", timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert output.splitlines() == [
        "the lease leader is not held",
        "the lease leader was lost in between",
        "leads again",
    ]


def test_an_unexpected_exception_does_not_end_the_renewal():
    class Failing(MemoryStore):
        calls = 0

        def acquire(self, *args, **kwargs):
            self.calls += 1
            if self.calls == 2:
                raise KeyError("injected")
            return super().acquire(*args, **kwargs)

    store = Failing()
    lease = LeaderLease(
        store, "controllers", "me", actor=SYSTEM, clock=SystemClock(),
        duration_seconds=15, renew_deadline_seconds=10, retry_seconds=0.02,
    )  # fmt: skip
    lease.start()
    try:
        deadline = time.monotonic() + 20
        while store.calls < 4:
            assert time.monotonic() < deadline, "the thread has ended"
            time.sleep(0.01)
        assert lease.held()
        assert next(report for report in reports() if report.name == "lease").restarts == 1
    finally:
        lease.stop()
