from __future__ import annotations

import sys

import msgspec
import pytest

from shoal.objects import codec
from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Budget, Queue
from shoal.schedule.decide import decide
from shoal.schedule.plan import Policy
from shoal.schedule.snapshot import Form, Hold, Snapshot
from tests.schedule.world import (
    NOW,
    Job,
    array,
    codes,
    elastic,
    gang,
    node,
    placed,
    role,
    snapshot,
    steps,
    write_of,
)

POLICY = Policy()


EDITION = 1


@pytest.fixture(autouse=True, params=[1, 2])
def edition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scheduling cores keep these promises."""
    monkeypatch.setattr(sys.modules[__name__], "EDITION", request.param)


def decided(world, policy=POLICY, now=NOW):
    rules = msgspec.structs.replace(policy.rules, edition=EDITION)
    return decide(world, msgspec.structs.replace(policy, rules=rules), now)


def plan(nodes, jobs, queues=(), policy=POLICY, now=NOW):
    return decided(snapshot(nodes, jobs, queues), policy, now)


def test_a_gang_starts_on_as_few_nodes_as_can_be():
    result = plan([node("a", 2000), node("b", 4000)], [Job("j", gang(3))])
    assert placed(result, "j") == {0: "b", 1: "b", 2: "b"}
    assert steps(result, "j") == ["Start"]
    assert write_of(result, "j").reason == "Started"


def test_the_tightest_node_that_holds_all_is_taken():
    result = plan([node("large", 8000), node("small", 2000)], [Job("j", gang(2))])
    assert placed(result, "j") == {0: "small", 1: "small"}


def test_a_gang_that_does_not_fit_holds_nothing():
    result = plan([node("a", 2000), node("b", 1000)], [Job("j", gang(4))])
    assert placed(result, "j") is None
    assert codes(result) == {"j": "TooLarge"}


def test_priority_goes_before_age_and_age_before_name():
    jobs = [
        Job("old", gang(), priority=0, created=NOW - 51),
        Job("b", gang(), priority=5, created=NOW - 52),
        Job("a", gang(), priority=5, created=NOW - 52),
        Job("urgent", gang(), priority=9, created=NOW - 53),
    ]
    result = plan([node("n", 2000)], jobs)
    assert sorted(name for name in ("old", "a", "b", "urgent") if placed(result, name)) == [
        "a",
        "urgent",
    ]
    assert codes(result) == {"b": "NoRoom", "old": "NoRoom"}


def test_a_smaller_later_job_may_pass_one_that_does_not_fit():
    jobs = [Job("running", gang(2), "+0@n +1@n"), Job("large", gang(4)), Job("small", gang(2))]
    result = plan([node("n")], jobs)
    assert placed(result, "small") == {0: "n", 1: "n"}
    assert codes(result) == {"large": "NoRoom"}


def test_an_elastic_job_starts_with_as_many_as_fit():
    result = plan([node("n")], [Job("j", elastic(2, 9))])
    assert placed(result, "j") == {0: "n", 1: "n", 2: "n", 3: "n"}


def test_surplus_comes_after_the_minimum_of_everybody():
    jobs = [
        Job("one", elastic(1, 9), created=NOW - 51),
        Job("two", gang(2), created=NOW - 52),
        Job("low", gang(1), created=NOW - 50, priority=-1),
    ]
    result = plan([node("n", 5000)], jobs)
    assert placed(result, "one") == {0: "n", 1: "n"}
    assert placed(result, "two") == {0: "n", 1: "n"}
    assert placed(result, "low") == {0: "n"}


def test_gang_min_counts_all_roles_and_leaves_none_out():
    form = Form(roles=(role(2, 0, name="server"), role(4, 0)), minimum=3)
    result = plan([node("n", 3000)], [Job("j", form)])
    write = write_of(result, "j")
    assert {(s.role, s.indices) for s in write.slots} == {("server", "0-1"), ("worker", "0")}


def test_both_minima_hold_together():
    form = Form(roles=(role(1, 1, name="head"), role(8, 2)), minimum=6)
    assert codes(plan([node("n", 5000), node("full", 0)], [Job("j", form)])) == {"j": "TooLarge"}
    write = write_of(plan([node("n", 6000)], [Job("j", form)]), "j")
    assert {(s.role, s.indices) for s in write.slots} == {("head", "0"), ("worker", "0-4")}


def test_the_role_that_fits_hardly_anywhere_is_placed_first():
    form = Form(
        roles=(role(2, name="any"), role(2, name="picky", selector=(("disk", "fast"),))), minimum=0
    )
    result = plan([node("fast", 2000, labels={"disk": "fast"}), node("slow", 2000)], [Job("j", form)])
    assert {(s.role, s.node) for s in write_of(result, "j").slots} == {
        ("any", "slow"),
        ("picky", "fast"),
    }


def test_an_array_starts_what_fits_up_to_its_parallelism():
    assert placed(plan([node("n")], [Job("j", array("0-99", 3))]), "j") == {0: "n", 1: "n", 2: "n"}
    assert placed(plan([node("n", 2000)], [Job("j", array("5-9,20", 3))]), "j") == {5: "n", 6: "n"}


def test_ended_indices_of_an_array_make_place_for_the_next_in_one_write():
    job = Job("j", array("0-9", 2), "0@n +1@n", done=(("worker", "0"),), allocation=7)
    result = plan([node("n")], [job])
    assert placed(result, "j") == {1: "n", 2: "n"}
    assert steps(result, "j") == ["Shrink", "Grow"]
    assert (write_of(result, "j").reason, write_of(result, "j").allocation) == ("Grown", 7)


def test_who_asks_for_fewer_than_have_ended_gets_what_has_not():
    job = Job("j", gang(2, whole=False), done=(("worker", "1-3"),))
    assert placed(plan([node("n")], [job]), "j") == {0: "n"}


def test_slots_are_as_few_ranges_as_can_be():
    result = plan([node("a", 3000), node("b", 2000)], [Job("j", gang(5))])
    assert [(s.indices, s.node) for s in write_of(result, "j").slots] == [("0-2", "a"), ("3-4", "b")]


def test_devices_go_to_the_tasks_in_the_order_of_their_indices():
    nodes = [node("n", gpus=("g0", "g1", "g2", "g3", "g4"))]
    busy = Job("busy", gang(1, gpu=1), "+0@n/g1")
    result = plan(nodes, [busy, Job("j", gang(2, gpu=2))])
    assert write_of(result, "j").slots[0].devices == ("g0", "g2", "g3", "g4")


def test_devices_that_are_not_known_keep_the_whole_node_from_being_given():
    row = Job("gone", gang(1, gpu=1))
    row.holds = (Hold(role="worker", index=0, node="n", gpu=1, claimed=True),)
    result = plan([node("n", gpus=("g0", "g1"))], [row, Job("j", gang(1, gpu=1))])
    assert codes(result)["j"] == "Departing"  # once that is gone


def test_capacity_of_a_task_that_still_runs_is_not_used():
    jobs = [Job("leaving", gang(4), "-0@n -1@n -2@n -3@n", ending="Suspended"), Job("next", gang(4))]
    result = plan([node("n")], jobs)
    assert (placed(result, "next"), codes(result)) == (None, {"next": "Departing"})
    assert [(slots.indices, slots.node) for slots in write_of(result, "next").reserved] == [("0-3", "n")]


def test_tasks_of_unknown_jobs_hold_capacity_too():
    world = snapshot([node("n")], [Job("j", gang(4))])
    stranger = Hold(role="x", index=0, node="n", cpu=500, live=True)
    world = Snapshot(
        nodes=world.nodes, queues=world.queues, forms=world.forms, jobs=world.jobs, strangers=(stranger,)
    )
    result = decided(world)
    assert (placed(result, "j"), codes(result)) == (None, {"j": "Departing"})


def test_jobs_that_end_give_everything_back_and_others_take_it_in_the_same_plan():
    for ending in ("Finished", "Suspended", "Cancelled", "Deleted"):
        jobs = [Job("a", gang(4), "0@n 1@n 2@n 3@n", ending=ending, created=NOW - 59), Job("b", gang(4))]
        result = plan([node("n")], jobs)
        assert [write.job.name for write in result.writes] == ["a", "b"]
        assert (write_of(result, "a").slots, write_of(result, "a").reason) == ((), ending)
        assert placed(result, "b") == dict.fromkeys(range(4), "n")


def test_fewer_replicas_shrink_the_highest_indices():
    result = plan([node("n")], [Job("j", gang(2), "+0@n +1@n +2@n +3@n")])
    assert placed(result, "j") == {0: "n", 1: "n"}
    assert (steps(result, "j"), write_of(result, "j").reason) == (["Shrink"], "Shrunk")


def test_less_parallelism_shrinks_the_highest_indices():
    assert placed(plan([node("n")], [Job("j", array("0-9", 1), "+3@n +5@n")]), "j") == {3: "n"}


def test_more_replicas_grow_at_the_lowest_free_indices():
    result = plan([node("n")], [Job("j", gang(4, whole=False), "+0@n +2@n")])
    assert placed(result, "j") == {0: "n", 1: "n", 2: "n", 3: "n"}
    assert steps(result, "j") == ["Grow"]


def test_a_gang_grows_by_all_or_nothing_and_keeps_running_meanwhile():
    jobs = [Job("j", gang(4), "+0@n +1@n"), Job("other", gang(1), "+0@n")]
    result = plan([node("n")], jobs)
    assert placed(result, "j") is None
    assert codes(result) == {"j": "NoRoom"}


def test_a_gang_that_may_be_small_does_not_grow_again_at_once():
    job = Job("j", elastic(1, 4, whole=True), "+0@n", changed=NOW - 4)
    result = plan([node("n")], [job])
    assert placed(result, "j") is None
    assert result.again_at == NOW + 6
    result = plan([node("n")], [job], now=NOW + 6)
    assert placed(result, "j") == dict.fromkeys(range(4), "n")


def test_indices_that_ended_well_count_towards_the_minimum():
    job = Job("j", gang(4, whole=False), "+3@n", done=(("worker", "0-1"),))
    assert placed(plan([node("n")], [job]), "j") == {2: "n", 3: "n"}


def test_a_gang_keeps_the_slots_of_tasks_that_ended():
    job = Job("j", gang(2), "0@n +1@n", done=(("worker", "0"),))
    assert plan([node("n")], [job]).writes == ()


def test_a_job_that_is_coming_to_its_end_gets_no_more():
    done = {"done": (("worker", "0"),)}
    jobs = [
        Job("elastic", elastic(1, 4), "0@n +1@n", **done),
        Job("gang", elastic(1, 4, whole=True), "0@n +1@n", **done),
    ]
    result = plan([node("n")], jobs)
    assert placed(result, "elastic") == {1: "n"}
    assert write_of(result, "gang") is None
    last = Job("last", elastic(1, 4), "0@n", **done)
    result = plan([node("n")], [last])
    assert (placed(result, "last"), codes(result)) == ({}, {})


def test_what_is_left_of_a_job_whose_minimum_has_ended_starts_all_the_same():
    form = Form(roles=(role(4, 0),), minimum=1)
    assert placed(plan([node("n", 2000)], [Job("j", form, done=(("worker", "0"),))]), "j") == {
        1: "n",
        2: "n",
    }


def test_silent_nodes_keep_what_they_hold_and_get_nothing_new():
    jobs = [Job("there", gang(2), "+0@n +1@n"), Job("new", gang(2))]
    result = plan([node("n", ready=False)], jobs)
    assert placed(result, "there") is None
    assert codes(result) == {"new": "WaitingForNode"}


def test_a_cordoned_node_keeps_what_it_has():
    jobs = [Job("there", gang(2), "+0@n +1@n"), Job("new", gang(2))]
    result = plan([node("n", schedulable=False)], jobs)
    assert codes(result) == {"new": "WaitingForNode"}
    assert write_of(result, "new").evidence == {"silent": [], "cordoned": ["n"]}


def test_a_gang_leaves_a_drained_node_and_goes_on_elsewhere():
    taint = (Taint(key="drain", effect="NoExecute"),)
    nodes = [node("a", taints=taint), node("b")]
    result = plan(nodes, [Job("j", gang(2), "+0@a +1@b")])
    assert placed(result, "j") == {1: "b"}
    assert (steps(result, "j"), write_of(result, "j").reason) == (["Shrink", "Deny"], "NodeDrained")
    assert codes(result) == {"j": "Stopping"}
    gone = plan(nodes, [Job("j", gang(2), "+1@b")])
    assert placed(gone, "j") == {0: "b", 1: "b"}


def test_a_gang_below_its_minimum_keeps_the_rest_for_a_while_and_then_gives_it_back():
    nodes = [node("a", lost=True), node("b", 2000)]
    other = Job("other", gang(1), "+0@b", priority=1)
    result = plan(nodes, [Job("j", gang(2), "+0@a +1@b"), other])
    assert placed(result, "j") == {1: "b"}
    assert (write_of(result, "j").reason, write_of(result, "j").code) == ("NodeLost", "NoRoom")
    assert steps(result, "j") == ["Shrink", "Deny"]
    lately = {"reason": "NodeLost", "changed": NOW - POLICY.rules.stale_seconds + 1}
    waits = [Job("j", gang(2), "+1@b", **lately), other]
    assert placed(plan(nodes, waits), "j") is None
    lately["changed"] -= 1
    result = plan(nodes, [Job("j", gang(2), "+1@b", **lately), other])
    assert (write_of(result, "j").slots, write_of(result, "j").reason) == ((), "BelowMinimum")
    assert steps(result, "j") == ["Preempt", "Deny"]


def test_a_gang_that_was_asked_to_be_larger_runs_on_until_it_can_be():
    other = Job("other", gang(2), "+0@n +1@n", priority=1)
    result = plan([node("n")], [Job("j", gang(4), "+0@n +1@n", changed=NOW - 1000), other])
    assert placed(result, "j") is None


def test_tasks_that_stand_alone_keep_what_is_left():
    nodes = [node("a", lost=True), node("b", 1000)]
    result = plan(nodes, [Job("j", gang(2, whole=False), "+0@a +1@b")])
    assert placed(result, "j") == {1: "b"}
    assert write_of(result, "j").code == "TooLarge"


def test_an_elastic_job_goes_on_without_the_lost_node():
    nodes = [node("a", lost=True), node("b", 2000)]
    result = plan(nodes, [Job("j", elastic(1, 3), "+0@a +1@b +2@a")])
    assert placed(result, "j") == {0: "b", 1: "b"}
    assert steps(result, "j") == ["Shrink", "Move"]


def test_a_node_that_is_no_longer_there_is_lost():
    result = plan([node("b")], [Job("j", gang(1), "+0@gone")])
    assert placed(result, "j") == {0: "b"}


def test_tolerated_taints_keep_nobody_away():
    from tests.schedule.world import TOLERATE_ALL

    taints = (Taint(key="x", effect="NoExecute"), Taint(key="y"))
    tolerant = Job("tolerant", gang(1, tolerations=TOLERATE_ALL), "+0@n")
    result = plan([node("n", taints=taints)], [tolerant, Job("not", gang(1))])
    assert placed(result, "tolerant") is None
    assert codes(result) == {"not": "NoNodeSuits"}


def test_a_refused_gang_is_placed_elsewhere_at_once():
    refused = {"refused": True, "avoid": "a", "avoid_until": NOW + 2}
    result = plan([node("a", 2000), node("b")], [Job("j", gang(2), "0@a 1@a", **refused)])
    assert placed(result, "j") == {0: "b", 1: "b"}
    assert write_of(result, "j").reason == "Refused"


def test_a_refusing_node_that_alone_would_do_is_tried_again_later():
    refused = {"refused": True, "avoid": "a", "avoid_until": NOW + 2}
    result = plan([node("a", 2000)], [Job("j", gang(2), "0@a 1@a", **refused)])
    assert (placed(result, "j"), codes(result)) == ({}, {"j": "PlacementRefused"})
    assert result.again_at == NOW + 2
    later = plan([node("a", 2000)], [Job("j", gang(2), avoid="a", avoid_until=NOW + 2)], now=NOW + 2)
    assert placed(later, "j") == {0: "a", 1: "a"}


def test_running_indices_of_an_array_survive_the_refusal_of_another():
    refused = {"refused": True, "avoid": "a", "avoid_until": NOW + 2}
    job = Job("j", array("0-9", 3), "+0@a 1@a 2@b", **refused)
    assert placed(plan([node("a"), node("b", 2000)], [job]), "j") == {0: "a", 1: "b", 2: "b"}


def test_a_refusal_tried_on_the_same_node_is_a_new_allocation():
    refused = {"refused": True, "avoid": "a", "avoid_until": NOW - 1}
    result = plan([node("a")], [Job("j", gang(2), "0@a 1@a", **refused)])
    assert placed(result, "j") == {0: "a", 1: "a"}


def test_a_denial_is_written_when_its_code_changes_and_only_then():
    form = gang(8)
    evidence = write_of(plan([node("n")], [Job("j", form)]), "j").evidence
    same = Job("j", form, code="TooLarge", evidence=evidence)
    assert plan([node("n")], [same]).writes == ()
    other_numbers = Job("j", form, code="TooLarge", evidence={})
    assert plan([node("n")], [other_numbers]).writes == ()
    refreshed = plan([node("n")], [other_numbers], policy=Policy(refresh=1))
    assert [write.job.name for write in refreshed.writes] == ["j"]


def test_a_reason_is_taken_back_when_nothing_holds_the_job_any_more():
    jobs = [
        Job("ended", gang(), ending="Finished", code="TooLarge"),
        Job("runs", gang(), "+0@n", code="X"),
    ]
    result = plan([node("n")], jobs)
    assert [(write.job.name, write.code, write.slots) for write in result.writes] == [
        ("ended", "", None),
        ("runs", "", None),
    ]


def test_equal_jobs_behind_a_denied_one_get_the_same_reason():
    jobs = [Job(f"j{number}", gang(8)) for number in range(3)]
    result = plan([node("n")], jobs)
    assert codes(result) == {"j0": "TooLarge", "j1": "TooLarge", "j2": "TooLarge"}
    assert len({codec.encode(write.evidence) for write in result.writes}) == 1


def test_no_write_takes_what_a_later_one_makes_free():
    # Each gives back what the other takes: neither can go first in one piece.
    left = Job("left", array("0-1", 1, selector=(("side", "b"),)), "0@a", done=(("worker", "0"),))
    right = Job("right", array("0-1", 1, selector=(("side", "a"),)), "0@b", done=(("worker", "0"),))
    nodes = [node("a", 1000, labels={"side": "a"}), node("b", 1000, labels={"side": "b"})]
    result = plan(nodes, [left, right])
    assert [(write.job.name, write.allocation, len(write.slots)) for write in result.writes] == [
        ("left", 0, 0),
        ("right", 0, 0),
        ("left", 1, 1),
        ("right", 1, 1),
    ]


def test_quota_of_a_preempted_task_is_free_only_when_it_has_gone():
    queue = Queue(name="default", limit={"cpu": 2000})
    leaving = Job("leaving", gang(2), "-0@n -1@n", ending="Suspended")
    result = plan([node("n")], [leaving, Job("next", gang(1))], [queue])
    assert (placed(result, "next"), codes(result)) == (None, {"next": "Departing"})
    staying = Job("staying", gang(2), "+0@n +1@n")
    result = plan([node("n")], [staying, Job("next", gang(1))], [queue])
    assert codes(result) == {"next": "Limit"}
    assert write_of(result, "next").evidence == {
        "queue": "default", "resource": "cpu", "bound": 2000, "used": 2000, "asked": 1000,
    }  # fmt: skip


def test_quota_bounds_growth_and_arrays():
    queue = Queue(name="default", limit={"cpu": 3000})
    assert placed(plan([node("n")], [Job("j", elastic(1, 9))], [queue]), "j") == {0: "n", 1: "n", 2: "n"}
    assert len(placed(plan([node("n")], [Job("j", array("0-9"))], [queue]), "j")) == 3


def test_a_quota_of_jobs_counts_those_that_hold_something():
    queue = Queue(name="default", jobs=1)
    jobs = [Job("a", gang(), "+0@n"), Job("b", gang())]
    assert codes(plan([node("n")], jobs, [queue])) == {"b": "Limit"}
    ended = [Job("a", gang(), "0@n", ending="Finished"), Job("b", gang())]
    assert placed(plan([node("n")], ended, [queue]), "b") == {0: "n"}


def test_a_job_over_quota_does_not_stop_others_of_its_queue():
    queue = Queue(name="default", limit={"cpu": 2000})
    result = plan([node("n")], [Job("large", gang(3)), Job("small", gang(2))], [queue])
    assert placed(result, "small") == {0: "n", 1: "n"}
    assert codes(result) == {"large": "OverLimit"}


@pytest.mark.parametrize("resource", ["cpu", "gpu", "node"])
def test_nothing_starts_on_a_budget_that_is_used_up(resource: str):
    budget = Budget(name="grant", resource=resource, hours=1.0, spent=1.0)
    nodes = [node("n", gpus=("g0",))]
    job = Job("j", gang(1, gpu=1))
    assert codes(plan(nodes, [job], [Queue(name="default", budgets=(budget,))])) == {
        "j": "BudgetExhausted"
    }
    left = msgspec.structs.replace(budget, spent=0.5)
    assert placed(plan(nodes, [job], [Queue(name="default", budgets=(left,))]), "j") == {0: "n"}


def test_queues_bar_namespaces_and_priorities():
    queues = [
        Queue(name="closed", namespaces=("team",)),
        Queue(name="capped", highest={"*": 0, "default": -5, "team": 5}),
    ]
    jobs = [
        Job("a", gang(), queue="none"),
        Job("b", gang(), queue="closed"),
        Job("c", gang(), queue="capped", priority=-4),
        Job("d", gang(), queue="capped", priority=-5),
        Job("e", gang(), queue="capped", priority=1, namespace="elsewhere"),
        Job("f", gang(), queue="capped", priority=5, namespace="team"),
    ]
    result = plan([node("n")], jobs, queues)
    assert codes(result) == {
        "a": "QueueMissing",
        "b": "NamespaceNotAllowed",
        "c": "PriorityTooHigh",
        "e": "PriorityTooHigh",
    }
    assert placed(result, "d") and placed(result, "f")


def test_a_job_whose_queue_went_away_keeps_what_it_has_and_gets_no_more():
    job = Job("j", elastic(1, 4), "+0@n", queue="none")
    assert plan([node("n")], [job]).writes == ()


def test_a_plan_and_its_snapshot_survive_a_file():
    taint = (Taint(key="drain", effect="NoExecute"),)
    world = snapshot(
        [node("a", taints=taint), node("b", 2000, gpus=("g0",))],
        [Job("j", gang(2), "+0@a +1@b"), Job("k", gang(1, gpu=1)), Job("l", elastic(1, 9))],
    )
    first = decided(world)
    again = decided(codec.decode(codec.encode(world), Snapshot))
    assert codec.encode(first) == codec.encode(again)
    assert codec.encode(codec.decode(codec.encode(first), type(first))) == codec.encode(first)
