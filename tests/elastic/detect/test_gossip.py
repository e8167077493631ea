"""Sidecars that watch each other, when the coordinator asks for it; real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from shoal.elastic.wire import Message
from tests.elastic.detect.harness import Ear, worker

pytestmark = [pytest.mark.process, pytest.mark.slow]

IDLE = "sys.stdin.readline()"
NAMES = [f"worker-{at}" for at in range(4)]


def _about(name: str) -> Message:
    return {"name": name, "incarnation": 7}


def _let_gossip(ear: Ear, names: list[str]) -> None:
    """One after the other, each joining all before it."""
    seeds: list[str] = []
    for count, name in enumerate(names, 1):
        ear.say(name, {"type": "gossip", "seeds": seeds})
        _, answer = ear.wait("gossiping", count, lambda each: each["members"] == 1)
        seeds = [*seeds, answer["address"]]
    ear.wait("gossiping", len(names), _joined)


def _joined(gossiping: Message) -> bool:
    return gossiping["members"] > 1


def test_a_silent_machine_is_reported_by_the_others_and_heard_again() -> None:
    ear = Ear()
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(ear, IDLE, name=name)) for name in NAMES]
        _let_gossip(ear, NAMES)
        began, beats = time.monotonic(), ear.count("beat")
        for pid in (workers[2].pid, workers[2].sidecar):
            os.kill(pid, signal.SIGSTOP)
        told, silent = ear.wait("silent")
        ear.wait("silent", 3)  # all three others are among the four that report
        print(f"a silent machine among four is reported after {told - began:.2f} s")
        assert silent == {"type": "silent", **_about("worker-2")}
        assert ear.count("beat") == beats
        for pid in (workers[2].pid, workers[2].sidecar):
            os.kill(pid, signal.SIGCONT)
        _, heard = ear.wait("heard", 3)
        assert heard == {"type": "heard", **_about("worker-2")}
        os.kill(workers[1].pid, signal.SIGKILL)
        killed = time.monotonic()
        gone, _ = ear.wait("gone")
        print(f"gone told after {(gone - killed) * 1000:.1f} ms")
        ear.say(NAMES[0], {"type": "star"})
        ear.wait("beat", beats + 1)
        assert ear.count("silent") == 3, "who leaves is not silent"
    ear.close()


def test_what_still_holds_is_said_again_to_a_coordinator_that_is_back() -> None:
    ear = Ear()
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(ear, IDLE, name=name)) for name in NAMES[:3]]
        _let_gossip(ear, NAMES[:3])
        for pid in (workers[2].pid, workers[2].sidecar):
            os.kill(pid, signal.SIGSTOP)
        ear.wait("silent", 2)
        ear.drop()
        ear.wait("hello", 5)
        ear.wait("silent", 4)
    ear.close()


def test_who_has_nobody_to_watch_it_goes_on_beating() -> None:
    ear = Ear()
    with worker(ear, IDLE):
        ear.say(NAMES[0], {"type": "gossip", "seeds": ["127.0.0.1:1"]})
        _, alone = ear.wait("gossiping")
        assert alone["members"] == 1
        ear.wait("beat", ear.count("beat") + 5)
        assert ear.count("gossiping") == 1
    ear.close()
