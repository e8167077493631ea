"""Queues beside each other: who is above whom, and what counts as whose own."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.admit import admit
from shoal.objects.paths import spell
from shoal.objects.queue import (
    Amounts,
    Queue,
    check_place,
    children_of,
    own_of,
    parents_of,
    path_of,
    walk,
)
from tests.objects.documents import of_kind


def queue(name: str, parent: str = "", **spec: Any) -> Queue:
    made = admit(
        {**of_kind("Queue", parent=parent, **spec), "metadata": {"name": name}},
    )
    assert isinstance(made, Queue)
    return made


TREE = [queue("z"), queue("b", "a"), queue("a"), queue("c", "a"), queue("d", "b")]
TORN = [queue("a", "b"), queue("b", "a"), queue("c", "a"), queue("d", "gone"), queue("e")]
"""As admission would not have let them in: a circle, one below it, one below nothing."""


def findings(wanted: Queue, others: list[Queue]) -> dict[str, str]:
    return {spell(finding.path): finding.message for finding in check_place(wanted, others)}


def test_a_tree_is_read_from_the_top_by_name() -> None:
    assert [(depth, q.metadata.name) for depth, q in walk(TREE)] == [
        (0, "a"), (1, "b"), (2, "d"), (1, "c"), (0, "z"),
    ]  # fmt: skip
    assert children_of("a", TREE) == ["b", "c"]
    assert children_of("", TREE) == ["a", "z"]
    assert path_of("d", parents_of(TREE)) == ["d", "b", "a"]


def test_what_cannot_be_above_anything_is_topmost() -> None:
    parents = parents_of(TORN)
    assert parents == {"a": "", "b": "", "c": "a", "d": "", "e": ""}
    assert [(depth, q.metadata.name) for depth, q in walk(TORN)] == [
        (0, "a"), (1, "c"), (0, "b"), (0, "d"), (0, "e"),
    ]  # fmt: skip
    assert path_of("c", parents) == ["c", "a"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (queue("a", "d"), "the queues would be above themselves: a -> d -> b -> a"),
        (queue("a", "b"), "the queues would be above themselves: a -> b -> a"),
        (queue("c", "nowhere"), "there is no queue nowhere"),
        (queue("c", "zz"), "there is no queue zz; did you mean z?"),
    ],
)
def test_a_parent_that_cannot_be(wanted: Queue, message: str) -> None:
    assert findings(wanted, TREE) == {"spec.parent": message}


def test_a_queue_may_go_below_another(wanted: Queue = TREE[1]) -> None:
    assert findings(queue("b", "z"), TREE) == {}
    assert findings(queue("new", "d"), TREE) == {}
    assert findings(wanted, TREE) == {}


def test_what_children_have_is_their_parents_too() -> None:
    queues = [
        queue("a", nominal={"cpu": 2, "memory": "4Gi"}),
        queue("b", "a", nominal={"cpu": 1, "gpu": 0.5}),
        queue("c", "a", nominal={"cpu": "1500m", "gpu": 0.25, "memory": "1Gi"}),
    ]
    own = own_of(queues, "nominal")
    assert own["a"] == Amounts(cpu=queues[2].spec.nominal.cpu + 1000, memory=2**32, gpu=0.75)  # type: ignore
    assert own["b"] == queues[1].spec.nominal


def test_what_is_a_queues_own_fits_into_every_quota_above() -> None:
    queues = [
        queue("a", quota={"gpu": 3, "cpu": 10}),
        queue("b", "a", quota={"gpu": 2}),
        queue("c", "b", nominal={"gpu": 2}),
        queue("d", "a", nominal={"gpu": 1}),
    ]
    wanted = queue("e", "b", nominal={"gpu": 0.5, "cpu": 1})
    assert [finding.message for finding in check_place(wanted, queues)] == [
        "with it, queue b has 2.5 of its own, and a quota of 2",
        "with it, queue a has 3.5 of its own, and a quota of 3",
    ]
    assert findings(queue("b", "a", quota={"gpu": 1}), queues) == {
        "spec.quota.gpu": "1 is less than what the queues below have of their own: 2"
    }
    assert findings(queue("d", "a", nominal={"gpu": 0.3}), queues) == {}


def test_parts_of_devices_add_up() -> None:
    thirds = [queue(f"q{at}", "a", nominal={"gpu": 0.1}) for at in range(9)]
    above = queue("a", quota={"gpu": 1}, nominal={"gpu": 1})
    assert findings(queue("q9", "a", nominal={"gpu": 0.1}), [above, *thirds]) == {}
