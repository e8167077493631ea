"""The model check: what production runs, against model workers, over a network that does its worst.

Never two different views of one epoch; epochs never go back; what is committed was applied by every
member of its view, and is never lost or replaced; a checkpoint is taken from members alone; and when the
network is quiet the job goes on. All of it is checked inside `World` as it would happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from shoal.elastic.coordinator import arrivals, events, evidence, heard
from shoal.elastic.coordinator.turn import Turn

from .walks import act, walk
from .workers import Violation
from .world import NAMES, CarelessCell, World

pytestmark = pytest.mark.slow

_INDEX = st.integers(0, (1 << 16) - 1)
_SEEDS = int(os.environ.get("SHOAL_TEST_WALKS", "400"))


class Job(RuleBasedStateMachine):
    """The actions of a `World`, in any order that hypothesis can think of."""

    star_limit = 64

    def __init__(self) -> None:
        super().__init__()
        self.world = World(star_limit=self.star_limit)
        for index in range(2):
            self.world.join(index)

    @precondition(lambda self: self.world.ended is None)
    @rule(indices=st.lists(_INDEX, min_size=1, max_size=12))
    def network(self, indices: list[int]) -> None:
        for index in indices:
            act(self.world, "deliver", index)
            act(self.world, "flush", index)

    @precondition(lambda self: self.world.ended is None)
    @rule(indices=st.lists(_INDEX, min_size=1, max_size=12))
    def training(self, indices: list[int]) -> None:
        for index in indices:
            act(self.world, "work", index)

    @precondition(lambda self: self.world.ended is None)
    @rule(action=st.sampled_from(["deliver", "flush", "work", "connect", "advance"]), index=_INDEX)
    def one(self, action: str, index: int) -> None:
        act(self.world, action, index)

    @precondition(lambda self: self.world.ended is None)
    @rule(action=st.sampled_from(["join", "crash", "notice", "publish", "duplicate"]), index=_INDEX)
    def members(self, action: str, index: int) -> None:
        act(self.world, action, index)

    @precondition(lambda self: self.world.ended is None)
    @rule(action=st.sampled_from(["break", "partition", "accuse"]), index=_INDEX)
    def weather(self, action: str, index: int) -> None:
        act(self.world, action, index)

    @precondition(lambda self: self.world.ended is None)
    @rule(action=st.sampled_from(["start", "freeze", "crash_coordinator", "poll"]), index=_INDEX)
    def coordinators(self, action: str, index: int) -> None:
        act(self.world, action, index)

    def teardown(self) -> None:
        if self.world.ended is None:
            self.world.settle()


class GossipingJob(Job):
    """From the third worker on they watch each other."""

    star_limit = 2


JOBS = pytest.mark.parametrize("job", [Job, GossipingJob])
SIZES = pytest.mark.parametrize(("minimum", "star_limit"), [(1, 64), (2, 64), (1, 2), (2, 3)])


def check(job: type[Job], examples: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(
        job,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            derandomize=derandomize,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


@JOBS
def test_the_machine_keeps_its_promises_whatever_happens(job: type[Job]) -> None:
    """training-N1, N6, N7 and A13, interleaved."""
    check(job, 15, derandomize=True)


@pytest.mark.soak
@JOBS
def test_the_machine_keeps_its_promises_in_all_interleavings(job: type[Job]) -> None:
    """With new examples each time (hypothesis prints how to replay)."""
    check(job, 500, derandomize=False)


def walks(minimum: int, star_limit: int, seeds: range) -> None:
    committed = epochs = restarts = accusations = 0
    for seed in seeds:
        world = World(minimum=minimum, star_limit=star_limit)
        try:
            walk(world, seed, 400)
        except Violation as violation:
            raise AssertionError(
                f"walk(World(minimum={minimum}, star_limit={star_limit}), {seed}, 400): {violation}"
            ) from violation
        committed += len(world.committed)
        epochs += world.cell.record().epoch
        restarts += world.restarts
        accusations += world.accusations
    print(f"{committed} steps committed in {epochs} epochs, {restarts} first views", end=", ")
    print(f"{accusations} of those that gossip were accused")
    assert committed > len(seeds)
    assert epochs > len(seeds)
    assert (accusations > 0) == (star_limit < NAMES)


@SIZES
def test_long_random_walks(minimum: int, star_limit: int) -> None:
    """Longer than hypothesis goes; and they get somewhere, or they would show nothing."""
    walks(minimum, star_limit, range(12))


@pytest.mark.parametrize(("minimum", "star_limit", "seed"), [(1, 64, 2374798958)])
def test_walks_that_once_failed(minimum: int, star_limit: int, seed: int) -> None:
    """2374798958: a replaced coordinator delivers an old view; its member that went on is not there."""
    walk(World(minimum=minimum, star_limit=star_limit), seed, 400)


@pytest.mark.soak
@SIZES
def test_many_random_walks(minimum: int, star_limit: int) -> None:
    base = int.from_bytes(os.urandom(4))
    print(f"seeds from {base}")
    walks(minimum, star_limit, range(base, base + _SEEDS))


def test_without_the_compare_and_set_the_check_fails() -> None:
    assert _violations(lambda: World(CarelessCell()))


def test_without_the_fencing_of_incarnations_the_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names alone are believed: a new process, or one that was put out, goes on as the former one."""

    def let_in(turn: Turn, hello: events.WorkerHello) -> None:
        known = [member for member in turn.record.members if member.name == hello.name]
        if known and turn.alive(known[-1]):
            hello = replace(hello, incarnation=known[-1].incarnation)
        arrivals_hello(turn, hello)

    arrivals_hello = arrivals.worker_hello
    monkeypatch.setattr(arrivals, "worker_hello", let_in)
    assert _violations(World)


def test_without_the_fencing_of_checkpoints_the_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of one that is no member is taken like any other."""
    monkeypatch.setattr(heard, "_refusal", lambda turn, peer, event: None)
    assert _violations(World)


def test_without_a_witness_the_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence of all members is believed: what they hold is given up while they go on."""
    believed = evidence.suspicion
    monkeypatch.setattr(
        evidence,
        "suspicion",
        lambda peer, state: (lambda each: replace(each, alone_due=each.due))(believed(peer, state)),
    )
    assert _violations(World)


def _violations(make: Callable[[], World]) -> list[str]:
    """What walks with a part missing lead to. The seeds are fixed: this asks only whether it is seen."""
    found: list[str] = []
    for seed in range(400):
        world = make()
        try:
            walk(world, seed, 400)
        except Violation as violation:
            found.append(str(violation))
            print(seed, violation)
            break
    return found
