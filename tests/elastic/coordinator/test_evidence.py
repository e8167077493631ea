"""The table of Evidence, row by row, in virtual time."""

from __future__ import annotations

import pytest

from shoal.elastic.coordinator import events, machine
from shoal.elastic.coordinator.evidence import largest_connected
from shoal.elastic.view import Cursor

from .bench import Bench


@pytest.fixture
def pair() -> Bench:
    bench = Bench(minimum=2)
    bench.start("a", "b")
    bench.state = machine.step(bench.state, events.Wanted(None, 1, None), bench.now)[0]
    return bench


def test_gone_is_believed_at_once(pair: Bench) -> None:
    pair.sidecar_says("b", "gone")
    assert pair.members == ["a"]


def test_both_connections_lost_is_believed_after_a_tenth(pair: Bench) -> None:
    pair.drop("b")
    assert pair.epoch == 1
    pair.sidecars.pop("b")
    pair.pass_time(0.09)
    assert pair.epoch == 1
    pair.pass_time(0.06)
    assert pair.members == ["a"]


def test_who_comes_back_in_time_was_not_lost(pair: Bench) -> None:
    pair.drop("b")
    pair.now += 0.05
    pair.hello("b", 2, 1, 3)
    pair.sidecar("b")
    pair.pass_time(2.0)
    assert pair.members == ["a", "b"]


@pytest.mark.parametrize(("which", "seconds"), [("worker", 4.9), ("sidecar", 30.0)])
def test_one_connection_lost_is_nothing(pair: Bench, which: str, seconds: float) -> None:
    pair.drop("b", which)
    if which == "sidecar":
        pair.sidecars.pop("b")
    pair.pass_time(seconds)
    assert pair.members == ["a", "b"]


def test_a_worker_has_five_seconds_to_come_back(pair: Bench) -> None:
    pair.drop("b", "worker")
    pair.pass_time(5.1)
    assert pair.members == ["a"]


def test_stopped_is_believed_after_half_a_second(pair: Bench) -> None:
    pair.sidecar_says("b", "stopped")
    pair.pass_time(0.45)
    assert pair.members == ["a", "b"]
    pair.pass_time(0.1)
    assert pair.members == ["a"]


def test_continued_in_time_is_nothing(pair: Bench) -> None:
    pair.sidecar_says("b", "stopped")
    pair.pass_time(0.4)
    pair.sidecar_says("b", "continued")
    pair.pass_time(5.0)
    assert pair.members == ["a", "b"]


def test_a_silent_machine_is_lost_within_a_second(pair: Bench) -> None:
    pair.pass_time(0.75, silent=("b",))
    assert pair.members == ["a", "b"]
    pair.pass_time(0.15, silent=("b",))
    assert pair.members == ["a"]


def test_when_all_are_silent_it_is_this_process_that_is_cut_off(pair: Bench) -> None:
    """Their last beats came at different moments: the later one is no witness of the other's silence."""
    pair.do(events.Beat(pair.sidecars["a"], 0.0))
    for _ in range(3):
        pair.now += 0.08
        pair.do(events.Beat(pair.sidecars["b"], 0.0))
    pair.pass_time(60.0, silent=("a", "b"))
    assert (pair.epoch, pair.members) == (1, ["a", "b"])


def test_a_sidecar_that_is_starved_has_longer(pair: Bench) -> None:
    """Lateness of the sidecar's own timer is a sign of a busy machine, not of a dead one."""
    pair.do(events.Beat(pair.sidecars["b"], 0.4))
    pair.pass_time(1.4, silent=("b",))
    assert pair.members == ["a", "b"]
    pair.pass_time(1.0, silent=("b",))
    assert pair.members == ["a"]


def test_when_this_process_was_late_nobody_is_blamed(pair: Bench) -> None:
    """Stopped for ten seconds itself, it hears what has come before it judges, and forgives the rest."""
    pair.now += 10.0
    pair.do(events.Tick())
    assert pair.members == ["a", "b"]
    pair.pass_time(3.0)
    assert pair.members == ["a", "b"]


def test_who_stalls_alone_is_lost(pair: Bench) -> None:
    pair.sidecar_says("b", "stalled", 60.0)
    pair.pass_time(0.9)
    assert pair.members == ["a", "b"]
    pair.pass_time(0.2)
    assert pair.members == ["a"]


def test_when_all_stall_nobody_is_singled_out(pair: Bench) -> None:
    """One that hangs holds up the other: in a new group the one that answers is the sound one."""
    pair.sidecar_says("b", "stalled", 60.0)
    pair.sidecar_says("a", "stalled", 60.0)
    pair.pass_time(1.1)
    assert (pair.epoch, pair.members) == (2, ["a", "b"])


def test_progress_refutes_a_stall(pair: Bench) -> None:
    pair.sidecar_says("b", "stalled", 60.0)
    pair.progress("b", 9)
    pair.pass_time(5.0)
    assert pair.members == ["a", "b"]


def test_what_strangers_say_is_of_no_effect(pair: Bench) -> None:
    before = pair.state
    for event in (
        events.SidecarSaid(999, "gone"),
        events.Failed(999, 1, ((0, 1),), 0, "x"),
        events.Done(999, 1, before.record.cursor),
        events.Report(999, -1, Cursor(), 0.0, 0, 0, 1, 1),
    ):
        pair.do(event)
    assert pair.state.record == before.record


def test_a_member_speaks_only_through_its_own_connection(pair: Bench) -> None:
    """A sidecar's connection says nothing in the worker's name, but how it has ended."""
    pair.do(events.Report(pair.sidecars["b"], -1, Cursor(), 0.0, 0, 0, 1, 1))
    assert pair.members == ["a", "b"]
    assert pair.state.trouble_at is None
    pair.do(events.Failed(pair.sidecars["b"], 1, ((0, 1),), 0, "it crashed"))
    assert pair.members == ["a"]
    assert pair.state.record.failures[-1].error == "it crashed"


def test_largest_connected() -> None:
    assert largest_connected([1, 2, 3, 4], {}) == (1, 2, 3, 4)
    islands = {1: {1, 2}, 2: {1, 2}, 3: {3, 4}, 4: {3, 4}}
    assert largest_connected([1, 2, 3, 4], islands) == (1, 2)
    assert largest_connected([1, 2, 3], {1: {1}, 2: {2, 3}, 3: {2, 3}}) == (2, 3)
    assert largest_connected([1, 2], {1: {1}}) == (1,)
    assert largest_connected([], {}) == ()
    bridge = {1: {1, 2, 3}, 2: {1, 2, 4}, 3: {1, 3, 4}, 4: {2, 3, 4}}
    assert largest_connected([1, 2, 3, 4], bridge) == (1, 2)


def test_largest_connected_of_many_is_quick() -> None:
    """A worst case (everybody is cut off from one other) ends within its bound."""
    members = list(range(60))
    reached = {each: set(members) - {each ^ 1} for each in members}
    staying = largest_connected(members, reached)
    assert staying == tuple(range(0, 60, 2))


@pytest.mark.parametrize("how", ["silent", "stopped"])
def test_in_a_first_view_nobody_must_have_said_that_it_goes_on(how: str) -> None:
    """Nothing can be committed that any of them has not applied: each is a witness of the others."""
    bench = Bench(minimum=1, expect=3)
    bench.join("a", "b", "c")
    assert bench.members == ["a", "b", "c"]
    if how == "stopped":
        bench.sidecar_says("b", "stopped")
    bench.pass_time(0.9, silent=("b",) if how == "silent" else ())
    assert (bench.view.kind, bench.members) == ("first", ["a", "c"])
    bench.pass_time(0.9, silent=("b", "c"))
    assert bench.members == ["a"]


def test_a_newcomer_in_a_first_view_is_no_witness_of_those_that_may_have_a_state() -> None:
    """They were in one before it, in which steps may have been committed that were not heard of."""
    bench = Bench(minimum=2, expect=2)
    bench.join("a", "b")
    bench.sidecar_says("b", "gone")
    bench.join("c")
    assert (bench.view.kind, bench.members) == ("first", ["a", "c"])
    bench.state = machine.step(bench.state, events.Wanted(None, 1, None), bench.now)[0]
    bench.pass_time(3.0, silent=("a",))
    assert bench.members == ["a", "c"]
    bench.pass_time(0.2)
    bench.pass_time(0.9, silent=("c",))
    assert bench.members == ["a"]


def test_a_first_view_that_fails_is_published_again_at_once() -> None:
    """Though more are expected: that was waited for before the one that has failed."""
    bench = Bench(minimum=1, expect=3)
    bench.join("a", "b", "c")
    bench.sidecar_says("c", "gone")
    assert (bench.view.kind, bench.members) == ("first", ["a", "b"])
