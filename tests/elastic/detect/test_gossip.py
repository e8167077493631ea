"""Sidecars that watch each other, when the coordinator asks for it; real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from shoal.elastic.detect.gossip import Gossip, Identity
from shoal.elastic.wire import Message
from tests.elastic.detect.harness import KEY, Ear, wait_until, worker

pytestmark = [pytest.mark.process, pytest.mark.slow]

IDLE = "sys.stdin.readline()"
NAMES = [f"worker-{at}" for at in range(4)]


def _let_gossip(ear: Ear, names: list[str]) -> dict[str, Message]:
    """One after the other, each joining all before it; by name, where each was at first."""
    seeds: list[str] = []
    answers: dict[str, Message] = {}
    for count, name in enumerate(names, 1):
        ear.say(name, {"type": "gossip", "seeds": seeds})
        _, answers[name] = ear.wait("gossiping", count, lambda each: each["members"] == 1)
        seeds = [*seeds, answers[name]["address"]]
    ear.wait("gossiping", len(names), _joined)
    return answers


def _joined(gossiping: Message) -> bool:
    return gossiping["members"] > 1


def test_a_silent_machine_is_reported_by_the_others_and_heard_again() -> None:
    ear = Ear()
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(ear, IDLE, name=name)) for name in NAMES]
        answers = _let_gossip(ear, NAMES)
        began, beats = time.monotonic(), ear.count("beat")
        for pid in (workers[2].pid, workers[2].sidecar):
            os.kill(pid, signal.SIGSTOP)
        told, silent = ear.wait("silent")
        ear.wait("silent", 3)  # all three others are among the four that report
        print(f"a silent machine among four is reported after {told - began:.2f} s")
        who = {"incarnation": 7, "sidecar": answers["worker-2"]["sidecar"]}
        assert silent == {"type": "silent", **who}
        assert ear.count("beat") == beats
        for pid in (workers[2].pid, workers[2].sidecar):
            os.kill(pid, signal.SIGCONT)
        _, heard = ear.wait("heard", 3)
        assert heard == {"type": "heard", **who}
        os.kill(workers[1].pid, signal.SIGKILL)
        killed = time.monotonic()
        gone, _ = ear.wait("gone")
        print(f"gone told after {(gone - killed) * 1000:.1f} ms")
        ear.say(NAMES[0], {"type": "star"})
        asked = time.monotonic()
        at, _ = ear.wait("beat", beats + 1)
        print(f"beats again after {(at - asked) * 1000:.1f} ms")
        ear.wait("beat", beats + 8)
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
        kinds = ear.kinds()
        last = len(kinds) - 1 - kinds[::-1].index("hello")
        assert kinds.index("gossiping", last) < len(kinds), "where it is, whether or not it is new"
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


class Crowd:
    """Detectors without sidecars, turned by the test."""

    def __init__(self) -> None:
        self.members: dict[str, Gossip] = {}
        self.said: dict[str, list[Message]] = {}

    def add(self, which: str, name: str, incarnation: int, key: str = KEY) -> Gossip:
        seeds = [each.address for each in self.members.values()]
        one = self.members[which] = Gossip(name, incarnation, key, "127.0.0.1", seeds)
        self.said[which] = []
        return one

    def turn(self) -> None:
        for which, one in self.members.items():
            self.said[which] += one.turn(time.monotonic())

    def until_all_know(self, which: str, count: int) -> None:
        def known() -> bool:
            self.turn()
            newest = [each for each in self.said[which] if each["type"] == "gossiping"][-1:]
            return bool(newest) and newest[0]["members"] == count

        wait_until(known, f"{which} does not know {count}")

    def kinds(self, which: str) -> set[str]:
        return {each["type"] for each in self.said[which]}


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd()
    yield crowd
    for one in crowd.members.values():
        one.close()


def test_the_gossip_of_a_zombie_is_not_heard(crowd: Crowd) -> None:
    """A worker that was put out has joined anew; the sidecar of its former life is still there.

    The others put it out when they hear of the newer one, and it leaves when it does; a detector with an
    older incarnation that comes later is not let in.
    """
    crowd.add("a", "a", 1)
    crowd.add("old", "b", 2)
    crowd.until_all_know("a", 2)
    crowd.add("new", "b", 3)
    old = crowd.members["old"]

    def left() -> bool:
        crowd.turn()
        return old.over

    wait_until(left, "the zombie gossips on")
    old.close()
    del crowd.members["old"]
    crowd.said["a"].clear()
    crowd.add("late", "b", 2)

    def beats() -> bool:
        crowd.turn()
        return crowd.members["late"].over

    wait_until(beats, "the late one does not see that it is nobody")
    assert not crowd.kinds("a") & {"silent", "heard"}
    assert not crowd.kinds("new") & {"silent", "heard"}


def test_with_another_key_one_stays_alone(crowd: Crowd) -> None:
    """Another job's, or an older attempt's."""
    crowd.add("a", "a", 1)
    crowd.add("b", "b", 2)
    crowd.until_all_know("b", 2)
    crowd.add("c", "c", 3, key="another job's")
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        crowd.turn()
    assert {each["members"] for each in crowd.said["c"] if each["type"] == "gossiping"} == {1}
    assert "beat" in crowd.kinds("c")
    crowd.members["b"].restate()
    assert crowd.members["a"].restate()[0]["members"] == 2


def test_an_identity_is_short_whatever_the_name() -> None:
    who = Identity.of("x" * 200, 1 << 40)
    assert len(str(who)) < 64
    assert Identity.parsed(str(who)) == who
    assert Identity.of("x", 1) != Identity.of("x", 1)
    for text in ("", "a", "a#1", "a#b#c", "#", "##"):
        assert Identity.parsed(text) is None
