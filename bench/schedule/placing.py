"""Places on large clusters: bursts, gangs, a whole cluster filled, what-ifs, and what a room weighs.

`python -m bench.schedule.placing` prints the table. All figures are CPU time of decisions alone, in one
thread.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from bench.row import Row, p50, p95, table
from bench.schedule.timing import cpu_seconds, row
from shoal.schedule.placing.asks import Gang, Group, Placement, Reach, Shape
from shoal.schedule.placing.bulk import place_many
from shoal.schedule.placing.consolidate import Mover, consolidate
from shoal.schedule.placing.foresee import would_fit
from shoal.schedule.placing.place import place
from shoal.schedule.placing.room import Nodes, Room
from shoal.schedule.placing.topology import Topology

__all__ = ["rows"]

_NODE = Shape((8000, 2**33), 8)
_GPU = Shape((1000, 2**30), 1)
_RACK = Reach(preferred=1)


def rows() -> list[Row]:
    """Goals are those of the whole decision; a place may take no more than a part of it."""
    return [
        *_bursts(),
        _gang("gang of 64 nodes, rack preferred", 1000, Reach(required=0, preferred=1), 64),
        _gang("gang of 64 nodes anywhere", 1000, Reach(), 64),
        _gang("gang of 32 nodes, rack required", 1000, Reach(required=1), 32),
        *_gangs_of_three(),
        _roles("workers and their servers, one rack", 4, 1000),
        _roles("the same, racks having room enough in sum, but none node by node", 50, 20_000),
        _fill_at_once(),
        _fill_with_gangs(),
        _refusal(),
        _what_if(),
        _new_shape(),
        _copy(),
        _consolidation(1250),
        _consolidation(12_500),
        _weight(),
    ]


def main() -> None:
    """Print the table."""
    print(table(rows()))


def _cluster(nodes: int, gpus: int) -> Room:
    """Racks of 32 nodes, blocks of 320; three resources, no node different from another."""
    at = np.arange(nodes)
    topology = Topology(np.stack((at // 320, at // 32)))
    total = np.tile(np.array([128_000, 2**40, 2**42]), (nodes, 1))
    suits = np.ones((1, nodes), dtype=np.bool_)
    return Room(Nodes(total, np.full((nodes, gpus), 1000), topology, suits))


def _shape(two: Shape) -> Shape:
    return Shape((*two.ask, 0), two.gpus, two.share)


def _single(shape: Shape, count: int = 1, reach: Reach = Reach()) -> Gang:  # noqa: B008
    return Gang((Group(shape, count, count),), reach=reach)


def _bursts() -> list[Row]:
    """50,000 tasks of one GPU on 5,000 nodes of 10."""
    room = _cluster(5000, 10)
    shapes = [Shape((1000 + kind, 2**30, 0), 1) for kind in range(200)]

    def at_once() -> None:
        assert len(place_many(room, shapes[0], 50_000)) == 50_000

    def by_shape() -> None:
        assert sum(len(place_many(room, shape, 250)) for shape in shapes) == 50_000

    one = _single(shapes[0])

    def one_by_one() -> None:
        assert all(place(room, one) is not None for _ in range(2000))

    def rate(what: str, count: int, work: Callable[[], object], repeats: int) -> Row:
        took = cpu_seconds(work, lambda: room.rollback(0), repeats)
        slowest = f"p95 {count / p95(took):.0f}/s"
        return Row(what, 50_000, count / p50(took), "tasks/s", slowest, higher=True)

    return [
        rate("burst of 50,000 equal tasks of one GPU, 5,000 nodes", 50_000, at_once, 20),
        rate("the same of 200 shapes, shape by shape", 50_000, by_shape, 5),
        row(
            "one of them, looked at alone",
            100,
            "us",
            [each / 2000 for each in cpu_seconds(one_by_one, lambda: room.rollback(0), 10)],
        ),
    ]


def _gang(what: str, goal: float, reach: Reach, count: int) -> Row:
    room, shape = _half_full(), _shape(_NODE)
    gang = _single(shape, count, reach)
    room.settle()
    took = cpu_seconds(lambda: _placed(room, gang), lambda: room.rollback(0), 100)
    return row(f"{what}; 12,500 nodes, 391 racks, half full", goal, "us", took)


def _half_full() -> Room:
    room = _cluster(12_500, 8)
    rng = np.random.default_rng(3)
    for size in rng.integers(1, 65, 180).tolist():
        _placed(room, _single(_shape(_NODE), size, _RACK))
    place_many(room, _shape(_GPU), 5000)
    return room


def _placed(room: Room, gang: Gang) -> Placement:
    placement = place(room, gang)
    assert placement is not None
    return placement


def _gangs_of_three() -> list[Row]:
    """scheduling-S3: on 5,000 nodes gangs of three tasks, and one gang of 1,500."""
    room = _cluster(5000, 1)
    small, large = _single(_shape(_GPU), 3), _single(_shape(_GPU), 1500)
    took: list[float] = []
    for _ in range(1000):
        began = time.thread_time()
        _placed(room, small)
        took.append(time.thread_time() - began)
    room.rollback(0)
    peer = "kube-scheduler 3.7 to 5.7 ms an attempt, with its writes (published)"
    return [
        row("S3: a gang of 3 on 5,000 nodes, of 1,000", 3700, "us", took, peer),
        row(
            "S3: a gang of 1,500 on 5,000 nodes",
            3700,
            "us",
            cpu_seconds(lambda: _placed(room, large), lambda: room.rollback(0)),
        ),
    ]


def _roles(what: str, servers: int, goal: float) -> Row:
    """Workers on 16 nodes of a rack, and servers that need half of a node's cores each: beside a worker
    there is room for one, so that 48 fit in a rack."""
    room = _half_full()
    workers = Group(_shape(_NODE), 16, 16)
    server = Group(Shape((64_000, 2**30, 0)), servers, servers)
    gang = Gang((workers, server), reach=Reach(required=1))
    room.settle()
    assert (place(room, gang) is None) == (servers > 48)
    room.rollback(0)
    took = cpu_seconds(lambda: place(room, gang), lambda: room.rollback(0))
    return row(f"{what}; 391 racks, half full", goal, "us", took)


def _fill_at_once() -> Row:
    room, shape = _cluster(12_500, 8), _shape(_GPU)
    took = cpu_seconds(lambda: place_many(room, shape, 100_000), lambda: room.rollback(0), 15)
    assert len(place_many(room, shape, 100_001)) == 100_000
    return row("100,000 GPUs filled by equal tasks, 12,500 nodes", 50, "ms", took)


def _fill_with_gangs() -> Row:
    """Gangs of 1 to 64 whole nodes, rack preferred, until nothing fits any more."""
    room = _cluster(12_500, 8)
    sizes = np.random.default_rng(4).integers(1, 65, 1000).tolist()
    gangs = [_single(_shape(_NODE), size, _RACK) for size in sizes]
    started: list[int] = []

    def fill() -> None:
        started.append(sum(place(room, gang) is not None for gang in gangs))

    took = cpu_seconds(fill, lambda: room.rollback(0), 10)
    return row(
        f"100,000 GPUs filled by {started[0]} gangs of 1 to 64 nodes",
        100,
        "ms",
        took,
        "1,000 gangs tried",
    )


def _refusal() -> Row:
    room = _half_full()
    gang = _single(_shape(_NODE), 33, Reach(required=1))
    assert place(room, gang) is None
    return row("a gang that fits nowhere is refused", 50, "us", cpu_seconds(lambda: place(room, gang)))


def _what_if() -> Row:
    room = _half_full()
    gone = _placed(room, _single(_shape(_NODE), 64, _RACK))
    gang = _single(_shape(_NODE), 64, _RACK)
    took = cpu_seconds(lambda: would_fit(room, gang, gone))
    return row("would 64 nodes fit once a gang of 64 has gone", 1000, "us", took)


def _new_shape() -> Row:
    room = _half_full()
    shapes = iter([Shape((kind, 0, 0), 1) for kind in range(1, 60)])
    return row(
        "a shape is seen for the first time", 1, "ms", cpu_seconds(lambda: room.fits(next(shapes)))
    )


def _copy() -> Row:
    room = _half_full()
    for kind in range(100):
        room.fits(Shape((kind + 1, 0, 0), 1))
    return row("a copy of the room, 100 shapes known", 1, "ms", cpu_seconds(room.copy))


def _consolidation(nodes: int) -> Row:
    """Every node has 3 of 8 GPUs taken by a job of 1 and one of 2; two whole nodes are asked for."""
    room = _cluster(nodes, 8)
    at = np.arange(nodes)
    movers: list[Mover] = []
    for gpus in (1, 2):
        shape = Shape((1000, 2**30, 0), gpus)
        tasks = room.take(shape, at, np.ones(nodes, dtype=np.int64))
        movers += [Mover(_single(shape), (tasks.only(at == node),)) for node in at]
    room.settle()
    gang = _single(_shape(_NODE), 2)
    took = cpu_seconds(lambda: consolidate(room, gang, movers), lambda: room.rollback(0), 5)
    found = consolidate(room, gang, movers)
    assert found is not None
    moved = f"{len(found.moves)} of {2 * nodes:,} jobs moved"
    return row(f"two whole nodes are cleared among {nodes:,}", 100, "ms", took, moved)


def _weight() -> Row:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    room = _cluster(12_500, 8)
    for kind in range(100):
        room.fits(Shape((kind + 1, 0, 0), 1))
    held = place_many(room, _shape(_GPU), 100_000)
    grown = (tracemalloc.get_traced_memory()[0] - before) / 2**20
    tracemalloc.stop()
    assert len(held) == 100_000
    return Row("memory: 12,500 nodes, 100 shapes, 100,000 tasks", 100, grown, "MiB")


if __name__ == "__main__":
    main()
