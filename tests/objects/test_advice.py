# ruff: noqa: E501  (messages are quoted whole)
"""What is allowed and surely not meant, in words."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.objects.admit import admit
from shoal.objects.demand import about_job, about_queue
from shoal.objects.job import Job
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from tests.objects.documents import job
from tests.objects.test_queue_tree import queue

NODES = [
    Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33), gpus=("a", "b")),
    Capacity(cpu=CpuMillis(2000), memory=Bytes(2**32)),
]


def told(**spec: Any) -> list[str]:
    made = admit(job(**spec))
    assert isinstance(made, Job)
    return about_job(made, [queue("default")], NODES)


def roles(replicas: int, **resources: Any) -> dict[str, Any]:
    return {"roles": [{"command": ["a"], "replicas": replicas, "resources": resources}]}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (roles(3, cpu=2), ""),
        (roles(4, cpu=2),
         "job a asks for 8 cpu at least, and all nodes together have 6: it waits until there are more"),
        (roles(2, memory="8Gi"),
         "job a asks for 16Gi memory at least, and all nodes together have 12Gi: it waits until there are more"),
        (roles(3, gpu=1, cpu=0),
         "job a asks for 3 GPUs at least, and all nodes together have 2: it waits until there are more"),
        (roles(5, gpuShare=0.4, cpu=0),
         "job a starts with 5 tasks of role worker at least, and all nodes together hold 4: it waits until there are more"),
        (roles(2, cpu="2500m"),
         "job a starts with 2 tasks of role worker at least, and all nodes together hold 1: it waits until there are more"),
        (roles(9, cpu=2) | {"gang": {"min": 3}}, ""),
        (roles(9, cpu=2) | {"array": {"indices": "0-99"}, "roles": [{"command": ["a"]}]}, ""),
        ({"roles": [{"command": ["a"], "replicas": 9, "minReplicas": 3, "resources": {"cpu": 2}}]}, ""),
    ],
)  # fmt: skip
def test_jobs_larger_than_the_cluster(spec: dict[str, Any], sentence: str) -> None:
    assert told(**spec) == ([sentence] if sentence else [])


def test_a_cluster_of_which_nothing_is_known_is_large_enough() -> None:
    made = admit(job(**roles(1000, cpu=2, gpu=8)))
    assert isinstance(made, Job)
    assert about_job(made, [queue("default")], []) == []
    assert about_queue(queue("a", quota={"cpu": 10_000}), [], []) == []


def test_jobs_larger_than_a_queue_above_them() -> None:
    path = [
        queue("default", "top", userLimit={"memory": "1Gi"}),
        queue("top", quota={"jobs": 0, "gpu": 1}),
    ]
    made = admit(job(**roles(2, gpu=1, memory="1Gi")))
    assert isinstance(made, Job)
    assert about_job(made, path, NODES) == [
        "job a asks for 2Gi memory at least, and a user may have 1Gi at most in queue default",
        "job a asks for 2 GPUs at least, and queue top may use 1 at most",
        "job a waits: queue top may use no job at most",
    ]


def test_queues_that_promise_more_than_there_is() -> None:
    wanted = queue("a", quota={"gpu": 1, "cpu": 8, "memory": "12Gi"}, nominal={"gpu": 1, "cpu": 4})
    others = [queue("b", nominal={"cpu": 3}), queue("c", "b", nominal={"cpu": 1})]
    assert about_queue(wanted, others, NODES) == [
        "queue a may use 8 cpu, and all nodes together have 6",
        "queues have 7 cpu of their own together, and all nodes have 6: where all is wanted, each gets "
        "the same part of its own",
    ]
    assert about_queue(queue("c", "b"), [*others, wanted], NODES) == []


def test_a_number_that_counts_as_more_than_what_is_written() -> None:
    others = [
        queue("top", nominal={"gpu": 1, "cpu": 4}, guaranteed={"gpu": 0.25}),
        queue("b", "top", nominal={"gpu": 0.5, "cpu": 1}, guaranteed={"gpu": 0.25}),
    ]
    wanted = queue("c", "top", nominal={"gpu": 0.75}, guaranteed={"gpu": 0.5})
    assert about_queue(wanted, others, NODES) == [
        "queue top has 1 GPU of its own, and the queues below it 1.25 together: it counts as 1.25",
        "queue top has 0.25 GPUs guaranteed, and the queues below it 0.75 together: it counts as 0.75",
    ]
