"""What a job needs at least, whatever of it is elastic."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from shoal.objects.admit import admit
from shoal.objects.demand import fitting, least_demand, least_tasks
from shoal.objects.elastic import with_coordinator
from shoal.objects.job import Job, JobSpec, Resources
from shoal.objects.node import Capacity
from shoal.objects.quantities import Bytes, CpuMillis
from tests.objects.documents import job
from tests.support.strategies import jobs


def spec_of(**spec: Any) -> JobSpec:
    made = admit(job(**spec))
    assert isinstance(made, Job)
    return made.spec


def role(
    name: str = "worker", replicas: int = 1, least: int | None = None, **asks: Any
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "command": ["a"], "replicas": replicas, "resources": asks}
    return made if least is None else made | {"minReplicas": least}


@pytest.mark.parametrize(
    ("spec", "tasks", "demand"),
    [
        ({"roles": [role(replicas=3, cpu=2, memory="1Gi", gpu=1)]}, {"worker": 3}, (6000, 3 << 30, 3)),
        ({"roles": [role(replicas=8, least=2, gpuShare=0.25)]}, {"worker": 2}, (2000, 0, 0.5)),
        ({"roles": [role(replicas=4, cpu=2), role("ps", 2)]}, {"worker": 4, "ps": 2}, (10_000, 0, 0)),
        # three of any: the two small ones, and one of the large
        ({"roles": [role(replicas=4, cpu=2), role("ps", 2)], "gang": {"min": 3}},
         {"worker": 0, "ps": 0}, (4000, 0, 0)),
        ({"roles": [role(replicas=4, least=1, cpu=2), role("ps", 2)], "gang": {"min": 3}},
         {"worker": 1, "ps": 0}, (4000, 0, 0)),
        ({"roles": [role(gpu=1)], "array": {"indices": "0-9"}}, {"worker": 1}, (1000, 0, 1)),
    ],
)  # fmt: skip
def test_what_must_start_together(
    spec: dict[str, Any], tasks: dict[str, int], demand: tuple[float, float, float]
) -> None:
    made = spec_of(**spec)
    assert least_tasks(made) == tasks
    assert tuple(least_demand(made).values()) == demand


def test_the_coordinator_counts_and_is_no_part_of_the_gang() -> None:
    made = with_coordinator(spec_of(runtime="elastic", roles=[role(replicas=4, least=2)]), "python")
    assert least_tasks(made) == {"coordinator": 1, "worker": 2}
    assert least_demand(made)["cpu"] == 2100


@given(jobs())
@pytest.mark.slow
def test_it_is_never_more_than_all_of_the_job(made: Job) -> None:
    demand = least_demand(made.spec)
    assert all(amount >= 0 for amount in demand.values())
    whole = sum(role.replicas * int(role.resources.cpu) for role in made.spec.roles)
    assert demand["cpu"] <= whole


@pytest.mark.parametrize(
    ("asks", "places"),
    [
        (Resources(), 6),
        (Resources(cpu=CpuMillis(3000)), 1),
        (Resources(memory=Bytes(2**32)), 3),
        (Resources(gpu=1), 2),
        (Resources(gpu=2, cpu=CpuMillis(0)), 1),
        (Resources(gpu_share=0.5, cpu=CpuMillis(0)), 4),
        (Resources(gpu_share=0.3, cpu=CpuMillis(0)), 6),
    ],
)
def test_how_many_find_a_place(asks: Resources, places: int) -> None:
    nodes = [
        Capacity(cpu=CpuMillis(4000), memory=Bytes(2**33), gpus=("a", "b")),
        Capacity(cpu=CpuMillis(2000), memory=Bytes(2**32)),
    ]
    assert fitting(asks, nodes) == places
    assert fitting(asks, nodes, places) == places
    assert fitting(asks, nodes, 1) >= 1, "nobody looks further"


def test_what_asks_for_nothing_fits_without_end() -> None:
    node = Capacity(cpu=CpuMillis(1000), memory=Bytes(2**30))
    assert fitting(Resources(cpu=CpuMillis(0)), [node, node]) > 100_000
