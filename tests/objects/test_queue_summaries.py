"""What queues hold and have borrowed, with those below them."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue, QueueStatus, QueueUsage, summaries
from tests.objects.test_queue_tree import TORN, queue


def holding(made: Queue, cpu: int = 0, memory: int = 0, gpu: float = 0, **status: Any) -> Queue:
    usage = QueueUsage(cpu=CpuMillis(cpu), memory=Bytes(memory), gpu=gpu)
    return msgspec.structs.replace(made, status=QueueStatus(usage=usage, **status))


def test_a_queue_holds_what_those_below_hold() -> None:
    found = summaries(
        [
            holding(queue("top", nominal={"gpu": 4, "cpu": 1}), cpu=500, gpu=1, running=1),
            holding(queue("b", "top", nominal={"gpu": 1}), gpu=2.5, running=2, pending=3),
            holding(queue("c", "b", guaranteed={"gpu": 0.5}, nominal={"gpu": 2}), memory=7, pending=1),
        ]
    )
    assert list(found) == ["top", "b", "c"]
    top, b, c = found.values()
    assert (top.path, top.depth, c.path, c.depth) == (("top",), 0, ("top", "b", "c"), 2)
    assert (top.running, top.pending, b.running, b.pending) == (3, 4, 2, 4)
    assert top.used == {"cpu": 500.0, "memory": 7.0, "gpu": 3.5}
    assert top.own == {"cpu": 1000.0, "memory": 0.0, "gpu": 4.0}
    assert b.own["gpu"] == 2.0, "what is below is its own too"
    assert top.guaranteed["gpu"] == 0.5
    assert (top.borrowed["gpu"], b.borrowed["gpu"], c.borrowed["gpu"]) == (0.0, 0.5, 0.0)
    assert c.borrowed["memory"] == 0.0, "nobody has memory of its own, so none is borrowed"


def test_queues_that_hang_from_nothing_are_counted_once() -> None:
    found = summaries([holding(each, gpu=1) for each in TORN])
    assert {name: standing.used["gpu"] for name, standing in found.items()} == {
        "a": 2.0, "c": 1.0, "b": 1.0, "d": 1.0, "e": 1.0,
    }  # fmt: skip
