"""Dates are told with places, and nobody is put there who would still be there by then."""

from __future__ import annotations

from shoal.schedule.cycle.planner import plan
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules, Task
from shoal.schedule.cycle.steps import Grow, Reserve, Shrink, Start, Step

_RULES = Rules(consolidate=False)


def job(name: str, count: int, gpus: int, wall: float | None = None, **more: object) -> Job:
    roles = (Role(minimum=count, maximum=count, gpus=gpus),)
    return Job(name=name, wall_seconds=wall, **{"roles": roles, "created": 0.0, **more})


def on(*places: tuple[str, tuple[int, ...]]) -> tuple[Task, ...]:
    return tuple(Task(index=at, node=node, gpus=gpus) for at, (node, gpus) in enumerate(places))


def steps(*jobs: Job, nodes: int = 2, rules: Rules = _RULES, now: float = 0.0) -> dict[str, Step]:
    rows = tuple(Node(name=f"n{at}", gpus=4) for at in range(nodes))
    cluster = Cluster(nodes=rows, queues=(Queue(name="default"),), jobs=jobs)
    return {step.job: step for step in plan(cluster, rules, now).steps}


def test_free_gpus_in_pieces_are_no_place() -> None:
    """Two and two are free, and four on one node are not before one of the jobs has ended."""
    made = steps(
        job("a", 1, 2, 100.0, tasks=on(("n0", (0, 1)))),
        job("b", 1, 2, 300.0, tasks=on(("n1", (0, 1)))),
        job("large", 1, 4, 50.0),
    )
    large = made["large"]
    assert isinstance(large, Reserve)
    assert large.at == 100.0
    assert [task.node for task in large.place] == ["n0"]


def test_who_would_still_be_there_is_put_elsewhere() -> None:
    """The small one that ends in time may have the place, the other one may not."""
    running = (
        job("a", 1, 2, 100.0, tasks=on(("n0", (0, 1)))),
        job("b", 1, 3, 300.0, tasks=on(("n1", (0, 1, 2)))),
    )
    large = job("large", 1, 4, 50.0, promised=100.0, place=on(("n0", (0, 1, 2, 3))))
    long = job("long", 1, 2, 200.0, created=1.0)
    short = job("short", 1, 2, 90.0, created=1.0)
    assert not isinstance(steps(*running, large, long)["long"], Start)
    started = steps(*running, large, short)["short"]
    assert isinstance(started, Start)
    assert [task.node for task in started.tasks] == ["n0"]
    small = steps(*running, large, job("small", 1, 1, 200.0, created=1.0))["small"]
    assert isinstance(small, Start)
    assert [task.node for task in small.tasks] == ["n1"]


def test_a_place_is_kept_though_another_would_be_chosen_now() -> None:
    """Both nodes come free at the same moment; what was told is what is told again."""
    running = tuple(job(f"r{at}", 1, 4, 100.0, tasks=on((f"n{at}", (0, 1, 2, 3)))) for at in range(2))
    told = job("told", 1, 3, 50.0, promised=100.0, place=on(("n1", (1, 2, 3))))
    made = steps(*running, told)["told"]
    assert isinstance(made, Reserve)
    assert (made.at, made.place) == (100.0, told.place)


def test_a_place_on_a_lost_node_is_found_elsewhere() -> None:
    running = job("a", 1, 4, 100.0, tasks=on(("n0", (0, 1, 2, 3))))
    other = job("b", 1, 1, 100.0, tasks=on(("n0", ())), roles=(Role(amounts={"cpu": 0}),))
    told = job("told", 1, 3, 50.0, promised=100.0, place=on(("n7", (1, 2, 3))))
    made = steps(running, other, told, nodes=1)["told"]
    assert isinstance(made, Reserve)
    assert made.at == 100.0
    assert [task.node for task in made.place] == ["n0"]


def test_a_place_is_lent_to_those_from_whom_it_can_be_asked_back() -> None:
    """An elastic job of the queue grows there, and is told to give it back a notice before the date."""
    elastic = (Role(minimum=1, maximum=4, gpus=1),)
    grows = job("grows", 1, 1, roles=elastic, tasks=on(("n0", (0,))))
    runs = job("runs", 1, 3, 100.0, tasks=on(("n1", (0, 1, 2))))
    told = job("told", 2, 3, 50.0, promised=100.0, place=on(("n0", (1, 2, 3)), ("n1", (0, 1, 2))))
    grown = steps(grows, runs, told)["grows"]
    assert isinstance(grown, Grow)
    assert len(grown.tasks) == 3
    whole = job("grows", 1, 1, roles=elastic, tasks=(*grows.tasks, *grown.tasks))
    late = steps(whole, runs, told, now=70.0)
    assert isinstance(late["grows"], Shrink)
    kept = late["told"]
    assert isinstance(kept, Reserve)
    assert kept.tasks == told.place


def test_no_more_are_promised_dates_than_the_rules_say() -> None:
    running = tuple(job(f"r{at}", 1, 4, 100.0, tasks=on((f"n{at}", (0, 1, 2, 3)))) for at in range(2))
    waiting = [job(f"w{at}", 1, 3, 50.0, created=float(at)) for at in range(4)]
    made = steps(*running, *waiting, rules=Rules(promises=3, consolidate=False))
    dated = [name for name, step in made.items() if isinstance(step, Reserve) and step.at is not None]
    assert sorted(dated) == ["w0", "w1", "w2"]
    assert made["w3"].code == "Dated"
    assert made["w3"].evidence["at"] == 150.0
