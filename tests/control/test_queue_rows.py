from __future__ import annotations

import pytest

from shoal.control.rows import queue_row, queue_rows
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Amounts, Queue, QueueBudget, QueueSpec, QueueStatus, Quota
from shoal.schedule.cycle.columns import Columns
from shoal.schedule.cycle.rows import Cluster, Node


def queue(name: str, status: QueueStatus | None = None, **spec) -> Queue:
    return Queue(
        metadata=Metadata(name=name, namespace=""),
        spec=QueueSpec(**spec),
        status=status or QueueStatus(),
    )


def gpus(amount: float) -> Amounts:
    return Amounts(gpu=amount)


def test_every_word_of_a_queue_arrives():
    row = queue_row(
        queue(
            "q",
            QueueStatus(spent={"year": 3.0}),
            parent="lab",
            nominal=Amounts(cpu=CpuMillis(4000), gpu=2),
            guaranteed=gpus(1),
            borrowing=gpus(3),
            lending=gpus(0.5),
            quota=Quota(gpu=5, jobs=7),
            weight=2.0,
            priority=4,
            fenced=True,
            user_limit=Quota(gpu=2, jobs=1),
            min_runtime=60,
            budgets=(QueueBudget(name="year", resource="gpu", hours=9.0),),
            namespaces=("team",),
            highest_priority={"*": "normal"},
        )
    )
    assert (row.parent, row.nominal, row.guaranteed) == (
        "lab",
        {"cpu": 4000.0, "gpu": 2.0},
        {"gpu": 1.0},
    )
    assert (row.borrowing, row.lending, row.limit, row.jobs) == (
        {"gpu": 3.0},
        {"gpu": 0.5},
        {"gpu": 5.0},
        7,
    )
    assert (row.weight, row.priority, row.fenced) == (2.0, 4, True)
    assert (row.user_limit, row.user_jobs, row.minimum_seconds) == ({"gpu": 2.0}, 1, 60.0)
    assert (row.budgets[0].name, row.budgets[0].hours, row.budgets[0].spent) == ("year", 9.0, 3.0)
    assert (row.namespaces, row.highest) == (("team",), {"*": 0})


def test_who_hangs_from_nothing_or_from_itself_stands_alone():
    rows = queue_rows(
        [
            queue("a", parent="gone"),
            queue("b", parent="c"),
            queue("c", parent="b"),
            queue("d", parent="a"),
        ]
    )
    parents = {row.name: row.parent for row in rows}
    assert parents["a"] == ""
    assert parents["d"] == "a"
    assert "" in (parents["b"], parents["c"])
    Columns(Cluster(queues=rows))


@pytest.mark.parametrize("limit", [0, 2, 5])
def test_own_amounts_shrink_to_the_limit_above(limit: int):
    rows = queue_rows(
        [
            queue("top", quota=Quota(gpu=limit)),
            queue("left", parent="top", nominal=gpus(6), guaranteed=gpus(6)),
            queue("right", parent="top", nominal=gpus(2)),
        ]
    )
    own = {row.name: row.nominal.get("gpu", 0.0) for row in rows}
    assert own["left"] + own["right"] == pytest.approx(limit)
    assert own["left"] == pytest.approx(3 * own["right"])
    nodes = (Node(name="n", gpus=8),)
    Columns(Cluster(nodes=nodes, queues=rows))
