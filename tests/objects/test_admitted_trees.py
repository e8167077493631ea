"""Whatever order queues are written and rewritten in: what is admitted, the scheduler can share out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rows import queue_row, queue_rows
from shoal.objects.admit import check_rules
from shoal.objects.meta import Metadata
from shoal.objects.quantities import CpuMillis
from shoal.objects.queue import Amounts, Queue, QueueSpec, Quota, check_place, walk
from shoal.schedule.shares.quotas import quotas
from shoal.schedule.shares.tree import tree

NAMES = ("a", "b", "c", "d")
RESOURCES = ("cpu", "memory", "gpu")


@st.composite
def queues(draw: st.DrawFn) -> Queue:
    """Of few names and small numbers; now and then one that contradicts itself."""
    nominal = draw(st.sampled_from([0, 1, 2]))
    kept = draw(st.sampled_from([0, 0, nominal, nominal, nominal + 1]))
    lent = draw(st.sampled_from([None, None, 0, nominal, nominal + 1]))
    most = draw(st.sampled_from([None, None, 2, 3, 4]))
    spec = QueueSpec(
        parent=draw(st.sampled_from(["", "a", "a", "b"])),
        quota=Quota(cpu=None if most is None else CpuMillis(most), gpu=most),
        nominal=Amounts(cpu=CpuMillis(nominal), gpu=nominal / 10),
        guaranteed=Amounts(cpu=CpuMillis(kept), gpu=kept / 10),
        lending=Amounts(cpu=None if lent is None else CpuMillis(lent)),
        weight=draw(st.sampled_from([1.0, 1.0, 0.5, 0.0])),
    )
    return Queue(metadata=Metadata(name=draw(st.sampled_from(NAMES)), namespace=""), spec=spec)


@given(st.lists(queues(), min_size=8, max_size=16))
def test_what_is_admitted_can_be_shared_out(written: list[Queue]) -> None:
    quota = Quota(cpu=CpuMillis(3), gpu=3)
    above = Queue(metadata=Metadata(name="a", namespace=""), spec=QueueSpec(quota=quota))
    there = {"a": above}
    for queue in written:
        if not check_rules(queue) and not check_place(queue, there.values()):
            there[queue.metadata.name] = queue
    rows = [queue_row(queue) for _, queue in walk(there.values())]
    at = {row.name: place for place, row in enumerate(rows)}
    parents = tree([at.get(row.parent, -1) for row in rows])

    def column(field: str, absent: float) -> np.ndarray:
        listed = [[getattr(row, field).get(name, absent) for name in RESOURCES] for row in rows]
        return np.array(listed, dtype=np.float64).reshape(len(rows), len(RESOURCES))

    quotas(  # raises for whatever contradicts itself
        parents,
        nominal=column("nominal", 0.0),
        guaranteed=column("guaranteed", 0.0),
        limit=column("limit", np.inf),
        borrowing=column("borrowing", np.inf),
        lending=column("lending", np.inf),
        weight=np.array([row.weight for row in rows]),
    )
    repaired = queue_rows(there.values())
    assert {row.name: row.parent for row in repaired} == {row.name: row.parent for row in rows}
