from __future__ import annotations

import json

from shoal import rendezvous
from shoal.objects.job import Role
from shoal.rendezvous.contracts import LARGEST_VARIABLE

from .conftest import UID, a_job, a_spec, an_endpoint, told_of


def test_who_it_is() -> None:
    (told,) = told_of(a_job("plain", Role()), ("worker", 0))
    assert {name: value for name, value in told.env.items() if name != "SHOAL_TASKS"} == {
        "SHOAL_NAMESPACE": "team-a",
        "SHOAL_JOB": "digits",
        "SHOAL_JOB_UID": UID,
        "SHOAL_RUNTIME": "plain",
        "SHOAL_TASK": f"digits-{UID[:8]}-worker-0-1",
        "SHOAL_ROLE": "worker",
        "SHOAL_INDEX": "0",
        "SHOAL_ATTEMPT": "1",
        "SHOAL_INCARNATION": "1",
        "SHOAL_RANK": "0",
        "SHOAL_WORLD_SIZE": "1",
        "SHOAL_HOST": "worker-0.example",
        "SHOAL_PORT_RENDEZVOUS": "2222",
        "PYTHONUNBUFFERED": "1",
    }
    assert (told.files, told.command) == ({}, ())


def test_where_all_are() -> None:
    job = a_job("plain", Role(name="worker", replicas=9), Role(name="ps"))
    first, _, last = told_of(job, ("worker", 1), ("worker", 5), ("ps", 0))
    assert first.env["SHOAL_TASKS"] == last.env["SHOAL_TASKS"]
    tasks = json.loads(first.env["SHOAL_TASKS"])
    assert [each["index"] for each in tasks["worker"]] == [1, 5]
    assert tasks["ps"] == [
        {"index": 0, "host": "ps-0.example", "ports": {"rendezvous": 2222}, "node": "node-1"}
    ]
    assert (last.env["SHOAL_RANK"], last.env["SHOAL_WORLD_SIZE"]) == ("2", "3")


def test_ports_of_its_own() -> None:
    spec = a_spec("worker", 0)
    endpoint = an_endpoint("worker", 0, **{"http-admin": 8080})
    told = rendezvous.render(a_job("plain", Role()), 1, (spec,), (endpoint,))[spec.name]
    assert told.env["SHOAL_PORT_HTTP_ADMIN"] == "8080"


def test_one_that_starts_again_is_told_of_all() -> None:
    spec = a_spec("worker", 1, attempt=1, incarnation=4)
    endpoints = tuple(an_endpoint("worker", index) for index in (0, 2, 1))
    told = rendezvous.render(a_job("plain"), 1, (spec,), endpoints)
    assert list(told) == [spec.name]
    env = told[spec.name].env
    assert (env["SHOAL_INCARNATION"], env["SHOAL_RANK"], env["SHOAL_WORLD_SIZE"]) == ("4", "1", "3")


def test_indices_of_an_array_have_no_peers() -> None:
    job = a_job("plain", Role(), array="0-99")
    specs = tuple(a_spec("worker", index) for index in (3, 70))
    endpoints = tuple(an_endpoint("worker", index) for index in range(99))
    told = rendezvous.render(job, 1, specs, endpoints)
    env = told[specs[1].name].env
    assert (env["SHOAL_INDEX"], env["JOB_COMPLETION_INDEX"]) == ("70", "70")
    assert (env["SHOAL_RANK"], env["SHOAL_WORLD_SIZE"]) == ("0", "1")
    assert [each["index"] for each in json.loads(env["SHOAL_TASKS"])["worker"]] == [70]


def test_too_many_for_a_variable_are_in_a_file() -> None:
    count = 3000
    job = a_job("plain", Role(replicas=count))
    spec = a_spec("worker", 0)
    endpoints = tuple(an_endpoint("worker", index) for index in range(count))
    told = rendezvous.render(job, 1, (spec,), endpoints)[spec.name]
    assert "SHOAL_TASKS" not in told.env
    assert told.env["SHOAL_TASKS_FILE"] == "$(SHOAL_RENDEZVOUS)/tasks.json"
    assert len(told.files["tasks.json"]) > LARGEST_VARIABLE
    assert len(json.loads(told.files["tasks.json"])["worker"]) == count
    assert max(len(value) for value in told.env.values()) < LARGEST_VARIABLE
