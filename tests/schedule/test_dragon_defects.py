"""DRAGON's seven defects, (a) to (g): where it is re-created it has them, and a whole decision of ours,
or a part that decides, has not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.schedule.allot import Contender
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Preempt, Reserve, Shrink, Start
from shoal.schedule.placing.asks import Gang, Group
from shoal.schedule.placing.place import place
from shoal.schedule.sizing.choose import Demand, choose
from shoal.schedule.sizing.curves import concave
from tests.schedule.placing.small import cores, gpus, on, room

MINUTE = 60.0


def decide(nodes, jobs, now=0.0, queues=None, rules=None):
    total = sum(node.gpus for node in nodes)
    queues = queues or (Queue(name="default", nominal={"gpu": total}),)
    return plan(Cluster(nodes=nodes, queues=queues, jobs=tuple(jobs)), rules or Rules(), now)


def of(made, kind):
    """By job."""
    return {step.job: step for step in made.steps if isinstance(step, kind)}


def one_node(count, **amounts):
    return (Node(name="n0", gpus=count, amounts=amounts),)


def running(name, where, role=None, **stated):
    """A job with a task on each of these (node, GPUs ...)."""
    role = role or Role(minimum=len(where), maximum=len(where), gpus=len(where[0]) - 1)
    tasks = tuple(Task(index=at, node=node, gpus=held) for at, (node, *held) in enumerate(where))
    return Job(name=name, roles=(role,), tasks=tasks, **stated)


def waiting(name, count, each=1, **stated):
    return Job(name=name, roles=(Role(minimum=count, maximum=count, gpus=each),), **stated)


def elastic(least, most, each=1):
    return Role(minimum=least, maximum=most, gpus=each)


def on_gpus(*positions):
    return [("n0", position) for position in positions]


def dragon(now, capacity, *jobs):
    """What the re-created policy gives each of (name, submitted, least, size, held)."""
    contenders = [
        Contender(
            name=name,
            submitted=submitted,
            size=size,
            least=least,
            most=size,
            nodes=(0,) * held,
            run_seconds=lambda: math.inf,
            step_seconds=lambda replicas: 1.0 / replicas,
            steps_left=lambda: math.inf,
        )
        for name, submitted, least, size, held in jobs
    ]
    given = Dragon().allot(contenders, [capacity], now)
    return {name: len(nodes) for name, nodes in given.items()}


def test_a_a_head_that_cannot_be_made_room_for_blocks_nobody():
    """(a): five of eight are not to be had, one is free; a job of one waits behind a job of eight."""
    rigid, spare = ("rigid", 0, 5, 5, 5), ("spare", 0, 1, 2, 2)
    theirs = dragon(100, 8, rigid, spare, ("head", 10, 8, 8, 0), ("small", 20, 1, 1, 0))
    assert theirs == {"rigid": 5, "spare": 2}
    made = decide(
        one_node(8),
        [
            running("rigid", on_gpus(0, 1, 2, 3, 4)),
            running("spare", on_gpus(5, 6), elastic(1, 2)),
            waiting("head", 8, created=10),
            waiting("small", 1, created=20),
        ],
        now=100,
    )
    assert list(of(made, Start)) == ["small"]
    assert not of(made, Shrink) and not of(made, Preempt)


@pytest.mark.parametrize(
    "wall", [None, 3600.0], ids=["nobody knows when it ends", "its wall time is known"]
)
def test_b_what_is_idle_goes_to_elastic_jobs_while_a_large_one_waits(wall):
    """(b): three of eight are idle, and stay so for DRAGON however long the job of eight waits."""
    rigid, spare = ("rigid", 0, 4, 4, 4), ("spare", 0, 1, 4, 1)
    theirs = dragon(3000, 8, rigid, spare, ("head", 10, 8, 8, 0))
    assert theirs == {"rigid": 4, "spare": 1}
    assert dragon(3000, 8, rigid, spare) == {"rigid": 4, "spare": 4}
    made = decide(
        one_node(8),
        [
            running("rigid", on_gpus(0, 1, 2, 3), wall_seconds=wall),
            running("spare", on_gpus(4), elastic(1, 4)),
            waiting("head", 8, created=10),
        ],
        now=3000,
    )
    assert len(of(made, Grow)["spare"].tasks) == 3
    assert not of(made, Start)


def with_server(spare_cores):
    """A job of two workers and a server of four cores comes where another holds all GPUs, and a third so
    many cores that so many are free."""
    roles = (Role(minimum=2, maximum=2, gpus=1), Role(name="server", amounts={"cpu": 4}))
    busy = Role(amounts={"cpu": 8 - spare_cores})
    return decide(
        one_node(4, cpu=8),
        [
            running("surplus", on_gpus(0, 1, 2, 3), elastic(1, 4)),
            Job(name="busy", roles=(busy,), tasks=(Task(node="n0"),), priority=9),
            Job(name="head", roles=roles, priority=5),
        ],
    )


def test_c_the_server_counts_as_the_workers_do():
    """(c): room for the workers alone is no room; nobody gives way for it, and nothing is held."""
    made = with_server(spare_cores=3)
    assert list(of(made, Deny)) == ["head"]
    assert not of(made, Shrink) and not of(made, Reserve)
    made = with_server(spare_cores=4)
    assert [task.index for task in of(made, Shrink)["surplus"].tasks] == [2, 3]
    assert [task.role for task in of(made, Reserve)["head"].tasks] == ["worker", "worker", "server"]

    gang = Gang((Group(gpus(1), 2, 2), Group(cores(4), 1, 1)))
    here = room(4, cpu=3)
    assert place(here, gang) is None
    assert here.idle.tolist() == [4] and here.free.tolist() == [[3]]
    assert on(place(room(4, cpu=4), gang)) == [[0, 0], [0]]


def test_d_a_job_that_does_not_fit_on_one_node_is_tried_on_the_next():
    """(d): one GPU is idle on the first node, two on the second; the first job to grow needs two."""
    nodes = (Node(name="n0", gpus=4), Node(name="n1", gpus=4))
    made = decide(
        nodes,
        [
            running("a", [("n0", 0, 1)], elastic(1, 2, each=2), created=1),
            running("b", [("n0", 2)], elastic(1, 2), created=2),
            running("rigid", [("n1", 0), ("n1", 1)]),
        ],
    )
    grown = {name: [task.node for task in step.tasks] for name, step in of(made, Grow).items()}
    assert grown == {"a": ["n1"], "b": ["n0"]}


def test_e_growth_is_shared_and_bounded_by_quotas():
    """(e): the oldest of three gets all that is free from DRAGON; of ours each gets a part, and a queue
    no more than its limit."""
    assert dragon(100, 12, *((name, 0, 1, 10, 1) for name in "abc")) == {"a": 10, "b": 1, "c": 1}
    queues = (
        Queue(name="default", nominal={"gpu": 6}),
        Queue(name="small", nominal={"gpu": 2}, limit={"gpu": 2}),
    )
    jobs = [
        running("a", on_gpus(0), elastic(1, 10), created=1),
        running("b", on_gpus(1), elastic(1, 10), created=2),
        running("c", on_gpus(2), elastic(1, 10), created=0, queue="small"),
    ]
    made = decide(one_node(12), jobs, queues=queues)
    assert {name: len(step.tasks) for name, step in of(made, Grow).items()} == {"a": 4, "b": 4, "c": 1}


def sizes(values, current, capacity, weight=(1.0, 1.0), remaining=1e9, restart=30.0):
    """Of two jobs with these speeds at 1, 2 and 4 GPUs."""
    curves = concave(np.array([1, 2, 4]), np.array(values))
    held, left, cost = np.array(current), np.full(2, remaining), np.full(2, restart)
    return choose(Demand(curves, np.array(weight), held, left, cost), capacity, 600.0).tolist()


def test_e_growth_goes_where_it_gains_and_is_worth_its_restart():
    """(e): the older job gains nothing from a second GPU, so the younger grows; and nobody does for less
    than the restart costs."""
    assert sizes([[1.0, 1.01, 1.02], [1.0, 1.9, 3.6]], [1, 1], 5) == [1, 4]
    assert sizes([[1.0, 1.9, 3.6]] * 2, [2, 2], 8) == [4, 4]
    assert sizes([[1.0, 1.9, 3.6]] * 2, [2, 2], 8, remaining=50.0) == [2, 2]
    assert sizes([[1.0, 1.9, 3.6]] * 2, [2, 2], 8, restart=900.0) == [2, 2]


def test_f_who_gives_way_is_who_should_and_no_more_than_is_needed():
    """(f): DRAGON takes from the oldest; ours from the lower priority, although it is the younger."""
    old, young = ("old", 0, 1, 4, 4), ("young", 5, 1, 4, 4)
    assert dragon(100, 8, old, young, ("head", 10, 2, 2, 0)) == {"old": 2, "young": 4, "head": 2}
    made = decide(
        one_node(8),
        [
            running("old", on_gpus(0, 1, 2, 3), elastic(1, 4), priority=5, created=0),
            running("young", on_gpus(4, 5, 6, 7), elastic(1, 4), priority=1, created=5),
            waiting("head", 2, priority=9, created=10),
        ],
        now=100,
    )
    assert {name: len(step.tasks) for name, step in of(made, Shrink).items()} == {"young": 2}
    assert of(made, Shrink)["young"].beneficiary == "head"
    assert not of(made, Preempt)


def test_f_what_loses_least_is_given_up():
    """(f): a newcomer's GPU comes from the job that hardly loses speed, whichever is the older."""
    steep, flat = [1.0, 2.0, 4.0], [1.0, 1.2, 1.3]
    values = np.array([steep, flat, [1.0, 1.0, 1.0]])
    for order in ([0, 1, 2], [1, 0, 2]):
        curves = concave(np.array([1, 2, 4]), values[order])
        now = np.array([4, 4, 0])
        asked = Demand(curves, np.ones(3), now, np.full(3, 1e9), np.full(3, 30.0))
        after = choose(asked, 8, 600.0)
        assert after[order.index(0)] == 4
        assert after[order.index(1)] < 4
        assert after[2] >= 1


def test_g_wall_times_give_dates_and_short_jobs_start_before_them():
    """(g): six of eight are back in an hour. A job of eight is told so; a short one starts meanwhile,
    and one that would still be there does not."""
    made = decide(
        one_node(8),
        [
            running("six", on_gpus(0, 1, 2, 3, 4, 5), wall_seconds=60 * MINUTE),
            waiting("head", 8, created=1, wall_seconds=60 * MINUTE),
            waiting("long", 2, created=2, wall_seconds=90 * MINUTE),
            waiting("short", 2, created=3, wall_seconds=30 * MINUTE),
        ],
    )
    assert list(of(made, Start)) == ["short"]
    kept = of(made, Reserve)
    assert kept["head"].at == pytest.approx(60 * MINUTE, abs=MINUTE)
    assert kept["long"].at == pytest.approx(120 * MINUTE, abs=2 * MINUTE)


def test_g_a_job_ends_at_its_wall_time():
    """(g): it is told so, and has its grace."""
    six = running("six", on_gpus(0, 1, 2, 3, 4, 5), wall_seconds=60 * MINUTE, grace_seconds=30)
    assert not of(decide(one_node(8), [six], now=60 * MINUTE - 1), Preempt)
    assert of(decide(one_node(8), [six], now=60 * MINUTE), Preempt)["six"].code == "WallTime"
