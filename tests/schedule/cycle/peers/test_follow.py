"""A cluster run by other people's policies does what those policies say."""

from __future__ import annotations

import heapq
import sys
from random import Random

import msgspec
import pytest

from shoal.schedule.allot import Allot, Contender, Nodes
from shoal.schedule.baselines.dragon import Dragon
from shoal.schedule.baselines.easy import Easy
from shoal.schedule.baselines.fifo import Fifo
from shoal.schedule.cycle.peers.named import POLICIES
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Deny, Grow, Plan, Preempt, Reserve, Shrink, Start
from shoal.schedule.decide import planner_for
from shoal.simulate.cluster.engine import Options, simulate
from shoal.simulate.cluster.work import Arrival
from shoal.simulate.cluster.world import World

PATIENCE, QUIET = 7.0, 11.0
CAPACITY = [4, 4, 4]
EDITION = 1


@pytest.fixture(autouse=True, params=[1, 2])
def edition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scheduling cores carry them out."""
    monkeypatch.setattr(sys.modules[__name__], "EDITION", request.param)


def ruled(policy: str) -> Rules:
    return Rules(policy=policy, edition=EDITION, patience_seconds=PATIENCE, quiet_seconds=QUIET)


def plan(rows: Cluster, rules: Rules, now: float) -> Plan:
    return planner_for(msgspec.structs.replace(rules, edition=EDITION)).plan(rows, now)


def arrivals(seed: int) -> list[Arrival]:
    draw = Random(seed)
    at, found = 0.0, []
    for number in range(14):
        at += draw.expovariate(0.25)
        least = draw.choice([1, 1, 2, 3])
        most = least + draw.choice([0, 2, 4])
        seconds = draw.uniform(5, 40)
        job = Job(
            name=f"j{number:02d}",
            created=at,
            roles=(Role(minimum=least, maximum=most, gpus=1),),
            speeds=tuple(float(count) for count in range(1, most + 1)),
            work=seconds * least,
        )
        found.append(Arrival(at=at, job=job, seconds=seconds))
    return found


def directly(policy: Allot, coming: list[Arrival], *, rigid: bool, wakes: bool) -> dict[str, float]:
    """When each job ends if the policy is asked at every event, and what it says is so at once."""
    left = {each.job.name: each.seconds * each.job.roles[0].minimum for each in coming}
    there: dict[str, Job] = {}
    nodes: dict[str, Nodes] = {}
    ended: dict[str, float] = {}
    moments = [each.at for each in coming]
    heapq.heapify(moments)
    now = 0.0
    while moments:
        until = heapq.heappop(moments)
        for name, held in nodes.items():
            left[name] -= len(held) * (until - now)
        now = until
        for each in coming:
            if each.at == now:
                there[each.job.name] = each.job
        for name in [name for name in nodes if left[name] < 1e-9]:
            ended[name] = now
            del there[name], nodes[name]
        jobs = [_contender(job, nodes.get(name, ()), left[name], rigid) for name, job in there.items()]
        before = dict(nodes)
        if jobs:
            nodes = {name: held for name, held in policy.allot(jobs, CAPACITY, now).items() if held}
        for name, held in nodes.items():
            heapq.heappush(moments, now + left[name] / len(held))
        if wakes and jobs:
            heapq.heappush(moments, now + QUIET) if nodes != before else None
            for job in there.values():
                if job.name not in nodes and job.created + PATIENCE > now:
                    heapq.heappush(moments, job.created + PATIENCE)
    return ended


def _contender(job: Job, nodes: Nodes, left: float, rigid: bool) -> Contender:
    role = job.roles[0]
    return Contender(
        name=job.name,
        submitted=job.created,
        size=role.maximum,
        least=role.maximum if rigid else role.minimum,
        most=role.maximum,
        nodes=nodes,
        run_seconds=lambda: left / role.maximum,
        step_seconds=lambda size: 1.0 / size,
        steps_left=lambda: left,
    )


def through_the_cluster(policy: str, coming: list[Arrival]) -> dict[str, float]:
    nodes = tuple(Node(name=f"n{at}", gpus=gpus) for at, gpus in enumerate(CAPACITY))
    rules = ruled(policy)
    world = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), rules)
    record = simulate(world, coming, Options())
    assert not record.unfinished
    return {name: ran.ended for name, ran in record.jobs.items() if ran.ended is not None}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "easy"])
def test_rigid_policies_end_every_job_when_they_say(name: str, seed: int) -> None:
    """Asked directly, or about rows and with every step checked: the same to the second."""
    policy = {"fifo": Fifo(skip=False), "fifo-skip": Fifo(skip=True), "easy": Easy()}[name]
    coming = arrivals(seed)
    expected = directly(policy, coming, rigid=True, wakes=False)
    assert through_the_cluster(name, coming) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_dragon_does_what_it_did(seed: int) -> None:
    coming = arrivals(seed)
    dragon = Dragon(patience=PATIENCE, quiet=QUIET)
    expected = directly(dragon, coming, rigid=False, wakes=True)
    assert through_the_cluster("dragon", coming) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_every_policy_brings_all_to_an_end(name: str, seed: int) -> None:
    """With tasks that take a while to go, and restarts; no plan breaks a rule."""
    coming = arrivals(100 + seed)
    nodes = tuple(Node(name=f"n{at}", gpus=gpus) for at, gpus in enumerate(CAPACITY))
    rules = ruled(name)
    world = World(Cluster(nodes=nodes, queues=(Queue(name="default"),)), rules)
    record = simulate(world, coming, Options(stop_seconds=0.7, restart_seconds=1.0))
    assert not record.unfinished
    assert world.held.used("gpu") == 0
    if name in ("fifo", "fifo-skip", "easy"):
        assert set(record.steps) <= {"Start", "Deny"}
        assert not sum(ran.changes for ran in record.jobs.values())


def cluster(*jobs: Job, gpus: int = 4, limit: float = 16.0) -> Cluster:
    return Cluster(
        nodes=(Node(name="n", gpus=gpus, amounts={"cpu": 8000}),),
        queues=(Queue(name="default", limit={"gpu": limit}),),
        jobs=jobs,
    )


def running(name: str, least: int, most: int, count: int, first: int = 0, **more: object) -> Job:
    tasks = tuple(Task(index=at, node="n", gpus=(first + at,)) for at in range(count))
    roles = (Role(minimum=least, maximum=most, gpus=1),)
    return Job(name=name, roles=roles, tasks=tasks, **more)  # pyright: ignore[reportArgumentType]


def test_a_name_that_means_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="there is no policy fife; there are shoal, fifo"):
        plan(cluster(), Rules(policy="fife"), 0.0)


def test_who_is_scaled_down_gives_to_somebody() -> None:
    """DRAGON's head has waited: it is kept the place of the oldest's workers, its main one stays."""
    head = Job(name="head", created=1.0, roles=(Role(minimum=2, maximum=3, gpus=1),))
    rows = cluster(running("old", 1, 4, 4), head)
    assert {type(step) for step in plan(rows, Rules(policy="dragon"), 20.0).steps} == {Deny}
    made = plan(rows, Rules(policy="dragon"), 31.0)
    reserve, shrink = made.steps
    assert isinstance(reserve, Reserve) and isinstance(shrink, Shrink)
    assert [task.index for task in shrink.tasks] == [2, 3]
    assert (shrink.beneficiary, reserve.job) == ("head", "head")


def test_dragon_says_when_to_ask_again() -> None:
    """When the first in line has waited long enough; when it has been quiet for long enough."""
    head = Job(name="head", created=1.0, roles=(Role(minimum=4, maximum=4, gpus=1),))
    rigid = running("old", 4, 4, 4)
    assert plan(cluster(rigid, head), Rules(policy="dragon"), 20.0).again_at == 31.0
    grows = running("old", 1, 4, 1, since=10.0)
    rules = Rules(policy="dragon")
    assert plan(cluster(grows), rules, 20.0).again_at == 70.0
    made = plan(cluster(grows), rules, 70.0)
    assert [type(step) for step in made.steps] == [Grow]


def test_who_is_to_have_nothing_goes_whole() -> None:
    """Tiresias: it has had its service, and a fresh one takes its place."""
    served = running("served", 2, 2, 2, service_seconds=60_000.0)
    fresh = Job(name="fresh", created=5.0, roles=(Role(minimum=3, maximum=3, gpus=1),))
    made = plan(cluster(served, fresh), Rules(policy="tiresias"), 10.0)
    reserve, preempt = made.steps
    assert isinstance(reserve, Reserve) and isinstance(preempt, Preempt)
    assert len(preempt.tasks) == 2


def test_a_limit_holds_back_whom_it_forbids_and_nobody_else() -> None:
    """Strict FIFO waits for room, not for a queue's limit."""
    first = Job(name="a", roles=(Role(minimum=7, maximum=7, gpus=1),))
    held = running("held", 3, 3, 3)
    second = Job(name="b", created=1.0, roles=(Role(minimum=4, maximum=4, gpus=1),))
    third = Job(name="c", created=2.0, roles=(Role(minimum=3, maximum=3, gpus=1),))
    made = plan(cluster(first, held, second, third, gpus=8, limit=6.0), Rules(policy="fifo"), 10.0)
    found = {step.job: type(step) for step in made.steps}
    assert found == {"a": Deny, "b": Deny, "c": Start}


def test_a_small_helper_is_no_slot() -> None:
    """A worker set and a helper of a tenth of a core: as many slots as it has workers."""
    helper = Role(name="coordinator", amounts={"cpu": 100})
    worker = Role(minimum=1, maximum=8, amounts={"cpu": 1000})
    job = Job(name="j", roles=(helper, worker))
    made = plan(cluster(job), Rules(policy="fifo"), 0.0)
    assert [type(step) for step in made.steps] == [Deny]  # eight cores, and a tenth beside them
    fits = Job(name="j", roles=(helper, Role(minimum=1, maximum=7, amounts={"cpu": 1000})))
    (step,) = plan(cluster(fits), Rules(policy="fifo"), 0.0).steps
    assert isinstance(step, Start)
    assert len(step.tasks) == 8
