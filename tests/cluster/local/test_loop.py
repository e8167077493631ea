import os
import selectors
import signal
import threading

import pytest

from shoal.cluster.local.loop import Loop


@pytest.fixture
def loop():
    return Loop()


def test_timers_come_in_order_and_only_once(loop):
    seen = []
    loop.later(0.02, lambda: seen.append("b"))
    loop.later(0.01, lambda: seen.append("a"))
    loop.later(0.015, lambda: seen.append("never")).cancel()
    loop.later(0.03, loop.stop)
    loop.run()
    assert seen == ["a", "b"]


def test_each_turn_ends_once_for_all_that_it_brought(loop):
    turns = []
    seen = []
    loop.end_turn = lambda: turns.append(len(seen))
    for number in range(3):
        loop.call(lambda number=number: seen.append(number))
    loop.call(loop.stop)
    loop.run()
    assert seen == [0, 1, 2]
    assert turns == [3]


def test_slow_things_take_turns(loop):
    turns = []
    loop.end_turn = lambda: turns.append(1)
    for _ in range(3):
        loop.soon(lambda: None)
    loop.soon(loop.stop)
    loop.run()
    assert len(turns) == 4


def test_a_descriptor_that_an_earlier_callback_removed_is_not_called(loop):
    pipes = [os.pipe(), os.pipe()]
    called = []

    def first_come(number):
        def callback(_):
            called.append(number)
            for reader, _ in pipes:
                loop.remove(reader)
            loop.stop()

        return callback

    for number, (reader, writer) in enumerate(pipes):
        loop.add(reader, selectors.EVENT_READ, first_come(number))
        os.write(writer, b"x")
    loop.run()
    assert len(called) == 1
    for descriptor in (d for pair in pipes for d in pair):
        os.close(descriptor)


def test_work_is_done_elsewhere_and_its_result_here(loop):
    seen = []

    def job():
        seen.append(threading.current_thread() is threading.main_thread())

        def done():
            seen.append(threading.current_thread() is threading.main_thread())
            loop.stop()

        return done

    loop.work(job)
    loop.run()
    assert seen == [False, True]


def test_what_work_raises_is_not_lost(loop):
    def job():
        raise LookupError("gone")

    loop.work(job)
    with pytest.raises(LookupError):
        loop.run()


def test_signals_are_handled_in_a_turn(loop):
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.on_signal(signal.SIGUSR1, loop.stop)
        loop.soon(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        loop.run()
    finally:
        signal.signal(signal.SIGUSR1, before)
