import pytest

from shoal.schedule.cycle.desk import Desk
from shoal.schedule.cycle.ground import Ground
from shoal.schedule.cycle.rivals import Rivals
from shoal.schedule.cycle.rows import Cluster, Job, Node, Queue, Role, Rules


@pytest.fixture
def desk() -> Desk:
    def job(name: str, queue: str, **asks: int) -> Job:
        gpus = asks.pop("gpus", 0)
        return Job(name=name, queue=queue, roles=(Role(gpus=gpus, minimum=1, maximum=1, amounts=asks),))

    jobs = (
        job("mine", "a", gpus=1),
        job("large", "b", gpus=4, cpu=8),
        job("small", "b", gpus=2, cpu=4),
        job("other", "b", cpu=2),
        job("wide", "c", gpus=1, cpu=9),
    )
    queues = tuple(Queue(name=name) for name in "abc")
    cluster = Cluster(nodes=(Node(name="n", gpus=8, amounts={"cpu": 64}),), queues=queues, jobs=jobs)
    found = Desk(Ground(cluster), cluster, Rules(), 0.0)
    found.waiting = [found.asked[each.name] for each in jobs]
    return found


def _asks(desk: Desk, rivals: Rivals) -> list[tuple[int, float, float]]:
    cpu, gpu = (desk.columns.names.index(name) for name in ("cpu", "gpu"))
    return sorted((claim.queue, claim.ask[gpu], claim.ask[cpu]) for claim in rivals.of(0))


def test_of_each_other_queue_the_least_of_the_same_resources_is_asked(desk: Desk):
    assert _asks(desk, Rivals(desk)) == [(1, 0.0, 2.0), (1, 2.0, 4.0), (2, 1.0, 9.0)]


def test_who_has_got_something_asks_no_more(desk: Desk):
    rivals = Rivals(desk)
    assert len(_asks(desk, rivals)) == 3
    desk.settled |= {"small", "wide"}
    assert _asks(desk, rivals) == [(1, 0.0, 2.0), (1, 4.0, 8.0)]
    desk.settled.discard("small")
    desk.withdrawn.append(desk.asked["small"])
    assert _asks(desk, rivals) == [(1, 0.0, 2.0), (1, 2.0, 4.0)]
