"""TF_CONFIG, byte for byte as a TFJob's tasks get it."""

from __future__ import annotations

from shoal.objects.job import Role

from .conftest import a_job, told_of

PS = Role(name="ps", replicas=2)
WORKER = Role(name="worker", replicas=2)


def test_chief_workers_and_evaluator() -> None:
    roles = (Role(name="worker", replicas=2), Role(name="chief"), Role(name="evaluator"))
    members = [("chief", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)]
    told = told_of(a_job("tensorflow", *roles), *members)
    cluster = (
        '{"cluster":{"chief":["chief-0.example:2222"],"evaluator":["evaluator-0.example:2222"],'
        '"worker":["worker-0.example:2222","worker-1.example:2222"]},'
    )
    assert [each.env["TF_CONFIG"] for each in told] == [
        cluster + '"task":{"type":"chief","index":0},"environment":"cloud"}',
        cluster + '"task":{"type":"worker","index":0},"environment":"cloud"}',
        cluster + '"task":{"type":"worker","index":1},"environment":"cloud"}',
        cluster + '"task":{"type":"evaluator","index":0},"environment":"cloud"}',
    ]


def test_an_index_is_the_place_in_the_list() -> None:
    told = told_of(a_job("tensorflow", Role(replicas=9)), ("worker", 3), ("worker", 8))
    assert told[1].env["TF_CONFIG"] == (
        '{"cluster":{"worker":["worker-3.example:2222","worker-8.example:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    )


def test_a_job_of_one_replica_gets_none() -> None:
    (told,) = told_of(a_job("tensorflow", Role()), ("worker", 0))
    assert "TF_CONFIG" not in told.env
    assert told.env["SHOAL_ROLE"] == "worker"


def test_one_of_several_gets_it_all_the_same() -> None:
    job = a_job("tensorflow", Role(replicas=4, min_replicas=1), scope="Gang")
    (told,) = told_of(job, ("worker", 2))
    assert told.env["TF_CONFIG"].startswith('{"cluster":{"worker":["worker-2.example:2222"]}')


def test_workers_that_come_and_go_get_the_sparse_form() -> None:
    roles = (PS, Role(name="worker", replicas=4, min_replicas=1))
    members = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 3)]
    told = told_of(a_job("tensorflow", *roles), *members)
    assert told[1].env["TF_CONFIG"] == (
        '{"cluster":{"worker":{},"ps":["ps-1.example:2222"]},"task":{"type":"ps","index":1}}'
    )
    assert told[3].env["TF_CONFIG"] == (
        '{"cluster":{"worker":{"3":"worker-3.example:2222"},'
        '"ps":["ps-0.example:2222","ps-1.example:2222"]},"task":{"type":"worker","index":3}}'
    )
