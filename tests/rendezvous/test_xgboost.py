from __future__ import annotations

from shoal import rendezvous
from shoal.objects.job import Role

from .conftest import a_job, a_spec, an_endpoint, told_of

JOB = a_job("xgboost", Role(name="master"), Role(name="worker", replicas=2))


def of_the_contract(env: dict[str, str]) -> dict[str, str]:
    return {n: v for n, v in env.items() if not n.startswith(("SHOAL_", "PYTHON"))}


def test_master_and_workers() -> None:
    told = told_of(JOB, ("master", 0), ("worker", 0), ("worker", 1))
    common = {
        "MASTER_ADDR": "master-0.example",
        "MASTER_PORT": "2222",
        "WORLD_SIZE": "3",
        "WORKER_PORT": "2222",
        "WORKER_ADDRS": "worker-0.example,worker-1.example",
        "DMLC_TRACKER_URI": "master-0.example",
        "DMLC_TRACKER_PORT": "2222",
        "DMLC_NUM_WORKER": "3",
    }
    for rank, each in enumerate(told):
        own = {"RANK": str(rank), "DMLC_TASK_ID": str(rank)}
        assert of_the_contract(each.env) == {**common, **own}
        assert each.env["PYTHONUNBUFFERED"] == "1"


def test_one_alone_has_no_workers() -> None:
    (told,) = told_of(a_job("xgboost", Role()), ("worker", 0))
    assert "WORKER_ADDRS" not in told.env
    assert told.env["WORLD_SIZE"] == "1"


def test_workers_that_share_an_address_have_ports_of_their_own() -> None:
    specs = (a_spec("master", 0), a_spec("worker", 0), a_spec("worker", 1))
    endpoints = tuple(
        an_endpoint(spec.role, spec.index, host="127.0.0.1", port=3000 + place)
        for place, spec in enumerate(specs)
    )
    told = rendezvous.render(JOB, 1, specs, endpoints)
    assert [told[spec.name].env["WORKER_PORT"] for spec in specs] == ["3000", "3001", "3002"]
    assert {told[spec.name].env["MASTER_PORT"] for spec in specs} == {"3000"}
