from __future__ import annotations

import threading

from shoal.control.runner import WorkQueue
from shoal.testing.clock import VirtualClock

A, B = ("n", "a"), ("n", "b")


def drain(queue: WorkQueue) -> list[str]:
    taken: list[str] = []
    while (key := queue.take()) is not None:
        taken.append(key[1])
        queue.done(key)
    return taken


def test_keys_come_once_and_in_order():
    queue = WorkQueue(VirtualClock())
    for key in (B, A, B):
        queue.add(key)
    assert drain(queue) == ["b", "a"]


def test_a_key_runs_once_at_a_time_and_again_if_it_was_added_meanwhile():
    queue = WorkQueue(VirtualClock())
    queue.add(A)
    assert queue.take() == A
    queue.add(A)
    queue.add(A)
    assert queue.take() is None
    queue.done(A)
    assert drain(queue) == ["a"]


def test_a_delay_passes_and_a_later_one_replaces_it():
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add_after(A, 5)
    queue.add_after(A, 2)
    queue.add_after(B, 1)
    assert queue.next_due() == 1
    clock.advance(1)
    assert drain(queue) == ["b"]
    clock.advance(1)
    assert drain(queue) == ["a"]
    clock.advance(10)
    assert drain(queue) == []
    assert queue.next_due() is None


def test_within_keeps_the_earlier_of_two_delays():
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add_within(A, 2)
    clock.advance(1)
    queue.add_within(A, 2)
    assert queue.next_due() == 1
    queue.add_within(A, 0)
    assert drain(queue) == ["a"]
    clock.advance(5)
    assert drain(queue) == []


def test_what_is_added_at_once_forgets_its_delay():
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add_after(A, 3)
    queue.add(A)
    assert drain(queue) == ["a"]
    clock.advance(3)
    assert drain(queue) == []


def test_a_delay_set_while_the_key_runs_counts():
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add(A)
    queue.take()
    queue.add_after(A, 1)
    queue.done(A)
    assert drain(queue) == []
    clock.advance(1)
    assert drain(queue) == ["a"]


def test_no_key_is_lost_or_doubled_between_threads():
    from shoal.clock import SystemClock

    queue = WorkQueue(SystemClock())
    running: set[tuple[str, str]] = set()
    seen: dict[tuple[str, str], int] = {}
    lock, stop, overlaps = threading.Lock(), threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            key = queue.take()
            if key is None:
                queue.wait(0.01)
                continue
            with lock:
                overlaps.extend([key] if key in running else [])
                running.add(key)
                seen[key] = seen.get(key, 0) + 1
            with lock:
                running.discard(key)
            queue.done(key)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    keys = [("n", str(number % 7)) for number in range(700)]
    for key in keys:
        queue.add(key)
    final = [("last", str(number)) for number in range(7)]
    for key in final:
        queue.add(key)
    deadline = 10.0
    waited = threading.Event()
    while not all(seen.get(key) for key in final) and deadline > 0:
        waited.wait(0.005)
        deadline -= 0.005
    stop.set()
    queue.wake()
    for thread in threads:
        thread.join(10)
    assert not overlaps
    assert set(seen) == {*keys, *final}
