"""What happens to rows, and which plans are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal.objects.job import Toleration
from shoal.objects.node import Taint
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Plan, Preempt, Reserve, Shrink, Start
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.world import World

NODES = (
    Node(name="a", gpus=2, amounts={"cpu": 4}, labels={"rack": "r1"}),
    Node(name="b", gpus=2, amounts={"cpu": 4}, labels={"rack": "r2"}),
)


def world(*jobs: Job, nodes: Sequence[Node] = NODES, queues: Sequence[Queue] = ()) -> World:
    """Nodes a and b of two GPUs each; racks r1 and r2; one licence."""
    cluster = Cluster(
        nodes=tuple(nodes), jobs=jobs, queues=tuple(queues), levels=("rack",), shared={"licence": 1}
    )
    return World(cluster, Rules())


def pair(name: str = "j", minimum: int = 1, maximum: int = 2, **more: object) -> Job:
    """A job of tasks with one GPU and one core each."""
    role = Role(minimum=minimum, maximum=maximum, gpus=1, amounts={"cpu": 1})
    return Job(name=name, roles=(role,), **more)  # pyright: ignore[reportArgumentType]


def task(index: int = 0, node: str = "a", gpu: int = 0) -> Task:
    """One task on one GPU."""
    return Task(index=index, node=node, gpus=(gpu,))


def start(name: str, *tasks: Task) -> Start:
    """A start, for no reason."""
    return Start(job=name, code="Fits", tasks=tasks)


def test_a_started_job_holds_its_slots_until_its_tasks_are_gone() -> None:
    """Told to go, a task is still on its GPU; gone, the job waits again, as old as it was."""
    ours = world(pair("j", created=3.0), pair("k"))
    ours.carry_out(start("j", task(0), task(1, gpu=1)), 10.0)
    assert ours.jobs["j"].since == 10.0
    assert ours.held.used("gpu") == 2000
    ours.carry_out(Reserve(job="k", code="Reclaim", tasks=(task(0),)), 11.0)
    ours.carry_out(Preempt(job="j", code="Reclaim", tasks=ours.jobs["j"].tasks, beneficiary="k"), 11.0)
    assert ours.held.used("gpu") == 2000
    with pytest.raises(Broken, match="1000 are in use"):
        ours.carry_out(start("k", task(0)), 11.0)
    ours = world(pair("j", created=3.0))
    ours.carry_out(start("j", task(0)), 10.0)
    ours.carry_out(Preempt(job="j", code="Limit", tasks=(task(0),)), 11.0)
    ours.gone("j")
    assert ours.jobs["j"].tasks == ()
    assert ours.jobs["j"].created == 3.0
    assert ours.held.used("gpu") == 0
    assert ours.held.used("cpu") == 0


def test_only_a_drain_takes_a_job_below_its_minimum_for_no_one() -> None:
    """And only from a node that drives the task away."""
    drained = Node(name="a", gpus=2, amounts={"cpu": 4}, taints=(Taint(key="away", effect="NoExecute"),))
    there = pair(minimum=2, tasks=(task(0), task(1, "b")), since=1.0)
    ours = world(there, nodes=(drained, NODES[1]))
    with pytest.raises(Broken, match="less than its minimum"):
        ours.carry_out(Shrink(job="j", code="Shrunk", tasks=(task(0),)), 5.0)
    ours = world(there, nodes=(drained, NODES[1]))
    with pytest.raises(Broken, match="worker-1 is drained, and b is not"):
        ours.carry_out(Shrink(job="j", code="NodeDrained", tasks=(task(1, "b"),)), 5.0)
    ours = world(there, nodes=(drained, NODES[1]))
    ours.carry_out(Shrink(job="j", code="NodeDrained", tasks=(task(0),)), 5.0)
    assert ours.jobs["j"].below_since == 5.0


def test_a_job_that_lost_a_node_is_below_its_minimum_since_then() -> None:
    """And no longer once it has grown back to it; whole, it is never below."""
    ours = world(pair(minimum=2))
    ours.carry_out(start("j", task(0), task(1, "b")), 1.0)
    ours.lose("b", 5.0)
    assert ours.jobs["j"].below_since == 5.0
    assert [each.index for each in ours.jobs["j"].present] == [0]
    with pytest.raises(Broken, match="takes no tasks"):
        ours.carry_out(Grow(job="j", code="Fits", tasks=(task(1, "b"),)), 6.0)
    ours.back("b")
    ours.carry_out(Grow(job="j", code="Fits", tasks=(task(1, "b"),)), 6.0)
    assert ours.jobs["j"].below_since is None
    assert ours.jobs["j"].since == 1.0


def test_what_does_not_answer_holds_what_it_held() -> None:
    """A silent node keeps its tasks, and takes no others."""
    ours = world(pair())
    ours.carry_out(start("j", task(0, "b")), 1.0)
    ours.silent("b")
    assert ours.jobs["j"].present
    assert ours.held.used("gpu") == 1000


def test_a_cancelled_job_goes_with_its_last_task() -> None:
    """One that waits goes at once; one that runs stops, is not started again, and goes."""
    ours = world(pair("j"), pair("k"))
    ours.carry_out(start("j", task(0)), 1.0)
    ours.cancel("k")
    ours.cancel("j")
    assert list(ours.jobs) == ["j"]
    assert ours.jobs["j"].suspended
    assert not ours.jobs["j"].present
    ours.gone("j")
    assert not ours.jobs
    assert ours.held.used("gpu") == 0


def test_a_reservation_is_kept_until_the_start() -> None:
    """Slots, date and the place of that date are on the row, and go when it starts."""
    ours = world(pair())
    ours.carry_out(Reserve(job="j", code="Wait", tasks=(task(0),), at=9.0, place=(task(1),)), 1.0)
    row = ours.jobs["j"]
    assert (row.reserved, row.promised, row.place) == ((task(0),), 9.0, (task(1),))
    ours.carry_out(start("j", task(0)), 2.0)
    row = ours.jobs["j"]
    assert (row.reserved, row.promised, row.place) == ((), None, ())


def test_a_move_stops_all_and_keeps_the_place() -> None:
    """It starts there once it has stopped here."""
    ours = world(pair("j"), pair("k"))
    ours.carry_out(start("j", task(0)), 1.0)
    ours.carry_out(Reserve(job="k", code="Consolidate", tasks=(task(0),)), 2.0)
    move = Move(job="j", code="Consolidate", tasks=(task(0),), to=(task(0, "b"),), beneficiary="k")
    ours.carry_out(move, 2.0)
    assert ours.jobs["j"].reserved == (task(0, "b"),)
    ours.gone("j")
    ours.carry_out(start("j", task(0, "b")), 3.0)
    assert [each.node for each in ours.jobs["j"].present] == ["b"]


def test_fractions_share_a_gpu_up_to_a_whole() -> None:
    """Two halves fit, and a third does not."""
    half = (Role(share=500),)
    ours = world(*(Job(name=name, roles=half) for name in "jkl"))
    ours.carry_out(start("j", task(0)), 1.0)
    ours.carry_out(start("k", task(0)), 1.0)
    with pytest.raises(Broken, match="500/1000 of GPU 0"):
        ours.carry_out(start("l", task(0)), 1.0)


@pytest.mark.parametrize(
    ("job", "tasks", "sentence"),
    [
        (pair(), (task(0), task(1)), "1000 are in use"),
        (pair(), (task(0, gpu=2),), "no GPU 2"),
        (pair(), (Task(node="a"),), "asks for 1"),
        (pair(), (task(0, "z"),), "no such node"),
        (pair(), (task(0), task(0, gpu=1)), "2 times"),
        (pair(), (task(2),), "of 2"),
        (pair(), (), "gets no tasks"),
        (pair(minimum=2), (task(0),), "1 of 2 worker"),
        (pair(suspended=True), (task(0),), "suspended"),
        (Job(name="j", minimum=2, roles=(Role(maximum=2),)), (Task(node="a"),), "1 of 2 tasks"),
        (Job(name="j", roles=(Role(amounts={"cpu": 5}),)), (Task(node="a"),), "needs 5 cpu"),
        (Job(name="j", shared={"licence": 2}), (Task(node="a"),), "2 of licence"),
        (Job(name="j", roles=(Role(selector={"rack": "r2"}),)), (Task(node="a"),), "rack is not r2"),
        (pair(required="rack"), (task(0), task(1, "b")), "one rack"),
        (pair(required="node"), (task(0), task(1, "b")), "one node"),
        (pair(queue="q"), (task(0), task(1, gpu=1)), "top has 2 gpu, and may have 1"),
    ],
)
def test_a_start_that_breaks_a_rule_is_refused(job: Job, tasks: tuple[Task, ...], sentence: str) -> None:
    """With a sentence that names what is wrong."""
    queues = (Queue(name="top", limit={"gpu": 1}), Queue(name="q", parent="top"))
    with pytest.raises(Broken, match=sentence):
        world(job, queues=queues).carry_out(start("j", *tasks), 1.0)


def test_taints_are_to_be_tolerated() -> None:
    """A node with a taint takes those who tolerate it."""
    node = Node(name="a", gpus=1, taints=(Taint(key="only"),))
    with pytest.raises(Broken, match="tolerate only"):
        world(Job(name="j"), nodes=[node]).carry_out(start("j", Task(node="a")), 1.0)
    role = Role(tolerations=(Toleration(key="only"),))
    world(Job(name="j", roles=(role,)), nodes=[node]).carry_out(start("j", Task(node="a")), 1.0)


def test_steps_that_do_not_fit_the_state_are_refused() -> None:
    """A start of what runs, a growth of what waits, victims for nobody, a gang cut in two."""
    ours = world(pair("j"), pair("k", minimum=2))
    with pytest.raises(Broken, match="holds nothing"):
        ours.carry_out(Grow(job="j", code="Fits", tasks=(task(0),)), 1.0)
    ours.carry_out(start("k", task(0), task(1, gpu=1)), 1.0)
    with pytest.raises(Broken, match="holds 2 tasks"):
        ours.carry_out(start("k", task(0)), 1.0)
    with pytest.raises(Broken, match="has its minimum"):
        ours.carry_out(Deny(job="k", code="Wait"), 1.0)
    shrink = Shrink(job="k", code="Reclaim", tasks=(task(1),), beneficiary="j")
    with pytest.raises(Broken, match="no slots reserved"):
        ours.carry_out(shrink, 1.0)
    ours.carry_out(Reserve(job="j", code="Reclaim", tasks=(task(0, gpu=1),)), 1.0)
    with pytest.raises(Broken, match="1 of 2 worker"):
        ours.carry_out(shrink, 1.0)
    with pytest.raises(Broken, match="no such job"):
        ours.carry_out(start("z", task(0)), 1.0)


def test_a_queue_keeps_what_is_guaranteed_to_it() -> None:
    """It is not taken for another queue; inside, what is kept for the other counts as its own."""
    queues = (Queue(name="q", nominal={"gpu": 2}, guaranteed={"gpu": 2}), Queue(name="r"))

    def taken_for(queue: str) -> int:
        ours = world(pair("j", queue="q"), pair("k", queue=queue), queues=queues)
        ours.carry_out(start("j", task(0), task(1, gpu=1)), 1.0)
        keeps = Reserve(job="k", code="Reclaim", tasks=(task(0), task(1, gpu=1)))
        gives = Preempt(job="j", code="Reclaim", tasks=ours.jobs["j"].tasks, beneficiary="k")
        return ours.apply(Plan(steps=(keeps, gives)), 2.0)

    assert taken_for("q") == 2
    with pytest.raises(Broken, match="leaves queue q 0 gpu of 2"):
        taken_for("r")


@pytest.mark.parametrize(
    ("queue", "sentence"),
    [
        (Queue(name="q", borrowing={"gpu": 1}, nominal={"gpu": 0}), "with what it may borrow has 2"),
        (Queue(name="q", user_limit={"gpu": 1}), "user ann in q has 2 gpu"),
        (Queue(name="q", jobs=0), "has 1 jobs"),
        (Queue(name="q", user_jobs=0), "user ann in q has 1 jobs"),
    ],
)
def test_what_queues_and_users_may_have_is_watched(queue: Queue, sentence: str) -> None:
    """The queue's own with what it may borrow, a user's part, numbers of jobs."""
    ours = world(pair("j", queue="q", user="ann"), queues=[queue])
    with pytest.raises(Broken, match=sentence):
        ours.carry_out(start("j", task(0), task(1, gpu=1)), 1.0)


def test_a_plan_is_of_the_rows_as_they_are() -> None:
    """The planner sees what was submitted, and what it says is done."""
    seen: list[Cluster] = []

    def first(cluster: Cluster, rules: Rules, now: float) -> Plan:
        seen.append(cluster)
        return Plan(steps=(start("j", task(0)),))

    ours = World(Cluster(nodes=NODES), Rules(), first)
    ours.submit(pair())
    ours.decide(4.0)
    assert [job.name for job in seen[0].jobs] == ["j"]
    assert ours.cluster.jobs[0].tasks == (task(0),)
    ours.resize("j", "worker", 4)
    assert ours.jobs["j"].roles[0].maximum == 4
    ours.finish("j", 5.0)
    assert ours.cluster.jobs == ()
    assert ours.held.used("gpu") == 0
