"""Running jobs give way: what they can spare for those that have nothing yet, all for those above."""

from __future__ import annotations

import msgspec
import pytest

from shoal.objects.ranges import IndexSet
from shoal.schedule.cycle.rows import Queue
from shoal.schedule.decide import decide
from shoal.schedule.explain import explain
from shoal.schedule.plan import Plan, Policy, Preempt, Reserve, Shrink
from shoal.schedule.snapshot import Form, Snapshot
from tests.schedule.world import (
    NOW,
    Job,
    apply,
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

FOUR = elastic(1, 4, coordinated=True)
FULL = "+coordinator/0@a +worker/0@a +worker/1@a +worker/2@a +worker/3@a"
NODE = node("a", 4100)


def full(**fields) -> Job:
    """An elastic job that has the whole node."""
    return Job("train", FOUR, FULL, **fields)


def given_up(plan: Plan) -> dict[str, list[str]]:
    """Job to the slots that it gives up for another, as `role/indices`."""
    return {
        write.job.name: [f"{s.role}/{s.indices}" for s in step.slots]
        for write in plan.writes
        for step in write.steps
        if isinstance(step, Shrink | Preempt) and step.code == "Preempted"
    }


def end(world: Snapshot, *names: str) -> Snapshot:
    """Those jobs' tasks without a slot have gone."""
    rows = []
    for row in world.jobs:
        if row.name in names:
            row = msgspec.structs.replace(row, holds=tuple(hold for hold in row.holds if hold.slot))
        rows.append(row)
    return msgspec.structs.replace(world, jobs=tuple(rows))


def after(world: Snapshot, plan: Plan) -> Snapshot:
    for write in plan.writes:
        world = apply(world, write)
    return world


def test_the_highest_indices_go_one_by_one_until_it_fits():
    """A production job arrives and takes two of four workers; when it has gone they are back."""
    world = snapshot([NODE], [full(), Job("prod", gang(2), priority=1000)])
    plan = decide(world, Policy(), NOW)
    assert [write.job.name for write in plan.writes] == ["prod", "train"], "the reservation is first"
    assert given_up(plan) == {"train": ["worker/2-3"]}
    assert codes(plan) == {"prod": "Preempting"}
    assert steps(plan, "prod") == ["Reserve"]
    shrunk = write_of(plan, "train")
    assert shrunk is not None
    assert shrunk.reason == "Preempted", "what the tasks are stopped for"

    world = after(world, plan)
    assert decide(world, Policy(), NOW).writes == (), "what is still there is not used, nor more taken"
    world = end(world, "train")
    plan = decide(world, Policy(), NOW)
    assert placed(plan, "prod") == {0: "a", 1: "a"}
    assert write_of(plan, "prod").reserved == ()
    assert write_of(plan, "train") is None

    world = after(world, plan)
    rows = [row for row in world.jobs if row.name != "prod"]
    world = msgspec.structs.replace(world, jobs=tuple(rows))
    plan = decide(world, Policy(), NOW)
    assert steps(plan, "train") == ["Grow"]
    assert sorted(placed(plan, "train")) == [0, 1, 2, 3]


def test_never_below_the_minimum_and_never_the_coordinator():
    assert given_up(decide(_with(gang(3)), Policy(), NOW)) == {"train": ["worker/1-3"]}
    plan = decide(_with(gang(4)), Policy(), NOW)
    assert given_up(plan) == {"train": ["coordinator/0", "worker/0-3"]}, "then all of it goes"
    plan = decide(_with(gang(5)), Policy(), NOW)
    assert given_up(plan) == {}, "nobody gives way to a job that would not fit then"
    assert codes(plan) == {"prod": "TooLarge"}
    kept = snapshot([NODE], [full(preemptible=False), Job("prod", gang(1), priority=1000)])
    assert given_up(decide(kept, Policy(), NOW)) == {}


def _with(form: Form) -> Snapshot:
    return snapshot([NODE], [full(), Job("prod", form, priority=1000)])


def test_equals_in_its_queue_get_what_it_can_spare_and_lower_ones_nothing():
    plan = decide(snapshot([NODE], [full(), Job("j", gang(2))]), Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/2-3"]}
    plan = decide(snapshot([NODE], [full(), Job("j", gang(4))]), Policy(), NOW)
    assert given_up(plan) == {}
    plan = decide(snapshot([NODE], [full(), Job("j", gang(2), priority=-5)]), Policy(), NOW)
    assert given_up(plan) == {}


def test_the_lowest_priority_gives_first_then_the_youngest():
    two = elastic(1, 2)
    jobs = [
        Job("old", two, "+0@a +1@a", priority=-1),
        Job("young", two, "+0@a +1@a", priority=-1),
        Job("low", two, "+0@a +1@a", priority=-9),
        Job("prod", gang(1, cpu=2000), priority=5),
    ]
    plan = decide(snapshot([node("a", 6000)], jobs), Policy(), NOW)
    assert given_up(plan) == {"low": ["worker/1"], "young": ["worker/1"]}


def test_who_does_not_help_keeps_what_it_has():
    """One on another node, and one that was asked before a better one was found."""
    jobs = [
        Job("here", elastic(1, 3), "+0@a +1@a +2@a", priority=-1),
        Job("there", elastic(1, 3), "+0@b +1@b +2@b", priority=-9),
        Job("prod", gang(1, cpu=2000, selector=(("disk", "fast"),)), priority=5),
    ]
    nodes = [node("a", 3000, labels={"disk": "fast"}), node("b", 3000)]
    assert given_up(decide(snapshot(nodes, jobs), Policy(), NOW)) == {"here": ["worker/1-2"]}
    anywhere = [*jobs[:2], Job("prod", gang(1, cpu=3000), priority=5)]
    nodes = [node("a", 4000), node("b", 3500)]
    plan = decide(snapshot(nodes, anywhere), Policy(), NOW)
    assert given_up(plan) == {"here": ["worker/1-2"]}, "the others on b would not have been enough"


def test_what_is_reserved_is_kept_from_those_behind():
    jobs = [
        full(priority=-1000),
        Job("small", gang(1), priority=-1000),
        Job("prod", gang(2), priority=1000),
        Job("next", gang(1), priority=10),
    ]
    world = snapshot([NODE], jobs)
    plan = decide(world, Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/1-3"]}
    assert codes(plan) == {"prod": "Preempting", "next": "Preempting", "small": "NoRoom"}
    world = after(world, plan)
    holds = next(row for row in world.jobs if row.name == "train").holds
    one_gone = tuple(hold for hold in holds if hold.slot or hold.index != 3)
    world = msgspec.structs.replace(
        world,
        jobs=tuple(
            msgspec.structs.replace(row, holds=one_gone) if row.name == "train" else row
            for row in world.jobs
        ),
    )
    plan = decide(world, Policy(), NOW)
    assert placed(plan, "small") is None
    assert placed(plan, "train") is None
    assert placed(plan, "next") is None, "prod's two come first"
    assert placed(plan, "prod") is None


def test_a_reservation_ends_with_the_wish():
    world = snapshot([NODE], [full(), Job("prod", gang(2), priority=1000)])
    world = after(world, decide(world, Policy(), NOW))
    rows = [
        msgspec.structs.replace(row, ending="Cancelled") if row.name == "prod" else row
        for row in world.jobs
    ]
    world = end(msgspec.structs.replace(world, jobs=tuple(rows)), "train")
    plan = decide(world, Policy(), NOW)
    assert write_of(plan, "prod").reserved == ()
    assert sorted(placed(plan, "train")) == [0, 1, 2, 3]


def test_cut_off_after_the_reservation_the_next_plan_goes_on():
    world = snapshot([NODE], [full(), Job("prod", gang(2), priority=1000)])
    plan = decide(world, Policy(), NOW)
    world = apply(world, plan.writes[0])
    again = decide(world, Policy(), NOW)
    assert [write.job.name for write in again.writes] == ["train"]
    assert given_up(again) == given_up(plan)


def test_a_quota_can_be_what_is_in_the_way():
    """Only those of the same queue can help then."""
    queues = [Queue(name="q", limit={"cpu": 4100}), Queue(name="default")]
    jobs = [
        full(queue="q"),
        Job("other", elastic(1, 2), "+0@b +1@b", priority=-9),
        Job("prod", gang(1), priority=5, queue="q"),
    ]
    world = snapshot([NODE, node("b", 8000)], jobs, queues)
    plan = decide(world, Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/3"]}
    world = end(after(world, plan), "train")
    assert placed(decide(world, Policy(), NOW), "prod") is not None


def test_devices_are_taken_over_too():
    gpu = elastic(1, 3, gpu=1)
    nodes = [node("a", 8000, gpus=("g0", "g1", "g2"))]
    jobs = [Job("train", gpu, "+0@a/g0 +1@a/g1 +2@a/g2"), Job("prod", gang(1, gpu=2), priority=1)]
    world = snapshot(nodes, jobs)
    plan = decide(world, Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/1-2"]}
    (reserve,) = [s for w in plan.writes for s in w.steps if isinstance(s, Reserve)]
    assert reserve.slots[0].devices == ("g1", "g2")
    world = end(after(world, plan), "train")
    assert placed(decide(world, Policy(), NOW), "prod") == {0: "a"}


def test_a_job_whose_tasks_start_together_goes_on_with_fewer_too():
    jobs = [
        Job("train", elastic(1, 4, whole=True), "+0@a +1@a +2@a +3@a"),
        Job("p", gang(1), priority=9),
    ]
    plan = decide(snapshot([node("a")], jobs), Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/3"]}


def test_an_array_takes_as_many_places_as_can_be_spared():
    world = snapshot([NODE], [full(), Job("sweep", array("0-9"))])
    plan = decide(world, Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/1-3"]}
    (reserve,) = [s for w in plan.writes for s in w.steps if isinstance(s, Reserve)]
    assert [s.indices for s in reserve.slots] == ["0-2"]


def test_its_own_coordinator_comes_before_its_last_workers():
    """Its node was lost: without it nobody can join or leave."""
    holds = "+worker/0@a +worker/1@a +worker/2@a +worker/3@a coordinator/0@b"
    world = snapshot([node("a", 4000), node("b", lost=True)], [Job("train", FOUR, holds)])
    plan = decide(world, Policy(), NOW)
    assert given_up(plan) == {"train": ["worker/3"]}
    world = end(after(world, plan), "train")
    plan = decide(world, Policy(), NOW)
    write = write_of(plan, "train")
    assert {f"{s.role}/{s.indices}" for s in write.slots} == {"coordinator/0", "worker/0-2"}


def test_free_capacity_goes_to_elastic_jobs_at_once():
    """Growing costs them nothing, so they do not wait for more to come free."""
    holds = "+coordinator/0@a +worker/0@a"
    world = snapshot([NODE], [Job("train", FOUR, holds, changed=NOW - 0.1)])
    plan = decide(world, Policy(), NOW)
    assert sorted(placed(plan, "train")) == [0, 1, 2, 3]
    assert plan.again_at is None


def test_in_order_and_at_the_lowest_free_index():
    jobs = [
        Job("one", elastic(1, 4), "+0@a +2@a", priority=1),
        Job("two", elastic(1, 4), "+0@a"),
    ]
    plan = decide(snapshot([node("a", 5000)], jobs), Policy(), NOW)
    assert sorted(placed(plan, "one")) == [0, 1, 2, 3]
    assert placed(plan, "two") is None


def test_tasks_on_a_silent_node_are_not_asked():
    nodes = [node("a", 2000), node("b", 2000, ready=False)]
    jobs = [Job("train", elastic(1, 4), "+0@a +1@a +2@b +3@b"), Job("prod", gang(1), priority=1)]
    assert given_up(decide(snapshot(nodes, jobs), Policy(), NOW)) == {"train": ["worker/1"]}


def test_two_equal_jobs_are_made_room_for_one_after_the_other():
    jobs = [full(), *(Job(name, gang(2), priority=9) for name in ("p1", "p2"))]
    plan = decide(snapshot([NODE], jobs), Policy(), NOW)
    assert codes(plan) == {"p1": "Preempting", "p2": "Preempting", "train": "Preempted"}
    assert given_up(plan) == {"train": ["coordinator/0", "worker/0-3"]}
    jobs = [full(), *(Job(name, gang(2)) for name in ("e1", "e2"))]
    plan = decide(snapshot([NODE], jobs), Policy(), NOW)
    assert codes(plan)["e1"] == "Preempting"
    assert given_up(plan) == {"train": ["worker/2-3"]}, "equals get what it can spare"


def test_it_is_told_in_words():
    plan = decide(snapshot([NODE], [full(), Job("prod", gang(2), priority=1000)]), Policy(), NOW)
    said = {
        write.job.name: [explain(step.code, step.evidence).sentence for step in write.steps]
        for write in plan.writes
    }
    assert said == {
        "prod": ["it gets the place of default/train"],
        "train": ["2 tasks give up their places for default/prod; 3 go on"],
    }


def test_thousands_of_waiting_jobs_do_not_hold_the_others_up():
    """The time is bounded loosely, for machines are busy."""
    import time

    wide = Form(roles=(role(2000, 1),), minimum=0)
    wide = msgspec.structs.replace(wide, roles=(msgspec.structs.replace(wide.roles[0], elastic=True),))
    holds = " ".join(f"+{index}@n{index // 100}" for index in IndexSet.span(2000))
    nodes = [node(f"n{number}", 100_000, memory=2**40) for number in range(20)]
    jobs = [Job(f"j{n}", gang(3), priority=1) for n in range(2000)]
    world = snapshot(nodes, [Job("wide", wide, holds), *jobs])
    began = time.perf_counter()
    plan = decide(world, Policy(), NOW)
    took = time.perf_counter() - began
    print(f"{took:.2f} s")
    given = [IndexSet.parse(text.rpartition("/")[2]) for text in given_up(plan)["wide"]]
    assert sum(map(len, given)) == 1998, "666 jobs of three"
    assert took < 60


test_thousands_of_waiting_jobs_do_not_hold_the_others_up.pytestmark = [pytest.mark.soak]
