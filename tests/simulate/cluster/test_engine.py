"""Time goes by: jobs come, work, are told to go, end; nodes fail; all of it counted."""

from __future__ import annotations

import itertools

import pytest

from shoal.schedule.cycle.rows import Cluster, Node, Queue, Rules, Task
from shoal.schedule.cycle.steps import Move, Plan, Preempt, Reserve, Start
from shoal.simulate.cluster.broken import Broken
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.faults import Faults
from shoal.simulate.cluster.record import Record
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import World
from shoal.simulate.errors import BadInput
from tests.simulate.cluster.small import NODE, arrival, first_come


def run(*arrivals: Arrival, options: Options | None = None, nodes: tuple[Node, ...] = (NODE,)) -> Record:
    """On one node of four GPUs, first come first served."""
    return simulate(World(Cluster(nodes=nodes), Rules(), first_come), arrivals, options)


def test_jobs_wait_for_each_other_and_end_when_their_work_is_done() -> None:
    """Two gangs of three on four GPUs go one after the other."""
    record = run(arrival("a", 0, 10, gpus=3), arrival("b", 2, 5, gpus=3))
    assert (record.jobs["a"].started, record.jobs["a"].ended) == (0, 10)
    assert (record.jobs["b"].started, record.jobs["b"].ended) == (10, 15)
    assert record.jobs["b"].wait == 8
    assert record.ended_at == 15
    assert record.utilisation("gpu") == pytest.approx(3 / 4)
    assert record.steps == {"Start": 2}
    assert len(record.decision_seconds) == len(record.samples)
    assert [sample.waiting for sample in record.samples] == [0, 1, 0]


def test_more_tasks_do_the_work_faster_by_the_power_of_their_number() -> None:
    """Four times the tasks, an exponent of a half: twice as fast."""
    record = run(arrival("a", 0, 10, most=4, exponent=0.5))
    assert record.jobs["a"].ended == pytest.approx(5)


def test_a_change_of_size_costs_a_restart_and_work_is_counted_across_it() -> None:
    """Alone on two GPUs from 0, on four from 4: 2 s of restart each time, 10 s of work."""
    record = run(
        arrival("b", 0, 4, gpus=2),
        arrival("a", 0, 10, gpus=2, most=4),
        options=Options(restart_seconds=2),
    )
    assert record.jobs["b"].ended == 6
    # by then a has done 4 of 10; 2 s of restart; 6 left at twice the speed
    assert record.jobs["a"].ended == pytest.approx(6 + 2 + 3)
    assert record.jobs["a"].changes == 1


def test_a_job_is_ended_at_its_wall_time() -> None:
    """And that is said of it."""
    record = run(arrival("a", 0, 10, wall_seconds=7.0), arrival("b", 0, 5, wall_seconds=7.0))
    assert (record.jobs["a"].ended, record.jobs["a"].timed_out) == (7, True)
    assert (record.jobs["b"].ended, record.jobs["b"].timed_out) == (5, False)


def test_decisions_can_be_an_interval_apart() -> None:
    """What comes in between waits for the next, and each instant has one at most."""
    arrivals = [arrival(f"j{at}", at / 10, 100) for at in range(4)]
    record = run(*arrivals, options=Options(interval=1.0))
    assert [sample.at for sample in record.samples][:2] == [0, 1]
    assert [record.jobs[f"j{at}"].started for at in range(4)] == [0, 1, 1, 1]


def test_noise_is_the_same_for_a_seed() -> None:
    """And another for another seed."""
    jobs = [arrival(f"j{at}", 0, 10) for at in range(4)]

    def ends(seed: int) -> list[float | None]:
        record = run(*jobs, options=Options(noise=0.5, seed=seed))
        return [ran.ended for ran in record.jobs.values()]

    assert ends(1) == ends(1)
    assert ends(1) != ends(2)
    assert len(set(ends(1))) == 4


def test_lost_nodes_stop_work_that_goes_on_elsewhere() -> None:
    """What was done is kept, or done again, as the job says; the node comes back."""
    nodes = (Node(name="m", gpus=2), Node(name="n", gpus=2))
    faults = Faults(mean_seconds=30, repair_seconds=5, seed=3)
    jobs = [arrival(f"j{at}", at, 40, gpus=2, keeps=at > 0) for at in range(3)]
    record = run(*jobs, options=Options(faults=faults), nodes=nodes)
    assert not record.unfinished
    assert record.jobs["j0"].lost_seconds > 0
    assert record.jobs["j1"].lost_seconds == 0
    assert record.jobs["j2"].lost_seconds == 0
    assert record.ended_at > 80


def test_losses_come_in_order_and_are_the_same_for_a_seed() -> None:
    """Each node is back before it is lost again."""
    faults = Faults(mean_seconds=10, repair_seconds=3, seed=1)
    losses = [entry for entry, _ in zip(faults.times(["a", "b"]), range(50), strict=False)]
    assert losses == [entry for entry, _ in zip(faults.times(["a", "b"]), range(50), strict=False)]
    assert [at for at, _, _ in losses] == sorted(at for at, _, _ in losses)
    for name in "ab":
        mine = [(at, back) for at, node, back in losses if node == name]
        assert all(back < later for (_, back), (later, _) in itertools.pairwise(mine))


def test_an_exchange_without_end_is_told() -> None:
    """Two jobs that push each other off the same GPU."""
    node = Node(name="n", gpus=1)

    def swap(cluster: Cluster, rules: Rules, now: float) -> Plan:
        jobs = {job.name: job for job in cluster.jobs}
        task = Task(node="n", gpus=(0,))
        if len(jobs) < 2:
            return Plan()
        running = [job for job in jobs.values() if job.tasks]
        if not running:
            waits = next((job for job in jobs.values() if job.reserved), jobs["a"])
            begins = Start(job=waits.name, code="Fits", tasks=(task,))
            return Plan(steps=(begins,), again_at=now + 0.1)
        if not running[0].present:
            return Plan()
        other = "b" if running[0].name == "a" else "a"
        give_way = Preempt(
            job=running[0].name, code="Reclaim", tasks=running[0].tasks, beneficiary=other
        )
        return Plan(steps=(Reserve(job=other, code="Reclaim", tasks=(task,)), give_way))

    world = World(Cluster(nodes=(node,)), Rules(), swap)
    with pytest.raises(Broken, match="nothing happened between them"):
        simulate(world, [arrival("a", 0, 9), arrival("b", 0, 9)], Options(patience=20))


def test_those_told_to_go_are_gone_after_a_while_and_wait_again() -> None:
    """Preempted at 0, gone at 3, started again by the planner then."""
    asked: list[float] = []

    def once(cluster: Cluster, rules: Rules, now: float) -> Plan:
        asked.append(now)
        job = cluster.jobs[0]
        if not asked[1:]:
            return Plan(steps=first_come(cluster, rules, now).steps, again_at=2.0)
        if now == 2.0:
            return Plan(steps=(Preempt(job=job.name, code="Limit", tasks=job.tasks),))
        return first_come(cluster, rules, now)

    record = simulate(
        World(Cluster(nodes=(NODE,)), Rules(), once), [arrival("a", 0, 9)], Options(stop_seconds=3)
    )
    assert asked[:3] == [0, 2, 5]
    ran = record.jobs["a"]
    assert (ran.started, ran.ended, ran.preemptions) == (0, 5 + 7, 1)
    assert record.preemptions == 1


def test_another_place_costs_a_restart_though_the_speed_is_the_same() -> None:
    """Moved at 2, gone at once, on the other node from then: 3 s of restart each time."""
    nodes = (Node(name="m", gpus=1), Node(name="n", gpus=1))

    def once(cluster: Cluster, rules: Rules, now: float) -> Plan:
        job = cluster.jobs[0]
        here, there = Task(node="m", gpus=(0,)), Task(node="n", gpus=(0,))
        if now == 0:
            return Plan(steps=(Start(job=job.name, code="Fits", tasks=(here,)),), again_at=5.0)
        if now == 5 and job.present:
            keeps = Reserve(job="b", code="Consolidate", tasks=(here,))
            moves = Move(job="a", code="Consolidate", tasks=(here,), to=(there,), beneficiary="b")
            return Plan(steps=(keeps, moves))
        if now == 5:
            return Plan(steps=(Start(job="a", code="Kept", tasks=(there,)),), again_at=6.0)
        return Plan()

    world = World(Cluster(nodes=nodes), Rules(), once)
    record = simulate(
        world,
        [arrival("a", 0, 10), arrival("b", 0, 10)],
        Options(restart_seconds=3, until=100),
    )
    # 2 s of work by 5, 8 s more from 8 on
    assert record.jobs["a"].ended == 16
    assert record.jobs["a"].preemptions == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.soak) for s in (1, 2))])
def test_the_planner_brings_all_to_an_end(seed: int) -> None:
    """Through lost nodes, work that takes longer than was said, and tasks that take their time to go."""
    print(f"seed {seed}")
    nodes = tuple(Node(name=f"n{at}", gpus=4) for at in range(6))
    jobs = [
        arrival(
            f"j{at:02d}",
            at * 15.0,
            120.0,
            gpus=1 + at % 5,
            most=(1 + at % 5) * (1 + at % 2),
            exponent=0.7,
        )
        for at in range(60)
    ]
    options = Options(
        stop_seconds=7.0,
        restart_seconds=5.0,
        noise=0.5,
        seed=seed,
        faults=Faults(mean_seconds=2000.0, repair_seconds=200.0, seed=seed),
    )
    world = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), Rules(stale_seconds=30.0))
    record = simulate(world, jobs, options)
    assert not record.unfinished
    assert not world.jobs
    assert world.held.used("gpu") == 0
    assert record.utilisation("gpu") > 0.6
    assert sum(ran.changes for ran in record.jobs.values()) > 10


def test_a_time_in_the_past_is_refused() -> None:
    """A planner that wants to decide again now would do so for ever."""
    world = World(Cluster(nodes=(NODE,)), Rules(), lambda cluster, rules, now: Plan(again_at=now))
    with pytest.raises(Broken, match="decide again at 0"):
        simulate(world, [arrival("a", 0, 9)])


def test_a_run_can_be_given_up() -> None:
    """Who has not ended by then is named."""
    record = run(arrival("a", 0, 10), arrival("b", 0, 99), options=Options(until=20))
    assert record.unfinished == ["b"]
    assert record.jobs["b"].ended is None


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_work_is_an_amount(seconds: float) -> None:
    """Not nothing, and not for ever."""
    with pytest.raises(BadInput, match="seconds of work"):
        arrival("a", 0, seconds)
    with pytest.raises(BadInput, match="power"):
        arrival("a", 0, 1, exponent=2)
