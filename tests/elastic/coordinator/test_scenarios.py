"""Membership as the reference's scenarios have it, in virtual time; each test names its scenario.

Where a peer's policy differs from our protocol, ours decides and the test says what differs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.elastic.coordinator import events
from shoal.elastic.view import Cursor

from .bench import Bench


def grow(bench: Bench, *names: str, step: int = 5) -> None:
    """Join behind donors, and switch."""
    before = list(bench.members)
    bench.join(*names)
    bench.caught_up(*names, step=step)
    # The first of several is planned at once; the others come with the view after.
    while bench.planned is not None:
        epoch = bench.state.record.planned[-1].epoch
        bench.switched(epoch, step, *bench.planned)
    assert set(bench.members) == {*before, *names}


def leave(bench: Bench, *names: str, step: int = 9) -> None:
    for name in names:
        bench.says(name, events.Leaving)
    planned, epoch = bench.planned, bench.state.record.planned[-1].epoch
    assert planned is not None
    bench.switched(epoch, step, *planned)
    for name in names:
        bench.says(name, events.Left, step)
        bench.sidecar_says(name, "gone")


def test_below_the_minimum_nobody_waits_in_vain() -> None:
    """training-A5: a peer's calls end with a time-out; here a worker is told at once that it waits."""
    bench = Bench(minimum=2)
    bench.join("a")
    assert bench.last("a", "paused") == {"type": "paused", "have": 1, "need": 2}
    assert bench.state.record.view is None
    bench.join("b")
    assert bench.members == ["a", "b"]


def test_a_joiner_is_counted_when_it_has_caught_up() -> None:
    """training-A7(a): a peer's joiner gives zeros while it heals; ours is no member until level."""
    bench = Bench()
    bench.start("a")
    bench.progress("a", 20)
    bench.join("b")
    assert bench.last("b", "donor") == {"type": "donor", "name": "a", "address": "a:1"}
    assert bench.members == ["a"]
    assert bench.planned is None
    bench.caught_up("b", step=20)
    assert bench.planned == ["a", "b"]
    bench.switched(2, 21, "a", "b")
    assert bench.members == ["a", "b"]


def test_one_up_to_date_of_two_pauses() -> None:
    """training-A7(b): below the minimum nothing is committed; the newcomer comes in directly."""
    bench = Bench(minimum=2)
    bench.start("a", "b")
    bench.progress("a", 20)
    bench.progress("b", 20)
    bench.sidecar_says("b", "gone")
    assert bench.epoch == 1
    assert bench.last("a", "paused") == {"type": "paused", "have": 1, "need": 2}
    bench.join("c")
    assert (bench.view.kind, bench.members, bench.view.step) == ("loss", ["a", "c"], 20)


def test_more_than_the_maximum_are_spares() -> None:
    """training-A7(c): the third of a job of two takes no part, and has no donor, until it is needed."""
    bench = Bench(maximum=2)
    bench.start("a")
    grow(bench, "b")
    bench.join("c")
    assert bench.last("c", "donor") is None
    bench.sidecar_says("a", "gone")
    bench.recovered(bench.epoch, 6, "b")
    donor = bench.last("c", "donor")
    assert donor is not None
    assert donor["name"] == "b"


def test_two_ask_and_a_third_is_not_waited_for() -> None:
    """training-A10a: a peer waits its join time-out for one that only beats; ours waits `expect_seconds`
    when a number is expected, and else not at all. Who was silent for 10 s is not in the view."""
    bench = Bench(minimum=1, expect=3)
    bench.join("a", "b")
    assert bench.state.record.view is None
    bench.pass_time(3.1)
    assert bench.members == ["a", "b"]
    other = Bench(minimum=1)
    other.join("a")
    other.recovered(1, 0, "a")
    grow(other, "b")
    other.pass_time(10.0, silent=("a",))
    assert other.members == ["b"]


def test_what_is_expected_is_waited_for_no_longer_than_needed() -> None:
    """training-A10a: with all that are expected the view comes at once."""
    bench = Bench(minimum=1, expect=2)
    bench.join("a", "b")
    assert bench.members == ["a", "b"]


def test_a_majority_is_not_needed() -> None:
    """training-A10b: a peer refuses one of two; ours has one coordinator that fences, so one is enough,
    and the next one is taken in by a planned view."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    assert bench.epoch == 2


def test_shrinking_and_a_joiner_at_once() -> None:
    """training-A10c: a peer's shrink keeps joiners out for a round; ours plans for who leaves first."""
    bench = Bench(minimum=1)
    bench.start("a")
    grow(bench, "b")
    bench.join("c")
    bench.says("b", events.Leaving)
    bench.caught_up("c")
    assert bench.planned == ["a"]
    bench.switched(3, 9, "a")
    bench.says("b", events.Left, 9)
    assert bench.planned == ["a", "c"]


def test_trouble_without_a_loss_is_a_new_view_of_the_same_members() -> None:
    """training-A10d: two failed operations are one new epoch with the same members."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.broken("a", 2)
    bench.pass_time(0.9)
    assert bench.epoch == 2
    bench.pass_time(0.2)
    assert (bench.epoch, bench.members) == (3, ["a", "b"])
    bench.recovered(3, 6, "a", "b")
    bench.pass_time(2.0)
    bench.broken("a", 3)
    bench.broken("b", 3)
    assert bench.epoch == 4, "with both there is nothing to wait for"


@pytest.mark.parametrize("switched_first", [True, False])
def test_a_switch_that_one_member_cannot_follow_is_overtaken(switched_first: bool) -> None:
    """One has switched to the planned view, in the group of the other an operation has failed."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.join("c")
    bench.caught_up("c", step=5)
    epoch = bench.state.record.planned[-1].epoch
    if switched_first:
        bench.switched(epoch, 6, "a")
        bench.broken("b", epoch - 1)
    else:
        bench.broken("b", epoch - 1)
        bench.switched(epoch, 6, "a")
    bench.pass_time(1.1)
    assert (bench.epoch, bench.view.kind) == (epoch + 1, "loss")
    assert set(bench.members) >= {"a", "b"}


def test_a_view_that_was_lost_on_its_way_is_sent_again() -> None:
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c")
    bench.sidecar_says("c", "gone")
    bench.told["a"].clear()
    bench.broken("a", bench.epoch - 1)
    assert (bench.last("a", "view") or {})["view"]["epoch"] == bench.epoch
    epoch = bench.epoch
    bench.pass_time(3.0)
    assert bench.epoch == epoch, "that view is the answer"


def test_a_report_after_both_links_and_the_coordinator_were_lost() -> None:
    """The coordinator was killed and the workers' links were cut: nothing but their reports tells."""
    bench = Bench(minimum=2)
    bench.start("a", "b")
    bench.progress("a", 3)
    epoch = bench.epoch
    again = Bench(record=bench.saved[-1], minimum=2)
    again.incarnations.update(bench.incarnations)
    for name in "ab":
        again.hello(name, bench.incarnations[name], epoch, 3)
        again.sidecar(name)
        again.broken(name, epoch)
    again.pass_time(1.1)
    assert (again.epoch, again.members) == (epoch + 1, ["a", "b"])


def test_a_lost_first_call_is_made_again() -> None:
    """training-A10d: who never heard its welcome says hello anew, and is somebody new."""
    bench = Bench(minimum=2)
    bench.join("a")
    bench.drop("a")
    bench.join("a")
    assert bench.incarnations["a"] == 2
    bench.join("b")
    assert [member.id for member in bench.view.members] == [("a", 2), ("b", 3)]


def test_donors_share_the_load() -> None:
    """training-A10e: three joiners and two sources; a peer's sources differ by rank, ours by load."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.join("c", "d", "e", "f")
    sources = [(bench.last(name, "donor") or {})["name"] for name in "cdef"]
    assert sorted(sources) == ["a", "a", "b", "b"]


def test_a_donor_that_is_lost_is_replaced() -> None:
    """training-A10e: the joiner is told of another."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.join("c")
    assert (bench.last("c", "donor") or {})["name"] == "a"
    bench.sidecar_says("a", "gone")
    bench.recovered(bench.epoch, 6, "b")
    assert (bench.last("c", "donor") or {})["name"] == "b"


def test_hosts_added_and_removed() -> None:
    """training-B1: 2, 4, 2 workers; the oldest is rank 0 throughout, and three views were in use."""
    bench = Bench(minimum=2)
    bench.start("a0", "a1")
    bench.join("b0", "b1")
    bench.caught_up("b0", "b1")
    bench.switched(2, 5, "a0", "a1", "b0", "b1")
    assert bench.members == ["a0", "a1", "b0", "b1"]
    leave(bench, "a0", "a1")
    assert bench.members == ["b0", "b1"]
    assert bench.view.kind == "switch"
    assert bench.state.recoveries == ()


@pytest.mark.parametrize("how", ["exception", "kill"])
def test_rank_0_fails(how: str) -> None:
    """training-B2, B3: rank 0 of 4 ends by exception and by kill; the other three go on, at once."""
    bench = Bench(minimum=2)
    bench.start("a0", "a1")
    grow(bench, "b0", "b1")
    epoch = bench.epoch
    if how == "kill":
        bench.sidecar_says("a0", "gone")
    else:
        bench.says("a0", events.Failed, 7, ((0, 4),), 1, "ValueError: no")
    assert (bench.epoch, bench.members) == (epoch + 1, ["a1", "b0", "b1"])
    assert bench.view.kind == "loss"


def test_all_ranks_fail_on_their_samples() -> None:
    """training-B4, B5: a peer fails when all exit or all hosts are blacklisted; ours fails when two have
    failed on the same samples, and names them."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.says("a", events.Failed, 7, ((64, 96),), 1, "ZeroDivisionError: by zero")
    assert bench.end is None
    bench.says("b", events.Failed, 7, ((64, 80), (90, 128)), 1, "ZeroDivisionError: by zero")
    assert bench.end is not None
    assert bench.end.failed
    for part in ("64 to 79", "90 to 95", "a: ZeroDivisionError", "b: ZeroDivisionError"):
        assert part in bench.end.reason
    assert bench.last("b", "stop") == {"type": "stop", "reason": bench.end.reason, "failed": True}


def test_a_recovery_that_another_replaces_keeps_who_was_lost() -> None:
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c", "d")
    bench.sidecar_says("b", "gone")
    bench.sidecar_says("c", "gone")
    assert bench.members == ["a", "d"]
    for name in bench.members:
        bench.recovered(bench.epoch, 1, name)
    (recovery,) = bench.state.recoveries
    assert [reason.partition(":")[0] for reason in recovery.reasons] == ["b", "c"]
    assert recovery.seconds is not None


@pytest.mark.slow
@pytest.mark.parametrize("again", ["", "the same connection", "a new connection"])
def test_samples_count_though_the_worker_was_lost_before_its_sidecar_said_why(again: str) -> None:
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c")
    bench.drop("a", "worker")
    bench.pass_time(60.0)
    assert bench.members == ["b", "c"]
    failed = events.Failed(bench.sidecars["a"], 7, ((64, 96),), 1, "it crashed")
    if again == "a new connection":
        bench.drop("a", "sidecar")
        bench.sidecar("a")
        failed = replace(failed, connection=bench.sidecars["a"])
    bench.do(failed)
    if again == "the same connection":
        bench.do(failed)
    assert [each.name for each in bench.state.record.failures] == ["a"]
    assert bench.members == ["b", "c"]
    assert bench.end is None
    bench.says("b", events.Failed, 7, ((64, 80),), 1, "it crashed")
    assert bench.end is not None
    assert "64 to 79" in bench.end.reason
    bench.drop("a")
    assert not bench.state.fenced


def test_the_same_process_failing_elsewhere_is_not_poison() -> None:
    """training-B4: other samples, another data epoch, or no second failure: the job goes on."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c")
    bench.says("a", events.Failed, 7, ((0, 4),), 1, "x")
    bench.says("b", events.Failed, 7, ((4, 8),), 1, "x")
    bench.join("a")
    bench.caught_up("a")
    assert bench.end is None
    bench.says("a", events.Failed, 9, ((0, 4),), 2, "x")
    assert bench.end is None


@pytest.mark.slow
def test_too_few_for_the_minimum_wait_and_go_on() -> None:
    """training-B6: a peer fails after its time-out; ours pauses, says so, and goes on when one joins."""
    bench = Bench(minimum=4)
    bench.start("a", "b", "c", "d")
    bench.says("d", events.Failed, 3, ((0, 1),), 0, "x")
    bench.pass_time(60.0)
    assert bench.end is None
    assert bench.epoch == 1
    assert bench.last("a", "paused") == {"type": "paused", "have": 3, "need": 4}
    assert any("paused" in text for text in bench.reports)
    bench.join("d")
    assert bench.members == ["a", "b", "c", "d"]


def test_changes_of_size_use_up_nothing() -> None:
    """training-B7: a peer counts resets against a limit; ours counts failures alone, so any number of
    changes of size is a success."""
    bench = Bench()
    bench.start("a")
    for _ in range(20):
        grow(bench, "b")
        leave(bench, "b")
    assert bench.end is None
    assert bench.state.record.failures == ()
    assert bench.members == ["a"]


def test_who_failed_may_come_back() -> None:
    """training-B8: a peer keeps a host out for a growing while; ours takes a new incarnation at once
    (the platform spaces out its restarts)."""
    bench = Bench()
    bench.start("a")
    for attempt in range(2):
        grow(bench, "b")
        bench.says("b", events.Failed, attempt, ((attempt, attempt + 1),), attempt, "x")
        bench.recovered(bench.epoch, 1, "a")
    grow(bench, "b")
    assert bench.incarnations["b"] == 4


def test_the_oldest_keeps_rank_0() -> None:
    """training-B9: [a, b, c], then d joins and a goes: [b, c, d]."""
    bench = Bench(minimum=3)
    bench.start("a", "b", "c")
    grow(bench, "d")
    leave(bench, "a")
    assert bench.members == ["b", "c", "d"]


def test_every_change_is_told() -> None:
    """training-B10: a peer sends three notifications; ours tells each view, and each number below the
    minimum."""
    bench = Bench(minimum=2, maximum=3)
    bench.start("a", "b")
    grow(bench, "c")
    bench.sidecar_says("c", "gone")
    bench.recovered(bench.epoch, 6, "a", "b")
    bench.sidecar_says("b", "gone")
    grown = [m["view"]["epoch"] for m in bench.told["a"] if m["type"] in ("view", "prepare")]
    assert grown == [1, 2, 3]
    assert bench.last("a", "paused") == {"type": "paused", "have": 1, "need": 2}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 63])
def test_newest_view_that_all_are_ready_for(count: int) -> None:
    """training-D1: while joiners are not ready nothing changes; then one planned view holds them all; a
    leaver gets none; the oldest is rank 0."""
    bench = Bench()
    bench.start("first")
    names = [f"j{number}" for number in range(count)]
    bench.join(*names)
    assert bench.planned is None
    bench.caught_up(*names)
    assert bench.planned is not None
    while bench.planned is not None:
        planned = bench.planned
        bench.switched(bench.state.record.planned[-1].epoch, 5, *planned)
    assert bench.members == ["first", *names]
    assert bench.epoch == 2  # one change, however many there are
    leave(bench, "first")
    assert bench.members == names


def test_the_coordinator_dies_before_the_view_is_kept() -> None:
    """training-N1: killed after the suspicion; the next finds the same loss, and there is one E+1."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c")
    epoch = bench.epoch
    other = bench.restarted()
    other.hello("a", bench.incarnations["a"], epoch, 7)
    other.hello("b", bench.incarnations["b"], epoch, 7)
    other.sidecar("a")
    other.sidecar("b")
    assert other.epoch == epoch
    other.pass_time(0.5)
    assert other.epoch == epoch
    other.pass_time(0.2)
    assert (other.epoch, other.members) == (epoch + 1, ["a", "b"])


def test_the_coordinator_dies_after_the_view_is_kept() -> None:
    """training-N1: members that never heard of E+1 are told when they are back."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c")
    before = bench.epoch
    bench.sidecar_says("c", "gone")
    other = bench.restarted()
    for name in ("a", "b"):
        other.hello(name, bench.incarnations[name], before, 7)
        told = other.last(name, "view")
        assert told is not None
        assert told["view"]["epoch"] == before + 1
    assert other.epoch == before + 1


def test_all_back_and_nothing_changes() -> None:
    """training-N1: without a loss there is no view, and incarnations are never given twice."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    other = bench.restarted()
    for name in ("a", "b"):
        other.hello(name, bench.incarnations[name], bench.epoch, 7)
        other.sidecar(name)
    other.pass_time(5.0)
    assert other.epoch == bench.epoch
    other.join("c")
    assert other.incarnations["c"] == 3


def test_a_second_loss_while_they_rebuild() -> None:
    """training-N6: E+2 with the remaining members."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c", "d")
    epoch = bench.epoch
    bench.sidecar_says("b", "gone")
    bench.sidecar_says("a", "gone")
    assert (bench.epoch, bench.members) == (epoch + 2, ["c", "d"])


def test_a_partition_of_members_keeps_the_side_of_the_oldest() -> None:
    """training-N7: 2|2, all reach the coordinator: one side goes on, the other is fenced and rejoins."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c", "d")
    bench.broken("a", bench.epoch)
    bench.pass_time(1.1)
    epoch = bench.epoch
    for name, reached in {"a": "ac", "c": "ac", "b": "bd", "d": "bd"}.items():
        bench.says(name, events.Unbuilt, epoch, tuple(reached))
    assert bench.members == ["a", "c"]
    for name in "bd":
        assert bench.last(name, "fenced") is not None
    bench.says("b", events.Publish, epoch, {"step": 3})
    assert (bench.last("b", "refused") or {})["reason"] == "the sender is no member any more"
    bench.join("b")
    assert bench.incarnations["b"] > 4


def test_a_partition_below_the_minimum_lets_nobody_on() -> None:
    """training-N7: 2|2 with a minimum of 3: nobody may go on; when it heals all do."""
    bench = Bench(minimum=3)
    bench.start("a", "b", "c")
    grow(bench, "d")
    bench.broken("a", bench.epoch)
    bench.pass_time(1.1)
    epoch = bench.epoch
    for name, reached in {"a": "ac", "c": "ac", "b": "bd", "d": "bd"}.items():
        bench.says(name, events.Unbuilt, epoch, tuple(reached))
    assert bench.epoch == epoch
    bench.pass_time(2.1)
    assert (bench.epoch, bench.members) == (epoch + 1, ["a", "b", "c", "d"])


def test_those_that_do_not_reach_the_coordinator_are_fenced() -> None:
    """training-N7: 2|2 with the coordinator on one side: that side goes on."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b", "c", "d")
    bench.pass_time(1.0, silent=("a", "b"))
    assert bench.members == ["c", "d"]
    bench.hello("a", bench.incarnations["a"], 3, 9)
    assert bench.last("a", "fenced") is not None


def test_a_coordinator_that_reaches_nobody_changes_nothing() -> None:
    """training-N7: with the coordinator on neither side nobody is counted lost for silence."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.pass_time(100.0, silent=("a", "b"))
    assert (bench.epoch, bench.members) == (2, ["a", "b"])


def test_blobs_of_another_epoch_or_rank_are_not_passed_on() -> None:
    """training-N10: what is left of an older epoch never reaches a newer group."""
    bench = Bench()
    bench.start("a")
    grow(bench, "b")
    bench.says("b", events.Blob, 1, 1, "old")
    bench.says("b", events.Blob, 2, 0, "not mine")
    assert bench.last("a", "blob") is None
    bench.says("b", events.Blob, 2, 1, "mine")
    assert bench.last("a", "blob") == {"type": "blob", "epoch": 2, "rank": 1, "data": "mine"}
    bench.drop("a", "worker")
    bench.hello("a", 1, 2, 5)
    assert bench.told["a"][-1] == {"type": "blob", "epoch": 2, "rank": 1, "data": "mine"}


def test_all_lost_and_no_checkpoint_ends_the_job() -> None:
    """It never begins at step 0 again in silence."""
    bench = Bench()
    bench.start("a")
    bench.says("a", events.Switched, 1, 12, Cursor(0, 12))
    bench.sidecar_says("a", "gone")
    bench.join("a")
    assert bench.end is not None
    assert bench.end.failed
    assert "step 12" in bench.end.reason
    assert "no checkpoint" in bench.end.reason


def test_all_lost_and_a_checkpoint_is_taken_up() -> None:
    """The steps behind it are counted as lost, and members are told of the manifest."""
    bench = Bench()
    bench.start("a")
    bench.says("a", events.Report, 12, Cursor(0, 12), 0.1, 1, 1)
    bench.says("a", events.Publish, 1, {"step": 10, "cursor": [0, 10]})
    assert bench.last("a", "published") == {"type": "published", "epoch": 1}
    bench.sidecar_says("a", "gone")
    bench.join("a")
    told = bench.last("a", "view")
    assert told is not None
    assert told["manifest"] == {"step": 10, "cursor": [0, 10]}
    assert (bench.view.kind, bench.view.step, bench.view.cursor) == ("first", 10, Cursor(0, 10))
    bench.recovered(bench.epoch, 10, "a")
    assert bench.state.recoveries[-1].lost_steps == 2


def test_a_resize_is_answered_so_that_it_need_not_be_said_again() -> None:
    bench = Bench(minimum=2, maximum=4)
    bench.start("a", "b")
    for _ in range(2):
        bench.says("a", events.Resize, 9)
        assert bench.last("a", "resized") == {"type": "resized", "size": 9}
        bench.told.clear()
    assert bench.state.record.target == 4


def test_a_first_view_whose_group_cannot_be_built_is_not_published_again_and_again() -> None:
    """Two machines that advertise addresses which the other does not reach: people are told which."""
    bench = Bench(minimum=2)
    bench.join("a", "b")
    built = 0
    for _ in range(40):
        if bench.epoch > built:
            built = bench.epoch
            for name in "ab":
                bench.says(name, events.Unbuilt, built, ("a", "b"))
        bench.pass_time(0.5)
    assert 5 <= bench.epoch <= 14
    assert any("a at a:1, b at b:1" in each for each in bench.reports)
    assert not any("every worker was lost" in each for each in bench.reports)


def test_newcomers_of_one_moment_come_in_together() -> None:
    bench = Bench()
    bench.start("a")
    bench.join("b", "c")
    bench.caught_up("b")
    assert bench.planned is None  # c takes the state as well
    bench.pass_time(0.3)
    bench.caught_up("c")
    assert bench.planned == ["a", "b", "c"]


def test_nobody_is_waited_for_long_and_nobody_who_goes_waits() -> None:
    bench = Bench()
    bench.start("a")
    bench.join("b", "c")
    bench.caught_up("b")
    bench.pass_time(0.6)
    assert bench.planned == ["a", "b"]
    bench = Bench(minimum=2)
    bench.start("a", "z")
    bench.join("b", "c")
    bench.caught_up("b")
    leave(bench, "z")
    assert bench.members == ["a", "b"]


def test_a_worker_that_fails_after_the_last_batch_is_no_success() -> None:
    """Its peer has finished; it raises while it saves its model. Its restart takes up the checkpoint."""
    bench = Bench(minimum=2)
    bench.start("a", "b")
    bench.says("a", events.Publish, 1, {"step": 12, "cursor": [1, 0]})
    for name in "ab":
        bench.progress(name, 12)
    bench.says("a", events.Done, 12, Cursor(1, 0))
    bench.drop("a")
    bench.says("b", events.Failed, 13, (), 0, "OSError: no room to save")
    bench.drop("b")
    bench.pass_time(10.0, silent=("a", "b"))
    assert bench.end is None
    bench.join("b")
    bench.pass_time(0.1, silent=("a",))
    assert (bench.view.kind, bench.members, bench.view.step) == ("first", ["b"], 12)
    bench.recovered(bench.epoch, 12, "b")
    bench.says("b", events.Done, 12, Cursor(1, 0))
    assert bench.end is None, "it may still end with an error"
    bench.drop("b")
    assert bench.end is not None
    assert not bench.end.failed


@pytest.mark.parametrize("how", ["failed", "left"])
def test_workers_that_end_in_the_middle_are_no_success(how: str) -> None:
    bench = Bench(minimum=2)
    bench.start("a", "b")
    for name in "ab":
        bench.progress(name, 20)
        if how == "failed":
            bench.says(name, events.Failed, 21, (), 0, "it ended with exit code 3")
        else:
            bench.says(name, events.Left, 20)
        bench.drop(name)
    bench.pass_time(10.0, silent=("a", "b"))
    assert bench.end is None
    bench.join("a", "b")
    bench.pass_time(0.1)
    assert bench.end is not None
    assert bench.end.failed
    assert "no checkpoint" in bench.end.reason


def test_one_that_has_finished_is_not_missed() -> None:
    """Its process has ended; the other has work to do after the loop, and is not disturbed."""
    bench = Bench(minimum=2)
    bench.start("a", "b")
    bench.says("a", events.Done, 12, Cursor(1, 0))
    bench.drop("a")
    epoch = bench.epoch
    bench.pass_time(30.0, silent=("a",))
    assert (bench.epoch, bench.end) == (epoch, None)
    bench.says("b", events.Done, 12, Cursor(1, 0))
    assert bench.end is None, "it may still end with an error"
    bench.drop("b")
    assert bench.end is not None
    assert not bench.end.failed
